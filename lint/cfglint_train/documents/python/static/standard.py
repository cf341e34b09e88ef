"""Standard functions that a walk computes, replaces with their argument, or treats as the end of the program."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping

from cfglint_train.documents.document import Unknown
from cfglint_train.documents.python.static.evaluator import Evaluator
from cfglint_train.documents.python.tree import Target, Value
from cfglint_train.documents.python.values import Arguments, AtLeastTwo
from cfglint_train.foundation.typed import Any, Final

FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
    "abs": abs,
    "min": min,
    "max": max,
    "round": round,
    "math.ceil": math.ceil,
    "math.floor": math.floor,
    "math.sqrt": math.sqrt,
    "math.log2": math.log2,
}
TRANSPARENT: Final = frozenset(("typing.cast", "copy.copy", "copy.deepcopy"))
EXITS: Final = frozenset(("sys.exit", "os._exit", "exit", "quit"))


def compute_builtin(evaluator: Evaluator, name: str, arguments: Arguments, node: ast.Call) -> Value:
    """Return the result of a function in `FUNCTIONS`, unknown unless all arguments are known."""
    values = arguments.positional
    span = evaluator.document.find_span(node)
    if not values or not all(isinstance(value, Value) for value in values) or arguments.keywords:
        return evaluator.build_unknown(node)
    how = tuple(step for value in values for step in value.how)
    unknown = next((value.value for value in values if isinstance(value.value, Unknown)), None)
    if unknown is not None:
        return Value(span, unknown.derived if isinstance(unknown, AtLeastTwo) else unknown, how)
    try:
        result = FUNCTIONS[name](*(value.value for value in values))
    except (TypeError, ValueError, ArithmeticError):
        return evaluator.build_unknown(node)
    is_literal = len(values) == 1 and not how and name in ("int", "float")
    return Value(span, result, how, (Target(span),) if is_literal else ())


def is_exit(node: ast.stmt) -> bool:
    """Return whether a statement is a call that ends the program."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    function = node.value.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return f"{function.value.id}.{function.attr}" in EXITS
    return isinstance(function, ast.Name) and function.id in EXITS
