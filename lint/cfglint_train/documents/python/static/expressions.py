"""Evaluation of expressions, by kind of expression."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from cfglint_train.documents.document import Entry, Scalar, Sequence, Unknown
from cfglint_train.documents.python.static.assignment import assign_target
from cfglint_train.documents.python.static.calls import evaluate_call
from cfglint_train.documents.python.static.evaluator import Evaluator
from cfglint_train.documents.python.static.mappings import REMOVING_METHODS, doubt_keys, forget_keys, merge_mapping
from cfglint_train.documents.python.static.names import evaluate_attribute, evaluate_name, evaluate_subscript
from cfglint_train.documents.python.static.operators import (
    evaluate_binary,
    evaluate_boolean,
    evaluate_comparison,
    evaluate_conditional,
    evaluate_unary,
)
from cfglint_train.documents.python.tree import Record, Step, Target, Value
from cfglint_train.documents.python.values import Class, Foreign, Function, ParsedOptions, Partial, Scope
from cfglint_train.foundation.python_arithmetic import MAX_LENGTH, MAX_NUMBER
from cfglint_train.foundation.typed import Any, Final


def evaluate_expression(evaluator: Evaluator, node: ast.expr, scope: Scope) -> Any:
    """Return the value of an expression, unknown for an unsupported kind."""
    kind = _KINDS.get(type(node))
    return evaluator.build_unknown(node) if kind is None else kind(evaluator, node, scope)


def _evaluate_constant(evaluator: Evaluator, node: ast.Constant, scope: Scope) -> Value:
    span = evaluator.document.find_span(node)
    huge = isinstance(node.value, int) and abs(node.value) > MAX_NUMBER
    if node.value is None or (isinstance(node.value, (bool, int, float, str)) and not huge):
        return Value(span, node.value, targets=(Target(span),))
    return evaluator.build_unknown(node)


def _evaluate_operation(evaluator: Evaluator, node: ast.BinOp, scope: Scope) -> Value | Record:
    return evaluate_binary(
        evaluator, node.op, evaluator.evaluate(node.left, scope), evaluator.evaluate(node.right, scope), node
    )


def _evaluate_sequence(evaluator: Evaluator, node: ast.List | ast.Tuple, scope: Scope) -> Sequence | Value:
    items = [evaluator.evaluate(item, scope) for item in node.elts]
    if any(isinstance(item, ast.Starred) for item in node.elts):
        return evaluator.build_unknown(node)
    # Items may also be namespaces or functions, which are not tree nodes, so that unpacking can assign them.
    nodes = [_build_item(evaluator, value, item) for value, item in zip(items, node.elts)]
    return Sequence(evaluator.document.find_span(node), nodes, True)


def _build_item(evaluator: Evaluator, value: Any, expression: ast.expr) -> Any:
    return (
        value
        if isinstance(value, (ParsedOptions, Foreign, Function, Partial, Class))
        else evaluator.build_node(value, expression)
    )


def _evaluate_dict(evaluator: Evaluator, node: ast.Dict, scope: Scope) -> Record:
    record = Record(evaluator.document.find_span(node), [])
    record.sealed = "it is a dictionary"
    record.level = len(evaluator.open_conditions)
    for key, item in zip(node.keys, node.values):
        value = evaluator.evaluate(item, scope)
        if key is None:
            merge_mapping(evaluator, record, value, item)
            continue
        name = evaluator.evaluate(key, scope)
        if isinstance(name, Value) and isinstance(name.value, str):
            key_node = Scalar(evaluator.document.find_span(key), name.value, value=name.value)
            evaluator.put(record, Entry(key_node, evaluator.build_node(value, item)))
            evaluator.keep_object(record, name.value, value)
        else:
            doubt_keys(evaluator, record, key, "some of its keys are computed")
    record.assigned_keys.clear()
    return record


def _evaluate_fstring(evaluator: Evaluator, node: ast.JoinedStr, scope: Scope) -> Value:
    text = ""
    how: tuple[Step, ...] = ()
    for part in node.values:
        value = (
            evaluator.evaluate(part.value, scope)
            if isinstance(part, ast.FormattedValue)
            else evaluator.evaluate(part, scope)
        )
        is_plain = isinstance(part, ast.Constant) or (
            isinstance(part, ast.FormattedValue) and part.conversion == -1 and part.format_spec is None
        )
        if not is_plain or not isinstance(value, Value) or isinstance(value.value, Unknown):
            return evaluator.build_unknown(node)
        text += str(value.value)
        if len(text) > MAX_LENGTH:
            return evaluator.build_unknown(node)
        how += value.how
    return Value(evaluator.document.find_span(node), text, how)


def _evaluate_lambda(evaluator: Evaluator, node: ast.Lambda, scope: Scope) -> Function:
    return Function(node, scope)


def _evaluate_walrus(evaluator: Evaluator, node: ast.NamedExpr, scope: Scope) -> Any:
    value = evaluator.evaluate(node.value, scope)
    assign_target(evaluator, node.target, value, scope, node.value)
    return value


def _evaluate_starred(evaluator: Evaluator, node: ast.Starred, scope: Scope) -> Value:
    evaluator.evaluate(node.value, scope)
    return evaluator.build_unknown(node)


def _evaluate_comprehension(evaluator: Evaluator, node: ast.expr, scope: Scope) -> Value:
    """Return an unknown value, after forgetting the keys of records from which the comprehension pops.

    Example: `{k: d.pop(k) for k in OWN}`.
    """
    for inner in ast.walk(node):
        if (
            isinstance(inner, ast.Call)
            and isinstance(inner.func, ast.Attribute)
            and inner.func.attr in REMOVING_METHODS
        ):
            owner = evaluator.evaluate(inner.func.value, scope) if isinstance(inner.func.value, ast.Name) else None
            if isinstance(owner, Record) and owner.call is None:
                forget_keys(evaluator, owner, inner)
    return evaluator.build_unknown(node)


_KINDS: Final[Mapping[type[ast.expr], Callable[[Evaluator, Any, Scope], Any]]] = {
    ast.Constant: _evaluate_constant,
    ast.Name: evaluate_name,
    ast.Attribute: evaluate_attribute,
    ast.Subscript: evaluate_subscript,
    ast.Call: evaluate_call,
    ast.BinOp: _evaluate_operation,
    ast.UnaryOp: evaluate_unary,
    ast.BoolOp: evaluate_boolean,
    ast.Compare: evaluate_comparison,
    ast.IfExp: evaluate_conditional,
    ast.List: _evaluate_sequence,
    ast.Tuple: _evaluate_sequence,
    ast.Dict: _evaluate_dict,
    ast.JoinedStr: _evaluate_fstring,
    ast.Lambda: _evaluate_lambda,
    ast.NamedExpr: _evaluate_walrus,
    ast.Starred: _evaluate_starred,
    ast.ListComp: _evaluate_comprehension,
    ast.SetComp: _evaluate_comprehension,
    ast.DictComp: _evaluate_comprehension,
    ast.GeneratorExp: _evaluate_comprehension,
}
