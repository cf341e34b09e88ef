"""Readers of frameworks whose vendored copies cfglint does not read: only for releases, when a schema file is made."""
