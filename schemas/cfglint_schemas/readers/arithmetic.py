"""Operators and functions that cfglint evaluates in expressions of a framework's source."""

from __future__ import annotations

import ast
import operator
import sys
from collections.abc import Callable

from cfglint_train.foundation.python_arithmetic import BINARY, MAX_LENGTH, is_bounded
from cfglint_train.foundation.typed import Any, Final

_MAX_SHIFT: Final = 80

OPERATORS: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    **BINARY,
    ast.LShift: operator.lshift,
    ast.BitOr: operator.or_,
}
COMPARE: Final[dict[type[ast.cmpop], Callable[[Any, Any], Any]]] = {ast.Eq: operator.eq, ast.NotEq: operator.ne}
UNARY: Final[dict[type[ast.unaryop], Callable[[Any], Any]]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}
BUILTINS: Final[dict[str, Callable[..., Any]]] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "list": list,
    "tuple": tuple,
    "dict": dict,
    "set": set,
    "len": len,
    "max": max,
    "min": min,
    "sorted": sorted,
}
KNOWN_ATTRIBUTES: Final[dict[str, Any]] = {"sys.maxsize": sys.maxsize, "math.inf": float("inf")}


def is_unbounded(op: ast.operator, left: Any, right: Any) -> bool:
    """Return whether the result of a power, shift, sum or repetition may be huge, since the source is untrusted."""
    if isinstance(op, ast.LShift):
        return not is_bounded(op, left, right) or right > _MAX_SHIFT
    if isinstance(op, ast.Mult):
        for sequence, count in ((left, right), (right, left)):
            if isinstance(sequence, (str, list)) and isinstance(count, int):
                return len(sequence) * count > MAX_LENGTH
    if isinstance(op, ast.Add) and isinstance(left, (str, list)) and isinstance(right, (str, list)):
        return len(left) + len(right) > MAX_LENGTH
    return isinstance(op, ast.Pow) and not is_bounded(op, left, right)
