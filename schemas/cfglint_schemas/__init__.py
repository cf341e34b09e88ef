"""What every framework calls its settings, by release: one annotated JSON Schema per framework, and its reader."""

from __future__ import annotations

files: dict[str, str] = {}
"""Vocabularies that lie elsewhere, as in the folder of a framework: name -> file."""
