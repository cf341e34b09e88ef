"""Pins: the releases that a repository's requirement files allow."""
