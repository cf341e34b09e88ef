"""Reads TOML with the standard library, whose time and memory grow with the square of a dotted key's parts."""

from __future__ import annotations

import re
import tomllib

from cfglint_train.foundation.typed import Any, Final

_MAX_PARTS: Final = 100
"""Parts of a dotted key; more is no setting."""
_SIGNS: Final = re.compile(r"[=\[\]{},#\n]|\.(?!\.)")


def parse(text: str) -> dict[str, Any]:
    """Parse a document. Raises ValueError with the place in its message."""
    _check_keys(text)
    return tomllib.loads(text)


def _check_keys(text: str) -> None:
    """Raise ValueError for a key of more parts than any has: dots between two of the signs that end a key."""
    line, parts = 1, 0
    for sign in _SIGNS.finditer(text):
        if sign[0] == ".":
            parts += 1
            if parts > _MAX_PARTS:
                raise ValueError(f"a key of more than {_MAX_PARTS} parts (at line {line})")
        else:
            parts = 0
            line += sign[0] == "\n"
