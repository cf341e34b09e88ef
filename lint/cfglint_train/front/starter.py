"""Minimal configurations for `cfglint estimate --model`.

The text comes from the framework's `starter.txt`. A line may end with the words that it applies to (`  #? lora qlora`;
`zero&bf16` requires both). The framework's lenses then write the plan fields.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Set

from cfglint_train.documents.document import CannotEdit
from cfglint_train.findings.draft import write_fix
from cfglint_train.findings.finding import Fix
from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.framework import load
from cfglint_train.frameworks.registry import list_frameworks
from cfglint_train.plan.names import Field
from cfglint_train.runs.workspace import Workspace

METHODS: Final = ("full", "lora", "qlora", "freeze")
_FILE: Final = "starter.txt"
_MARKER: Final = "  #? "
FILL_IN: Final = "# fill in: "
"""Comment before a value that only the user knows."""


def list_starter_frameworks() -> tuple[str, ...]:
    """Return the frameworks that have a starter text."""
    return tuple(
        name for name, manifest in list_frameworks().items() if os.path.exists(os.path.join(manifest.folder, _FILE))
    )


def list_methods(framework: str) -> tuple[str, ...]:
    """Return the methods that the starter text of a framework supports."""
    marks = {word for line in _read_lines(framework) for word in line.partition(_MARKER)[2].split()}
    return tuple(word for word in METHODS if word in marks)


def can_write(framework: str, field: Field) -> bool:
    """Return whether a framework has a writable key for a plan field."""
    definition = load(framework)
    return any(field in lens.fields for lens in definition.lenses) and definition.explain_unwritable(field) is None


def build_skeleton(framework: str, words: Set[str], path: str, facts: Mapping[str, str]) -> bytes:
    """Return the starter lines that apply to `words`, after a pragma with the facts about the cluster."""
    from shlex import quote

    pragma = " ".join(f'{name}="{value}"' if " " in value else f"{name}={value}" for name, value in facts.items())
    lines = [f"# cfglint: {pragma}"] if pragma else []
    for line in _read_lines(framework):
        text, _, marks = line.partition(_MARKER)
        if not marks or any(words >= {*mark.split("&")} for mark in marks.split()):
            lines.append(text.replace("{file}", quote(path)))
    return "".join(f"{line}\n" for line in lines).encode()


def fill_plan_fields(workspace: Workspace, path: str, changes: Mapping[Field, Any]) -> bytes:
    """Return the text of a file with new plan fields. Raise UsageError if the framework cannot express a field."""
    (config,) = workspace.read_configs(path)
    run = workspace.resolve_run(config)
    try:
        sources = write_fix(run, Fix("safe", "", changes)).render_sources()
    except CannotEdit as refusal:
        raise UsageError(f"{run.framework.title} cannot express this: {refusal}") from None
    return sources.get(path, config.document.source)


def find_placeholders(text: bytes) -> list[tuple[int, str]]:
    """Return the lines that the user has to fill in, with their line numbers."""
    return [(number, line.strip()) for number, line in enumerate(text.decode().splitlines(), 1) if FILL_IN in line]


def _read_lines(framework: str) -> list[str]:
    with open(os.path.join(list_frameworks()[framework].folder, _FILE), encoding="utf-8") as file:
        return file.read().splitlines()
