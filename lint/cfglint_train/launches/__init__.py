"""Launches: how a configuration is started."""
