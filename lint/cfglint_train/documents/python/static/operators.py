"""Operators on known values: arithmetic, comparisons, conditions."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

from cfglint_train.documents.document import Sequence, Unknown
from cfglint_train.documents.python.static.evaluator import Evaluator
from cfglint_train.documents.python.tree import Record, Step, Target, Value
from cfglint_train.documents.python.values import Scope, Several, either, elsewhere, hedged, hinging, truth
from cfglint_train.foundation.python_arithmetic import BINARY, is_bounded
from cfglint_train.foundation.typed import Any, Final

_COMPARE: Final[Mapping[type, Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def binary(evaluator: Evaluator, op: ast.operator, left: Any, right: Any, node: ast.expr) -> Value:
    """What an operator makes of two values; of a product with one number written out, that number can be changed."""
    span = evaluator.document.span(node)
    if not isinstance(left, Value) or not isinstance(right, Value):
        return evaluator.unknown(node)
    how = (*left.how, *right.how)
    for side in (left, right):
        if isinstance(side.value, Unknown):
            return Value(span, side.value.derived if isinstance(side.value, Several) else side.value, how)
    compute = BINARY.get(type(op))
    if compute is None or not is_bounded(op, left.value, right.value):
        return evaluator.unknown(node)
    try:
        result = compute(left.value, right.value)
    except (TypeError, ValueError, ArithmeticError):
        return evaluator.unknown(node)
    if not isinstance(result, (bool, int, float, str)):
        return evaluator.unknown(node)
    targets: tuple[Target, ...] = ()
    if isinstance(op, ast.Mult) and isinstance(node, ast.BinOp):
        for side, other in ((left, right), (right, left)):
            own = side.targets[0] if side.targets and not side.how else None
            plain = own is not None and not own.unit and own.span == side.span
            if plain and type(side.value) is int and type(other.value) is int and other.value > 0:
                targets += (Target(side.span, other.value),)
    if not how and isinstance(node, ast.BinOp):
        targets += (Target(span),)
    return Value(span, result, how, targets)


def unary(evaluator: Evaluator, node: ast.UnaryOp, scope: Scope) -> Value:
    """What `not`, `-` and `+` make of a value."""
    operand = evaluator.value(node.operand, scope)
    span = evaluator.document.span(node)
    if isinstance(node.op, ast.Not):
        holds = truth(operand)
        return evaluator.unknown(node) if holds is None else Value(span, not holds, getattr(operand, "how", ()))
    if isinstance(operand, Value) and type(operand.value) in (int, float):
        if isinstance(node.op, ast.USub):
            return Value(span, -operand.value, operand.how, () if operand.how else (Target(span),))
        if isinstance(node.op, ast.UAdd):
            return Value(span, operand.value, operand.how, () if operand.how else (Target(span),))
    return evaluator.unknown(node)


def boolean(evaluator: Evaluator, node: ast.BoolOp, scope: Scope) -> Any:
    """What `and` and `or` choose, as far as the truth of the parts is known."""
    how: tuple[Step, ...] = ()
    for part in node.values:
        value = evaluator.value(part, scope)
        holds = truth(value)
        last = part is node.values[-1]
        if holds is None and not last:
            # `options.length or LENGTH`, of whose options nothing is known: what holds if none is given.
            following = evaluator.value(node.values[-1], scope)
            if isinstance(node.op, ast.Or) and len(node.values) == 2:
                step = evaluator.condition(f"{evaluator.document.cut(evaluator.document.span(part))} or ...", part)
                return hedged(elsewhere(following), step)
            return evaluator.unknown(node)
        if last or holds is isinstance(node.op, ast.Or):
            if isinstance(value, Value):
                return Value(evaluator.document.span(node), value.value, (*how, *value.how))
            return value
        how += getattr(value, "how", ())
    return evaluator.unknown(node)


def compare(evaluator: Evaluator, node: ast.Compare, scope: Scope) -> Value:
    """What a comparison of two values yields."""
    left = evaluator.value(node.left, scope)
    sides = [evaluator.value(part, scope) for part in node.comparators]
    if len(sides) != 1:
        return evaluator.unknown(node)
    right, op = sides[0], node.ops[0]
    span = evaluator.document.span(node)
    if isinstance(op, (ast.In, ast.NotIn)) and isinstance(right, Sequence):
        return _member(evaluator, op, left, right.items, node)
    if isinstance(op, (ast.Is, ast.IsNot)) and isinstance(right, Value) and right.value is None:
        if isinstance(left, (Record, Sequence)) and not getattr(left, "implicit", False):
            return Value(span, isinstance(op, ast.IsNot))
        if isinstance(left, Value) and not isinstance(left.value, Unknown) and not hinging(left):
            return Value(span, (left.value is None) is isinstance(op, ast.Is), left.how)
        return evaluator.unknown(node)
    order = _COMPARE.get(type(op))
    if order is None or not isinstance(left, Value) or not isinstance(right, Value):
        return evaluator.unknown(node)
    if isinstance(left.value, Several) and not hinging(left):
        decided = _of_several(op, right.value)
        return evaluator.unknown(node) if decided is None or hinging(right) else Value(span, decided)
    if isinstance(left.value, Unknown) or isinstance(right.value, Unknown) or hinging(left) or hinging(right):
        return evaluator.unknown(node)
    try:
        return Value(span, bool(order(left.value, right.value)), (*left.how, *right.how))
    except TypeError:
        return evaluator.unknown(node)


def _member(evaluator: Evaluator, op: ast.cmpop, left: Any, items: list[Any], node: ast.Compare) -> Value:
    """Whether a value is one of some others, where all of them are known."""
    parts = [left, *items]
    known = all(isinstance(one, Value) and not isinstance(one.value, Unknown) and not hinging(one) for one in parts)
    if not known:
        return evaluator.unknown(node)
    found = any(type(one.value) is type(left.value) and one.value == left.value for one in items)
    return Value(evaluator.document.span(node), found is isinstance(op, ast.In), left.how)


def _of_several(op: ast.cmpop, other: Any) -> bool | None:
    """What comparing 2 or more with a number yields; None where it depends on how many they are."""
    if type(other) is not int:
        return None
    if isinstance(op, (ast.Eq, ast.NotEq)):
        return isinstance(op, ast.NotEq) if other < 2 else None
    if isinstance(op, (ast.Gt, ast.LtE)):
        return isinstance(op, ast.Gt) if other < 2 else None
    return isinstance(op, ast.GtE) if other <= 2 else None


def choice(evaluator: Evaluator, node: ast.IfExp, scope: Scope) -> Any:
    """What a conditional expression chooses; `either` of its values where the condition cannot be decided."""
    test = truth(evaluator.value(node.test, scope))
    if test is not None:
        chosen = evaluator.value(node.body if test else node.orelse, scope)
        return elsewhere(chosen)
    step = evaluator.named_condition("if", node.test)
    evaluator.undecided.append(step)
    first = evaluator.value(node.body, scope)
    other = evaluator.value(node.orelse, scope)
    evaluator.undecided.pop()
    return hedged(either(first, other), step)
