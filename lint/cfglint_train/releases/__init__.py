"""Releases: which versions a configuration runs on."""
