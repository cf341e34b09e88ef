"""JSON Schemas on the site, and their entries for the catalogue of SchemaStore, from which editors choose a schema."""

from __future__ import annotations

import json
import tempfile
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from run import REPOSITORY, run_cfglint

FOLDER = "schemas"
TABLE = "<!-- schema files -->"
"""Placeholder of the rows of the table of schemas."""


class Entry(NamedTuple):
    """An entry of the catalogue."""

    title: str
    description: str
    patterns: tuple[str, ...]
    """Names of files that get the schema. A name that other programs use as well would give false problems."""


ENTRIES = {
    "cfglint": Entry(
        "cfglint", "Settings of cfglint, a linter of LLM training configurations", ("cfglint.toml", ".cfglint.toml")
    ),
    "axolotl": Entry("axolotl", "Training configuration of axolotl", ("axolotl.yaml", "axolotl.yml", "*.axolotl.yaml")),
    "llamafactory": Entry(
        "LLaMA-Factory",
        "Training configuration of LLaMA-Factory",
        ("llamafactory.yaml", "llamafactory.yml", "*.llamafactory.yaml"),
    ),
    "olmo": Entry("OLMo", "Training configuration of OLMo", ("olmo.yaml", "*.olmo.yaml", "**/OLMo/configs/**/*.yaml")),
    "deepspeed": Entry(
        "DeepSpeed", "Configuration of DeepSpeed", ("ds_config.json", "deepspeed_config.json", "*.deepspeed.json")
    ),
    "accelerate": Entry(
        "Hugging Face Accelerate",
        "Launch configuration of Accelerate",
        ("accelerate.yaml", "accelerate_config.yaml", "**/huggingface/accelerate/default_config.yaml"),
    ),
}
"""Entries by the argument of `cfglint schema`."""


def read_address() -> str:
    """Return the address of the site, with a slash at the end."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["urls"]["Documentation"]).rstrip("/") + "/"


def build_rows() -> str:
    """Return the rows of the table of schemas, with the names of files that get each."""
    return "\n".join(
        f"| {entry.title} | {', '.join(f'`{pattern}`' for pattern in entry.patterns)} |" for entry in ENTRIES.values()
    )


def build_files() -> dict[str, str]:
    """Return the schemas and the catalogue by their path below the site."""
    site = read_address()
    addresses = {name: f"{site}{FOLDER}/{name}.json" for name in ENTRIES}
    files = {f"{FOLDER}/{name}.json": _print_schema(name, site, address) for name, address in addresses.items()}
    catalog = [
        {"name": entry.title, "description": entry.description, "fileMatch": entry.patterns, "url": addresses[name]}
        for name, entry in ENTRIES.items()
    ]
    return {**files, f"{FOLDER}/catalog.json": json.dumps(catalog, indent=2) + "\n"}


def _print_schema(name: str, site: str, address: str) -> str:
    """Return a schema with its address and links to the rule pages of the site.

    A schema of a framework allows unknown names, as SchemaStore asks for: a newer release may have them.
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "cfglint.toml").write_text(f'rule-url = "{site}rules/{{code}}/"\n', encoding="utf-8")
        schema = json.loads(run_cfglint("schema", name, folder=Path(folder)))
    if name != "cfglint":
        schema = _allow_names(schema)
    head = {"$schema": schema.pop("$schema"), "$id": address}
    return json.dumps({**head, **schema}, separators=(",", ":")) + "\n"


def _allow_names(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_allow_names(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        word: _allow_names(part) for word, part in schema.items() if (word, part) != ("additionalProperties", False)
    }
