"""Settings reference, from the table of settings. Every example is loaded when the page is built."""

from __future__ import annotations

import tempfile
from pathlib import Path

from markdown_text import format_code_block, format_table

from cfglint_train.frameworks.registry import map_spellings
from cfglint_train.settings.settings import load_settings
from cfglint_train.settings.settings_schema import CHOICES, get_default
from cfglint_train.settings.table import FACTS, SETTINGS, Kind


def build_pages() -> dict[str, str]:
    """Return the page by its path below docs/."""
    parts = [_HEAD]
    for name, text in SETTINGS.items():
        parts.append(
            f"## {name}\n\n{text.purpose}\n\n{_describe_type(name)}\n"
            f"{format_code_block(_check_example(text.example), '.toml')}"
        )
    parts.append("## Facts about the cluster\n")
    parts.append(format_table(("`hardware.`", "meaning"), [(f"`{name}`", meaning) for name, meaning in FACTS.items()]))
    packages = ", ".join(f"`{name}`" for name in map_spellings())
    parts.append(f"## Packages\n\nYou can state the releases of {packages}.\n")
    return {"settings.md": "\n".join(parts)}


_HEAD = """\
# Settings

Put settings into `cfglint.toml`, or below `[tool.cfglint]` in `pyproject.toml` (`[hardware]` is then
`[tool.cfglint.hardware]`). For each file, the nearest settings file above it applies. In one folder, `cfglint.toml`
comes before `.cfglint.toml`, and that before `pyproject.toml`. `--config FILE` names one for all files; `--isolated`
uses none. Flags override settings. An unknown setting is an error.

[Editors](editors.md#settings-of-cfglint) complete and check these files with the schema that `cfglint schema cfglint`
prints.
"""


_KINDS: dict[Kind, str] = {
    "selectors": "list of selectors", "globs": "list of globs", "boolean": "true or false", "choice": "string",
    "address": "string", "path": "string", "seconds": "number", "table": "table", "tables": "list of tables",
}  # fmt: skip


def _describe_type(name: str) -> str:
    words = ", ".join(f"`{word}`" for word in CHOICES.get(name, ()))
    kind = f"one of {words}" if words else _KINDS[SETTINGS[name].kind]
    return f"Type: {kind}. Default: {_format_default(name)}.\n"


def _format_default(name: str) -> str:
    value = get_default(name)
    if value is None or value == []:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return ", ".join(f"`{item}`" for item in value) if isinstance(value, list) else f"`{value}`"


def _check_example(example: str) -> str:
    """Return the example after loading it."""
    with tempfile.TemporaryDirectory() as folder:
        inner = Path(folder, "inner", "cfglint.toml")
        inner.parent.mkdir()
        Path(folder, "cfglint.toml").write_text("")
        inner.write_text(example)
        load_settings(str(inner))
    return example
