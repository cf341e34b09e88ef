"""Arithmetic on the constants of a program that is read but never run, with limits that keep expressions cheap."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

from cfglint_train.foundation.typed import Any, Final

MAX_NUMBER: Final = 2**80
"""Maximum absolute value of an operand."""
MAX_LENGTH: Final = 4096
"""Maximum number of characters or items in a computed value."""

BINARY: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


def is_bounded(op: ast.operator, left: Any, right: Any) -> bool:
    """Return whether the result of an operation on two numbers or two strings is small enough to compute."""
    numbers = isinstance(left, (int, float)) and isinstance(right, (int, float))
    if isinstance(op, ast.Pow):
        return numbers and abs(right) <= 80 and abs(left) <= 1 << 20 and abs(float(left)) ** min(abs(right), 15) < 1e90
    if isinstance(op, ast.Add) and isinstance(left, str) and isinstance(right, str):
        return len(left) + len(right) <= MAX_LENGTH
    return numbers and abs(left) <= MAX_NUMBER and abs(right) <= MAX_NUMBER
