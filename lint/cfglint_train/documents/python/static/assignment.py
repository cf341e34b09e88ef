"""Names and the targets of assignments: what takes a value, and whether it certainly does."""

from __future__ import annotations

import ast

from cfglint_train.documents.document import Sequence, Span
from cfglint_train.documents.python.static.evaluator import Evaluator
from cfglint_train.documents.python.static.mappings import put
from cfglint_train.documents.python.tree import Record
from cfglint_train.documents.python.values import Class, External, Scope, either, hedged
from cfglint_train.foundation.typed import Any


def bind(evaluator: Evaluator, name: str, value: Any, scope: Scope) -> None:
    """Let a name stand for a value, or only perhaps, where an undecided condition is around."""
    scope = scope.owner(name)
    if len(evaluator.undecided) > scope.level:
        step = evaluator.undecided[-1]
        value = hedged(either(scope.names.get(name, value), value), step)
    scope.names[name] = value


def assign(evaluator: Evaluator, target: ast.expr, value: Any, scope: Scope) -> None:
    """Give a target of an assignment its value."""
    if isinstance(target, ast.Name):
        bind(evaluator, target.id, value, scope)
    elif isinstance(target, ast.Attribute):
        owner = evaluator.value(target.value, scope)
        if isinstance(owner, Record):
            end = evaluator.document.span(target).end
            evaluator.set_key(owner, target.attr, value, Span(end - len(target.attr.encode()), end), target)
        elif isinstance(owner, External):
            evaluator.patch(owner, target.attr)
        elif isinstance(owner, Class):
            evaluator.shape(owner.node).members[target.attr] = None
    elif isinstance(target, ast.Subscript):
        owner, key = evaluator.value(target.value, scope), evaluator.value(target.slice, scope)
        if isinstance(owner, Record):
            put(evaluator, owner, key, value, evaluator.document.span(target.slice), target)
    elif isinstance(target, (ast.Tuple, ast.List)):
        items = value.items if isinstance(value, Sequence) else []
        exact = len(items) == len(target.elts) and not any(isinstance(part, ast.Starred) for part in target.elts)
        for index, part in enumerate(target.elts):
            assign(evaluator, part, items[index] if exact else evaluator.unknown(part), scope)
    elif isinstance(target, ast.Starred):
        assign(evaluator, target.value, value, scope)
