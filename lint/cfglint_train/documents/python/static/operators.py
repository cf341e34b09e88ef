"""Operators on known values: arithmetic, comparisons and conditions."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

from cfglint_train.documents.document import Sequence, Unknown
from cfglint_train.documents.python.static.evaluator import Evaluator
from cfglint_train.documents.python.static.mappings import merge_mapping
from cfglint_train.documents.python.static.settings_files import join_paths
from cfglint_train.documents.python.tree import Record, Step, Target, Value
from cfglint_train.documents.python.values import (
    AtLeastTwo,
    Scope,
    choose_value,
    drop_targets,
    evaluate_truth,
    is_conditional,
    mark_conditional,
)
from cfglint_train.foundation.python_arithmetic import BINARY, is_bounded
from cfglint_train.foundation.typed import Any, Final

_COMPARISONS: Final[Mapping[type, Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def evaluate_binary(evaluator: Evaluator, op: ast.operator, left: Any, right: Any, node: ast.expr) -> Value | Record:
    """Return the result of a binary operator.

    If a factor of a product is an integer literal, a fix can change that literal.
    """
    span = evaluator.document.find_span(node)
    if isinstance(op, ast.BitOr) and isinstance(left, Record) and left.call is None and not left.implicit:
        merged = evaluator.copy_record(left)
        merge_mapping(evaluator, merged, right, node)
        return merged
    if not isinstance(left, Value) or not isinstance(right, Value):
        return evaluator.build_unknown(node)
    if isinstance(op, ast.Div) and (path := join_paths(evaluator, left, right, node)) is not None:
        return path
    how = (*left.how, *right.how)
    for side in (left, right):
        if isinstance(side.value, Unknown):
            return Value(span, side.value.derived if isinstance(side.value, AtLeastTwo) else side.value, how)
    compute = BINARY.get(type(op))
    if compute is None or not is_bounded(op, left.value, right.value):
        return evaluator.build_unknown(node)
    try:
        result = compute(left.value, right.value)
    except (TypeError, ValueError, ArithmeticError):
        return evaluator.build_unknown(node)
    if not isinstance(result, (bool, int, float, str)):
        return evaluator.build_unknown(node)
    targets: tuple[Target, ...] = ()
    if isinstance(op, ast.Mult) and isinstance(node, ast.BinOp):
        for side, other in ((left, right), (right, left)):
            target = side.targets[0] if side.targets and not side.how else None
            is_literal = target is not None and not target.unit and target.span == side.span
            if is_literal and type(side.value) is int and type(other.value) is int and other.value > 0:
                targets += (Target(side.span, other.value),)
    if not how and isinstance(node, ast.BinOp):
        targets += (Target(span),)
    return Value(span, result, how, targets)


def evaluate_unary(evaluator: Evaluator, node: ast.UnaryOp, scope: Scope) -> Value:
    """Return the result of `not`, `-` or `+`."""
    operand = evaluator.evaluate(node.operand, scope)
    span = evaluator.document.find_span(node)
    if isinstance(node.op, ast.Not):
        holds = evaluate_truth(operand)
        return evaluator.build_unknown(node) if holds is None else Value(span, not holds, getattr(operand, "how", ()))
    if isinstance(operand, Value) and type(operand.value) in (int, float):
        if isinstance(node.op, ast.USub):
            return Value(span, -operand.value, operand.how, () if operand.how else (Target(span),))
        if isinstance(node.op, ast.UAdd):
            return Value(span, operand.value, operand.how, () if operand.how else (Target(span),))
    return evaluator.build_unknown(node)


def evaluate_boolean(evaluator: Evaluator, node: ast.BoolOp, scope: Scope) -> Any:
    """Return the operand that `and` or `or` selects, as far as the truth values of the operands are known."""
    how: tuple[Step, ...] = ()
    for part in node.values:
        value = evaluator.evaluate(part, scope)
        holds = evaluate_truth(value)
        last = part is node.values[-1]
        if holds is None and not last:
            # In `options.length or LENGTH` with an unknown option, assume that the option is not set.
            alternative = evaluator.evaluate(node.values[-1], scope)
            if isinstance(node.op, ast.Or) and len(node.values) == 2:
                step = evaluator.build_condition(
                    f"{evaluator.document.get_short_text(evaluator.document.find_span(part))} or ...", part
                )
                return mark_conditional(drop_targets(alternative), step)
            return evaluator.build_unknown(node)
        if last or holds is isinstance(node.op, ast.Or):
            if isinstance(value, Value):
                return Value(evaluator.document.find_span(node), value.value, (*how, *value.how))
            return value
        how += getattr(value, "how", ())
    return evaluator.build_unknown(node)


def evaluate_comparison(evaluator: Evaluator, node: ast.Compare, scope: Scope) -> Value:
    """Return the result of a comparison, unknown for a chained comparison."""
    left = evaluator.evaluate(node.left, scope)
    sides = [evaluator.evaluate(part, scope) for part in node.comparators]
    if len(sides) != 1:
        return evaluator.build_unknown(node)
    right, op = sides[0], node.ops[0]
    span = evaluator.document.find_span(node)
    if isinstance(op, (ast.In, ast.NotIn)) and isinstance(right, Sequence):
        return _evaluate_membership(evaluator, op, left, right.items, node)
    if isinstance(op, (ast.In, ast.NotIn)) and isinstance(right, Record) and right.call is None:
        return _evaluate_key_membership(evaluator, op, left, right, node)
    if isinstance(op, (ast.Is, ast.IsNot)) and isinstance(right, Value) and right.value is None:
        if isinstance(left, (Record, Sequence)) and not getattr(left, "implicit", False):
            return Value(span, isinstance(op, ast.IsNot))
        if isinstance(left, Value) and not isinstance(left.value, Unknown) and not is_conditional(left):
            return Value(span, (left.value is None) is isinstance(op, ast.Is), left.how)
        return evaluator.build_unknown(node)
    operation = _COMPARISONS.get(type(op))
    if operation is None or not isinstance(left, Value) or not isinstance(right, Value):
        return evaluator.build_unknown(node)
    if isinstance(left.value, AtLeastTwo) and not is_conditional(left):
        decided = _compare_at_least_two(op, right.value)
        return evaluator.build_unknown(node) if decided is None or is_conditional(right) else Value(span, decided)
    if (
        isinstance(left.value, Unknown)
        or isinstance(right.value, Unknown)
        or is_conditional(left)
        or is_conditional(right)
    ):
        return evaluator.build_unknown(node)
    try:
        return Value(span, bool(operation(left.value, right.value)), (*left.how, *right.how))
    except TypeError:
        return evaluator.build_unknown(node)


def _evaluate_membership(evaluator: Evaluator, op: ast.cmpop, left: Any, items: list[Any], node: ast.Compare) -> Value:
    """Return whether a value is in a list; unknown unless the value and all items are known."""
    parts = [left, *items]
    is_known = all(
        isinstance(part, Value) and not isinstance(part.value, Unknown) and not is_conditional(part) for part in parts
    )
    if not is_known:
        return evaluator.build_unknown(node)
    is_member = any(type(part.value) is type(left.value) and part.value == left.value for part in items)
    return Value(evaluator.document.find_span(node), is_member is isinstance(op, ast.In), left.how)


def _evaluate_key_membership(evaluator: Evaluator, op: ast.cmpop, key: Any, owner: Record, node: ast.Compare) -> Value:
    """Return whether a dictionary has a key; unknown unless the key and all keys of the dictionary are known."""
    if not isinstance(key, Value) or not isinstance(key.value, str) or is_conditional(key) or is_conditional(owner):
        return evaluator.build_unknown(node)
    present = owner.get(key.value)
    if owner.open or owner.implicit or (present is not None and is_conditional(present.value)):
        return evaluator.build_unknown(node)
    how = (*key.how, *owner.how)
    return Value(evaluator.document.find_span(node), (present is not None) is isinstance(op, ast.In), how)


def _compare_at_least_two(op: ast.cmpop, other: Any) -> bool | None:
    """Return the result of comparing a number of at least 2, or None if it depends on the exact number."""
    if type(other) is not int:
        return None
    if isinstance(op, (ast.Eq, ast.NotEq)):
        return isinstance(op, ast.NotEq) if other < 2 else None
    if isinstance(op, (ast.Gt, ast.LtE)):
        return isinstance(op, ast.Gt) if other < 2 else None
    return isinstance(op, ast.GtE) if other <= 2 else None


def evaluate_conditional(evaluator: Evaluator, node: ast.IfExp, scope: Scope) -> Any:
    """Return the result of a conditional expression.

    If the condition is undecided, return `choose_value` of both branches.
    """
    test = evaluate_truth(evaluator.evaluate(node.test, scope))
    if test is not None:
        chosen = evaluator.evaluate(node.body if test else node.orelse, scope)
        return drop_targets(chosen)
    step = evaluator.build_named_condition("if", node.test)
    evaluator.open_conditions.append(step)
    first = evaluator.evaluate(node.body, scope)
    other = evaluator.evaluate(node.orelse, scope)
    evaluator.open_conditions.pop()
    return mark_conditional(choose_value(first, other), step)
