"""TOML parsing with the standard library, and a limit on dotted keys, which need quadratic time and memory."""

from __future__ import annotations

import tomllib

from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Any, Final

_MAX_PARTS: Final = 100
"""Maximum number of parts of a dotted key; real settings have far fewer."""
_SIGNS: Final = compile_on_use(r"[=\[\]{},#\n]|\.(?!\.)")


def parse(text: str) -> dict[str, Any]:
    """Parse a TOML document. Raise `ValueError` with the line in its message."""
    _check_keys(text)
    return tomllib.loads(text)


def _check_keys(text: str) -> None:
    """Raise `ValueError` for a key with too many parts.

    Counts dots between characters that end a key, so a string with many dots is rejected too.
    """
    line, parts = 1, 0
    for sign in _SIGNS.finditer(text):
        if sign[0] == ".":
            parts += 1
            if parts > _MAX_PARTS:
                raise ValueError(f"a key with more than {_MAX_PARTS} parts (at line {line})")
        else:
            parts = 0
            line += sign[0] == "\n"
