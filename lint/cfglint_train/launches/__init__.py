"""Launches: the commands that start a config."""
