"""Schema files on disk."""

from __future__ import annotations

import json
from pathlib import Path

from cfglint_schemas.form import Json, format_schema


def load_schema(path: Path) -> Json:
    """A schema from its file."""
    schema: Json = json.loads(path.read_text(encoding="utf-8"))
    return schema


def save_schema(path: Path, schema: Json) -> bool:
    """Write a schema's file if that changes it; says whether it did."""
    content = format_schema(schema)
    if path.exists() and path.read_text(encoding="utf-8") == content:
        return False
    path.write_text(content, encoding="utf-8", newline="\n")
    return True
