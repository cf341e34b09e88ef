"""TOML: parse with the standard library, whose time and memory are quadratic in the parts of a dotted key."""

from __future__ import annotations

import re
import tomllib

from cfglint_train.foundation.typed import Any, Final

_MAX_PARTS: Final = 100
"""Maximum parts of a dotted key; no setting has more."""
_SIGNS: Final = re.compile(r"[=\[\]{},#\n]|\.(?!\.)")


def parse(text: str) -> dict[str, Any]:
    """Parse a document; raise ValueError with the place in its message."""
    _check_keys(text)
    return tomllib.loads(text)


def _check_keys(text: str) -> None:
    """Raise ValueError for a key with too many parts, counted as dots between signs that end a key."""
    line, parts = 1, 0
    for sign in _SIGNS.finditer(text):
        if sign[0] == ".":
            parts += 1
            if parts > _MAX_PARTS:
                raise ValueError(f"a key with more than {_MAX_PARTS} parts (at line {line})")
        else:
            parts = 0
            line += sign[0] == "\n"
