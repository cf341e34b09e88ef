"""Readers of frameworks of which cfglint reads no copy: only their releases, when a schema file is made."""
