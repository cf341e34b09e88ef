"""What names, attributes and subscripts stand for."""

from __future__ import annotations

import ast

from cfglint_train.documents.document import Sequence, Span
from cfglint_train.documents.python.static.evaluator import Evaluator
from cfglint_train.documents.python.static.standard import EXITS, FUNCTIONS
from cfglint_train.documents.python.tree import Record, Step, Value
from cfglint_train.documents.python.values import Class, External, Function, Options, Scope, option
from cfglint_train.foundation.typed import Any


def known(evaluator: Evaluator, node: ast.Name, scope: Scope) -> Any:
    """What a name stands for."""
    value = scope.find(node.id)
    span = evaluator.document.span(node)
    if value is None:
        if node.id == "__name__":
            return Value(span, "__main__")
        builtin = node.id in FUNCTIONS or node.id in EXITS or node.id in evaluator.handlers
        return External(node.id) if builtin else evaluator.unknown(node)
    if isinstance(value, Value):
        # A name that is used but once may be changed where it is defined.
        once = evaluator.document.uses(node.id) == 2
        own = Step("constant", node.id, value.span)
        given = bool(value.how) and value.how[0].kind == "parameter" and value.how[0].text == node.id
        how = value.how if given else (own, *value.how)
        return Value(span, value.value, how, value.targets if once else ())
    return value


def attribute(evaluator: Evaluator, node: ast.Attribute, scope: Scope) -> Any:
    """What an attribute of a value is; one that nothing has set is the library's to fill in."""
    owner, name = evaluator.value(node.value, scope), node.attr
    span = evaluator.document.span(node)
    if isinstance(owner, External):
        return External(f"{owner.name}.{name}", owner.how)
    if isinstance(owner, Options):
        default = owner.defaults.get(name)
        if default is None:
            return evaluator.unknown(node)
        step = Step("option", owner.written.get(name) or option(name), default.span)
        return Value(span, default.value, (step, *default.how), default.targets)
    if isinstance(owner, Class):
        return _member(evaluator, owner, name, node)
    if isinstance(owner, Record):
        if name == "__dict__":
            return owner
        entry = owner.get(name)
        if entry is not None:
            value = entry.value
            if isinstance(value, Value):
                step = Step("parameter", name, entry.key.span)
                return Value(span, value.value, (step, *value.how))
            return value
        if isinstance(owner.call, ast.Call) or owner.implicit or owner.open:
            return evaluator.implied(owner, name, span, Span(span.end - len(name.encode()), span.end))
    return evaluator.unknown(node)


def _member(evaluator: Evaluator, owner: Class, name: str, node: ast.expr) -> Any:
    """An attribute of a class of the script: a constant of its body, or a method."""
    found = evaluator.shape(owner.node).members.get(name)
    if isinstance(found, (ast.FunctionDef, ast.AsyncFunctionDef)):
        static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in found.decorator_list)
        return Function(found, owner.scope, None if static else owner)
    return evaluator.unknown(node) if found is None else evaluator.value(found, owner.scope)


def subscript(evaluator: Evaluator, node: ast.Subscript, scope: Scope) -> Any:
    """What is under a key or an index."""
    owner, key = evaluator.value(node.value, scope), evaluator.value(node.slice, scope)
    if isinstance(key, Value):
        if isinstance(owner, Record) and isinstance(key.value, str):
            entry = owner.get(key.value)
            if entry is not None:
                return entry.value
            if owner.open or owner.implicit:
                span = evaluator.document.span(node)
                return evaluator.implied(owner, key.value, span, evaluator.document.span(node.slice))
        if isinstance(owner, Sequence) and type(key.value) is int:
            index: int = key.value
            if -len(owner.items) <= index < len(owner.items):
                return owner.items[index]
    return evaluator.unknown(node)
