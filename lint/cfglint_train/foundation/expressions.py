"""Regular expressions of the program, compiled on first use: a run needs few of them, and each takes 0.1 to 5 ms."""

from __future__ import annotations

import re

from cfglint_train.foundation.typed import Any, AnyStr

_METHODS = ("findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn")


class _Expression:
    """A stand-in for a compiled expression, which takes over the methods of the real one once a method is needed."""

    __slots__ = ("flags", "pattern", *_METHODS)

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        """Store what is to be compiled."""
        self.pattern = pattern
        self.flags = flags

    def __getattr__(self, name: str) -> Any:
        """Compile the expression, because `name` is not stored yet."""
        if name not in _METHODS:
            raise AttributeError(name)
        compiled = re.compile(self.pattern, self.flags)
        for method in _METHODS:
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)


def compile_on_use(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a regular expression that is compiled when one of its methods is first needed.

    It has `pattern`, `flags` and the methods of a compiled expression. An invalid expression raises `re.error` then.
    """
    expression: Any = _Expression(pattern, flags)
    typed: re.Pattern[AnyStr] = expression
    return typed
