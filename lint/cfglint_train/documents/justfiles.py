"""Justfiles: conversion of their recipes into a shell script, with the variables that have a plain string value.

Every line keeps its number. A variable is kept if it is assigned exactly once and no recipe has a parameter of that
name. `{{name}}` becomes `${name}`; any other expression stays unknown.

Source: just's manual (assignments with `:=`, strings, recipe parameters, `@` and `-` before a command).
"""

from __future__ import annotations

import re

from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final

_ASSIGNMENT: Final = compile_on_use(
    r"(?:export[ ]+)?([A-Za-z_][\w-]*)[ ]*:=[ ]*(?:\"([^\"\\{$`]*)\"|'([^'{$`]*)')[ ]*(?:#.*)?$"
)
_ANY_ASSIGNMENT: Final = compile_on_use(r"(?:export[ ]+)?([A-Za-z_][\w-]*)[ ]*:=")
_RECIPE: Final = compile_on_use(r"@?[A-Za-z_][\w-]*([^:\n]*):(?!=)")
_EXPRESSION: Final = compile_on_use(r"\{\{[ ]*(?:([A-Za-z_]\w*)|[^}\n]*?)[ ]*\}\}")
_PREFIX: Final = compile_on_use(r"^[ \t]+[@-]+(?=\w)")


def extract_commands(text: str) -> str:
    """Return the recipes of a justfile as a script."""
    lines = text.split("\n")
    parameters = {
        name for line in lines if (match := _RECIPE.match(line)) for name in re.findall(r"[A-Za-z_]\w*", match[1])
    }
    assigned = [match[1] for line in lines if (match := _ANY_ASSIGNMENT.match(line))]
    constants = {name for name in assigned if assigned.count(name) == 1} - parameters
    return "\n".join(_convert_line(line, constants) for line in lines)


def _convert_line(line: str, constants: set[str]) -> str:
    if line[:1] in (" ", "\t"):
        command = _PREFIX.sub(lambda part: " " * len(part[0]), line)
        return _EXPRESSION.sub(lambda match: f"${{{match[1]}}}" if match[1] in constants else "$9", command)
    assignment = _ASSIGNMENT.match(line)
    return (
        f'{assignment[1]}="{assignment[2] or assignment[3] or ""}"'
        if assignment is not None and assignment[1] in constants
        else ""
    )
