"""The commands of a justfile as a script: its recipes, with the variables that it gives a plain text.

Every line keeps its number. A variable counts where one assignment decides it and no recipe has a parameter of its
name; `{{name}}` becomes `${name}`, and any other expression stays unknown.

Source: just's manual (assignments with `:=`, strings, recipe parameters, `@` and `-` before a command).
"""

from __future__ import annotations

import re

from cfglint_train.foundation.typed import Final

_ASSIGNED: Final = re.compile(
    r"(?:export[ ]+)?([A-Za-z_][\w-]*)[ ]*:=[ ]*(?:\"([^\"\\{$`]*)\"|'([^'{$`]*)')[ ]*(?:#.*)?$"
)
_ANY: Final = re.compile(r"(?:export[ ]+)?([A-Za-z_][\w-]*)[ ]*:=")
_RECIPE: Final = re.compile(r"@?[A-Za-z_][\w-]*([^:\n]*):(?!=)")
_EXPRESSION: Final = re.compile(r"\{\{[ ]*(?:([A-Za-z_]\w*)|[^}\n]*?)[ ]*\}\}")
_PREFIX: Final = re.compile(r"^[ \t]+[@-]+(?=\w)")


def commands(text: str) -> str:
    """The recipes of a justfile."""
    lines = text.split("\n")
    parameters = {
        name for line in lines if (one := _RECIPE.match(line)) for name in re.findall(r"[A-Za-z_]\w*", one[1])
    }
    assigned = [one[1] for line in lines if (one := _ANY.match(line))]
    kept = {name for name in assigned if assigned.count(name) == 1} - parameters
    return "\n".join(_as_shell(line, kept) for line in lines)


def _as_shell(line: str, kept: set[str]) -> str:
    if line[:1] in (" ", "\t"):
        plain = _PREFIX.sub(lambda part: " " * len(part[0]), line)
        return _EXPRESSION.sub(lambda one: f"${{{one[1]}}}" if one[1] in kept else "$9", plain)
    assigned = _ASSIGNED.match(line)
    return f'{assigned[1]}="{assigned[2] or assigned[3] or ""}"' if assigned is not None and assigned[1] in kept else ""
