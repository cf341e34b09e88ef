"""The commands of a Makefile as a script: its recipes, with the variables that it gives one plain value.

Every line keeps its number. A variable counts where one assignment outside of conditions and targets decides it and no
`make NAME=...` of the repository sets it; references to it become `${NAME}`, and any other stays unknown.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from cfglint_train.foundation.typed import Final

_LINE: Final = re.compile(r"(?m)^.*$")
_ASSIGNED: Final = re.compile(r"(?:export[ ]+|override[ ]+)?([A-Za-z_]\w*)[ ]*(\?=|:{0,3}=)[ \t]*([^#\n]*)(?:#.*)?$")
_ANY: Final = re.compile(r"\b([A-Za-z_]\w*)[ \t]*(?:\?|\+|!|:{0,3})=|^(?:-?include|define)[ \t]+(\w*)")
_PLAIN: Final = re.compile(r"(?:[\w./:=,@%+ -]|\$[({]\w+[)}])*")
_OPENS: Final = re.compile(r"(?:ifn?(?:eq|def)|define)\b")
_CLOSES: Final = re.compile(r"(?:endif|endef)\b")
_REFERENCE: Final = re.compile(r"\$(?:\$|\((\w+)\)|\{(\w+)\}|([@<^*?+|%]))")
_PREFIX: Final = re.compile(r"^\t[ \t]*[@+-]+")
SETS: Final = re.compile(r"\bmake\b([^\n;&|]*)")
"""A command that may set variables of a Makefile: its words."""
SET: Final = re.compile(r"(?<![\w-])([A-Za-z_]\w*)=")
"""A variable among the words of `make`."""


def commands(text: str, outside: Collection[str]) -> str:
    """The recipes of a Makefile. `outside`: variables that are set where `make` is called."""
    plain = _plain(text, outside)
    lines = []
    for line in _LINE.findall(text):
        if line.startswith("\t"):
            lines.append(_PREFIX.sub(lambda part: " " * len(part[0]), _as_shell(line)))
        else:
            one = _ASSIGNED.match(line)
            kept = one is not None and plain.get(one[1]) == one[3].strip()
            lines.append(f'{one[1]}="{_as_shell(plain[one[1]])}"' if one is not None and kept else "")
    return "\n".join(lines)


def _plain(text: str, outside: Collection[str]) -> dict[str, str]:
    """The variables with one assignment that always holds, each with its value."""
    found: dict[str, str] = {}
    dropped, depth = set(outside), 0
    for line in _LINE.findall(text):
        if line.startswith("\t"):
            continue
        bare = line.strip()
        depth += (_OPENS.match(bare) is not None) - (_CLOSES.match(bare) is not None)
        one = _ASSIGNED.match(line)
        if one is not None and not depth and one[1] not in found and _PLAIN.fullmatch(one[3].strip()):
            found[one[1]] = one[3].strip()
        else:
            dropped.update(name[1] or name[2] for name in _ANY.finditer(line))
    return {name: value for name, value in found.items() if name not in dropped}


def _as_shell(text: str) -> str:
    """References of make as those of a shell, of the same length; what `$@` and its like are is unknown."""

    def reference(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return " $"
        name = found[1] or found[2]
        return f"${{{name}}}" if name else "$9"

    return _REFERENCE.sub(reference, text)
