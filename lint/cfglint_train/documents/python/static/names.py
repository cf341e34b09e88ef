"""Names, attributes and subscripts: evaluate what they refer to."""

from __future__ import annotations

import ast
import os

from cfglint_train.documents.document import Sequence, Span, Unknown
from cfglint_train.documents.python.static import settings_files
from cfglint_train.documents.python.static.evaluator import Evaluator
from cfglint_train.documents.python.static.standard import EXITS, FUNCTIONS
from cfglint_train.documents.python.tree import Record, Step, Value
from cfglint_train.documents.python.values import Class, External, Function, ParsedOptions, Scope, format_option
from cfglint_train.foundation.typed import Any


def evaluate_name(evaluator: Evaluator, node: ast.Name, scope: Scope) -> Any:
    """Return the value of a name."""
    value = scope.find(node.id)
    span = evaluator.document.find_span(node)
    if value is None:
        if node.id == "__name__":
            return Value(span, evaluator.name)
        if node.id == "__file__":
            return Value(span, Unknown(node.id, os.path.abspath(evaluator.document.path)))
        builtin = any(node.id in names for names in (FUNCTIONS, EXITS, evaluator.handlers, settings_files.NAMES))
        return External(node.id) if builtin else evaluator.build_unknown(node)
    if isinstance(value, Value):
        # A name that is used only once may be changed where it is defined.
        is_used_once = evaluator.document.count_uses(node.id) == 2
        step = Step("constant", node.id, value.span)
        is_parameter = bool(value.how) and value.how[0].kind == "parameter" and value.how[0].text == node.id
        how = value.how if is_parameter else (step, *value.how)
        return Value(span, value.value, how, value.targets if is_used_once else ())
    if isinstance(value, External) and "." in value.name:
        constant = evaluator.read_module_value(value, span)
        return value if constant is None else constant
    return value


def evaluate_attribute(evaluator: Evaluator, node: ast.Attribute, scope: Scope) -> Any:
    """Return the value of an attribute; if it was never set, the library fills it in."""
    owner, name = evaluator.evaluate(node.value, scope), node.attr
    span = evaluator.document.find_span(node)
    if isinstance(owner, External):
        target = External(f"{owner.name}.{name}", owner.how)
        constant = evaluator.read_module_value(target, span)
        return target if constant is None else constant
    if isinstance(owner, ParsedOptions):
        default = owner.defaults.get(name)
        if default is None:
            return evaluator.build_unknown(node)
        step = Step("option", owner.spellings.get(name) or format_option(name), default.span)
        return Value(span, default.value, (step, *default.how), default.targets)
    if isinstance(owner, Class):
        return _evaluate_member(evaluator, owner, name, node)
    if isinstance(owner, Value):
        part = settings_files.evaluate_path_attribute(evaluator, owner, name, node)
        return evaluator.build_unknown(node) if part is None else part
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
            return evaluator.add_implied_record(owner, name, span, Span(span.end - len(name.encode()), span.end))
    return evaluator.build_unknown(node)


def _evaluate_member(evaluator: Evaluator, owner: Class, name: str, node: ast.expr) -> Any:
    """Return an attribute of a class of the script: a constant of its body, or a method."""
    member = evaluator.get_shape(owner.node).members.get(name)
    if isinstance(member, (ast.FunctionDef, ast.AsyncFunctionDef)):
        static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in member.decorator_list)
        return Function(member, owner.scope, None if static else owner)
    return evaluator.build_unknown(node) if member is None else evaluator.evaluate(member, owner.scope)


def evaluate_subscript(evaluator: Evaluator, node: ast.Subscript, scope: Scope) -> Any:
    """Return the value under a key or an index."""
    key = evaluator.evaluate(node.slice, scope)
    if isinstance(node.value, ast.Attribute) and node.value.attr == "parents":
        folder = settings_files.evaluate_parents(evaluator, node, evaluator.evaluate(node.value.value, scope), key)
        if folder is not None:
            return folder
    owner = evaluator.evaluate(node.value, scope)
    if isinstance(key, Value):
        if isinstance(owner, Record) and isinstance(key.value, str):
            entry = owner.get(key.value)
            if entry is not None:
                return entry.value
            if owner.open or owner.implicit:
                span = evaluator.document.find_span(node)
                return evaluator.add_implied_record(owner, key.value, span, evaluator.document.find_span(node.slice))
        if isinstance(owner, Sequence) and type(key.value) is int:
            index: int = key.value
            if -len(owner.items) <= index < len(owner.items):
                return owner.items[index]
    return evaluator.build_unknown(node)
