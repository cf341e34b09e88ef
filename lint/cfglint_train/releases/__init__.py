"""Releases: the versions on which a config runs."""
