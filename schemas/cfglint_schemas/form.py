"""The layout of schema files: one line per key, and the same bytes for the same facts."""

from __future__ import annotations

import json
from typing import Any, Final

Json = dict[str, Any]

END: Final = "\n}\n}\n"
"""End of every schema file."""


def format_schema(schema: Json) -> str:
    """Return the text of a schema file."""
    lines = [f"{_format_line(word)}: {_format_line(value)}" for word, value in schema.items() if word != "$defs"]
    definitions = [
        f"  {_format_line(name)}: {_format_definition(definition)}" for name, definition in schema["$defs"].items()
    ]
    lines.append('"$defs": {\n' + ",\n".join(definitions))
    return "{\n" + ",\n".join(lines) + END


def _format_definition(definition: Json) -> str:
    head = "".join(
        f"{_format_line(word)}: {_format_line(value)}, " for word, value in definition.items() if word != "properties"
    )
    rows = ",\n".join(
        f"    {_format_line(name)}: {_format_line(facts)}" for name, facts in definition["properties"].items()
    )
    return "{" + head + '"properties": {' + (f"\n{rows}\n  " if rows else "") + "}}"


def _format_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
