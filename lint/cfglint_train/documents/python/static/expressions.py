"""Expressions: what each stands for."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from cfglint_train.documents.document import Entry, Scalar, Sequence, Unknown
from cfglint_train.documents.python.static.assignment import assign
from cfglint_train.documents.python.static.calls import call
from cfglint_train.documents.python.static.evaluator import Evaluator
from cfglint_train.documents.python.static.mappings import TAKING, change
from cfglint_train.documents.python.static.names import attribute, known, subscript
from cfglint_train.documents.python.static.operators import binary, boolean, choice, compare, unary
from cfglint_train.documents.python.tree import Record, Step, Target, Value
from cfglint_train.documents.python.values import Class, Function, Options, Partial, Scope
from cfglint_train.foundation.python_arithmetic import LARGEST, LONGEST
from cfglint_train.foundation.typed import Any, Final


def value_of(evaluator: Evaluator, node: ast.expr, scope: Scope) -> Any:
    """What an expression stands for."""
    kind = _KINDS.get(type(node))
    return evaluator.unknown(node) if kind is None else kind(evaluator, node, scope)


def _constant(evaluator: Evaluator, node: ast.Constant, scope: Scope) -> Value:
    span = evaluator.document.span(node)
    huge = isinstance(node.value, int) and abs(node.value) > LARGEST
    if node.value is None or (isinstance(node.value, (bool, int, float, str)) and not huge):
        return Value(span, node.value, targets=(Target(span),))
    return evaluator.unknown(node)


def _operation(evaluator: Evaluator, node: ast.BinOp, scope: Scope) -> Value:
    return binary(evaluator, node.op, evaluator.value(node.left, scope), evaluator.value(node.right, scope), node)


def _sequence(evaluator: Evaluator, node: ast.List | ast.Tuple, scope: Scope) -> Sequence | Value:
    items = [evaluator.value(item, scope) for item in node.elts]
    if any(isinstance(item, ast.Starred) for item in node.elts):
        return evaluator.unknown(node)
    # Namespaces and functions may be items, too: they have no place in the tree, but can be unpacked.
    nodes = [_item(evaluator, value, item) for value, item in zip(items, node.elts)]
    return Sequence(evaluator.document.span(node), nodes, True)


def _item(evaluator: Evaluator, value: Any, where: ast.expr) -> Any:
    return value if isinstance(value, (Options, Function, Partial, Class)) else evaluator.node(value, where)


def _dict(evaluator: Evaluator, node: ast.Dict, scope: Scope) -> Record:
    record = Record(evaluator.document.span(node), [])
    record.sealed = "it is a dictionary"
    record.level = len(evaluator.undecided)
    for key, item in zip(node.keys, node.values):
        value = evaluator.value(item, scope)
        name = evaluator.value(key, scope) if key is not None else None
        if isinstance(name, Value) and isinstance(name.value, str) and key is not None:
            place = Scalar(evaluator.document.span(key), name.value, value=name.value)
            evaluator.put(record, Entry(place, evaluator.node(value, item)))
        else:
            record.open = "some of its keys are computed"
    return record


def _joined(evaluator: Evaluator, node: ast.JoinedStr, scope: Scope) -> Value:
    text = ""
    how: tuple[Step, ...] = ()
    for part in node.values:
        value = (
            evaluator.value(part.value, scope) if isinstance(part, ast.FormattedValue) else evaluator.value(part, scope)
        )
        plain = isinstance(part, ast.Constant) or (
            isinstance(part, ast.FormattedValue) and part.conversion == -1 and part.format_spec is None
        )
        if not plain or not isinstance(value, Value) or isinstance(value.value, Unknown):
            return evaluator.unknown(node)
        text += str(value.value)
        if len(text) > LONGEST:
            return evaluator.unknown(node)
        how += value.how
    return Value(evaluator.document.span(node), text, how)


def _lambda(evaluator: Evaluator, node: ast.Lambda, scope: Scope) -> Function:
    return Function(node, scope)


def _named(evaluator: Evaluator, node: ast.NamedExpr, scope: Scope) -> Any:
    value = evaluator.value(node.value, scope)
    assign(evaluator, node.target, value, scope)
    return value


def _starred(evaluator: Evaluator, node: ast.Starred, scope: Scope) -> Value:
    evaluator.value(node.value, scope)
    return evaluator.unknown(node)


def _comprehension(evaluator: Evaluator, node: ast.expr, scope: Scope) -> Value:
    """What is made turn by turn is not followed, save that it may take keys out (`{k: d.pop(k) for k in OWN}`)."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr in TAKING:
            owner = evaluator.value(inner.func.value, scope) if isinstance(inner.func.value, ast.Name) else None
            if isinstance(owner, Record) and owner.call is None:
                change(evaluator, owner, inner)
    return evaluator.unknown(node)


_KINDS: Final[Mapping[type[ast.expr], Callable[[Evaluator, Any, Scope], Any]]] = {
    ast.Constant: _constant,
    ast.Name: known,
    ast.Attribute: attribute,
    ast.Subscript: subscript,
    ast.Call: call,
    ast.BinOp: _operation,
    ast.UnaryOp: unary,
    ast.BoolOp: boolean,
    ast.Compare: compare,
    ast.IfExp: choice,
    ast.List: _sequence,
    ast.Tuple: _sequence,
    ast.Dict: _dict,
    ast.JoinedStr: _joined,
    ast.Lambda: _lambda,
    ast.NamedExpr: _named,
    ast.Starred: _starred,
    ast.ListComp: _comprehension,
    ast.SetComp: _comprehension,
    ast.DictComp: _comprehension,
    ast.GeneratorExp: _comprehension,
}
