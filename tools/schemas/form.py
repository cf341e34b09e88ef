"""Schema files on disk: load and save."""

from __future__ import annotations

import json
from pathlib import Path

from cfglint_schemas.form import Json, format_schema


def load_schema(path: Path) -> Json:
    """Return the parsed schema in a file."""
    schema: Json = json.loads(path.read_text(encoding="utf-8"))
    return schema


def save_schema(path: Path, schema: Json) -> bool:
    """Write a schema to a file unless the file already has this content; return whether the file changed."""
    content = format_schema(schema)
    if path.exists() and path.read_text(encoding="utf-8") == content:
        return False
    path.write_text(content, encoding="utf-8", newline="\n")
    return True
