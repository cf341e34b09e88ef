"""Keys of every framework by release: one annotated JSON Schema per framework, and its reader."""

from __future__ import annotations

files: dict[str, str] = {}
"""Schema files outside this package, for example in a framework's folder: name -> file."""
