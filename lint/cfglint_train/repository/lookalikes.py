"""Unsupported training tools: identify the tool of a file that no framework recognizes.

`lookalikes.json` has groups of regular expressions for each tool and syntax. A group matches if all of its expressions
match. The first tool with a matching group wins.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from json import load

from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.repository.files import SYNTAXES

MAX_BYTES: Final = 256 * 2**10
"""Number of bytes at the start of a file that are searched."""

_FILE: Final = "lookalikes.json"

_BEGINNING: Final = compile_on_use(r"(?:\\b|\^)?([\w/-]*)(?![?*{])")
"""Pattern for the letters that every match of an expression begins with."""


class _Clue(Frozen):
    """A regular expression and the letters that its matches begin with, which are faster to search for."""

    beginning: bytes
    pattern: re.Pattern[bytes]

    def is_in(self, text: bytes) -> bool:
        """Return whether a text contains a match."""
        return self.beginning in text and self.pattern.search(text) is not None


def identify_tool(path: str, source: bytes) -> str:
    """Return the name of the tool that a file probably belongs to, or an empty string."""
    syntax = SYNTAXES.get(os.path.splitext(path)[1].lower())
    text = source[:MAX_BYTES]
    for name, group in _load_groups(syntax):
        if group[0].beginning in text and all(clue.is_in(text) for clue in group):
            return name
    return ""


def _compile_clue(expression: str) -> _Clue:
    beginning = _BEGINNING.match(expression)
    return _Clue(beginning[1].encode() if beginning else b"", re.compile(expression.encode(), re.M))


@cache
def _load_groups(syntax: str | None) -> tuple[tuple[str, tuple[_Clue, ...]], ...]:
    """Return the groups of clues for a syntax, each with its tool, in the order of the tools."""
    with open(os.path.join(os.path.dirname(__file__), _FILE), encoding="utf-8") as file:
        content: Mapping[str, Mapping[str, list[list[str]]]] = load(file)
    return tuple(
        (name, tuple(map(_compile_clue, group)))
        for name, syntaxes in content.items()
        for group in syntaxes.get(syntax or "", ())
    )
