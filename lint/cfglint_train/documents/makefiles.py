"""Makefiles: conversion of their recipes into a shell script, with the variables that have one plain value.

Every line keeps its number. A variable is kept if it is assigned exactly once, outside of conditions and targets, and
no `make NAME=...` in the repository sets it. References to it become `${NAME}`; any other reference stays unknown.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final

_LINE: Final = compile_on_use(r"(?m)^.*$")
_ASSIGNMENT: Final = compile_on_use(
    r"(?:export[ ]+|override[ ]+)?([A-Za-z_]\w*)[ ]*(\?=|:{0,3}=)[ \t]*([^#\n]*)(?:#.*)?$"
)
_ANY_ASSIGNMENT: Final = compile_on_use(r"\b([A-Za-z_]\w*)[ \t]*(?:\?|\+|!|:{0,3})=|^(?:-?include|define)[ \t]+(\w*)")
_PLAIN: Final = compile_on_use(r"(?:[\w./:=,@%+ -]|\$[({]\w+[)}])*")
_BLOCK_START: Final = compile_on_use(r"(?:ifn?(?:eq|def)|define)\b")
_BLOCK_END: Final = compile_on_use(r"(?:endif|endef)\b")
_REFERENCE: Final = compile_on_use(r"\$(?:\$|\((\w+)\)|\{(\w+)\}|([@<^*?+|%]))")
_PREFIX: Final = compile_on_use(r"^\t[ \t]*[@+-]+")
MAKE_COMMAND: Final = compile_on_use(r"\bmake\b([^\n;&|]*)")
"""Pattern of a `make` command, which may set variables of a Makefile; the group holds its arguments."""
MAKE_VARIABLE: Final = compile_on_use(r"(?<![\w-])([A-Za-z_]\w*)=")
"""Pattern of a variable assignment among the arguments of `make`."""


def extract_commands(text: str, external: Collection[str]) -> str:
    """Return the recipes of a Makefile as a script.

    `external` are the variables that `make` commands in the repository set.
    """
    values = _find_plain_variables(text, external)
    lines = []
    for line in _LINE.findall(text):
        if line.startswith("\t"):
            lines.append(_PREFIX.sub(lambda part: " " * len(part[0]), _convert_references(line)))
        else:
            assignment = _ASSIGNMENT.match(line)
            is_plain = assignment is not None and values.get(assignment[1]) == assignment[3].strip()
            lines.append(
                f'{assignment[1]}="{_convert_references(values[assignment[1]])}"'
                if assignment is not None and is_plain
                else ""
            )
    return "\n".join(lines)


def _find_plain_variables(text: str, external: Collection[str]) -> dict[str, str]:
    """Return the variables that have exactly one assignment, with a plain value and outside of conditions."""
    values: dict[str, str] = {}
    dropped, depth = set(external), 0
    for line in _LINE.findall(text):
        if line.startswith("\t"):
            continue
        stripped = line.strip()
        depth += (_BLOCK_START.match(stripped) is not None) - (_BLOCK_END.match(stripped) is not None)
        assignment = _ASSIGNMENT.match(line)
        if (
            assignment is not None
            and not depth
            and assignment[1] not in values
            and _PLAIN.fullmatch(assignment[3].strip())
        ):
            values[assignment[1]] = assignment[3].strip()
        else:
            dropped.update(name[1] or name[2] for name in _ANY_ASSIGNMENT.finditer(line))
    return {name: value for name, value in values.items() if name not in dropped}


def _convert_references(text: str) -> str:
    """Rewrite make's references as shell references of the same length; `$@` and similar stay unknown."""

    def convert(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return " $"
        name = match[1] or match[2]
        return f"${{{name}}}" if name else "$9"

    return _REFERENCE.sub(convert, text)
