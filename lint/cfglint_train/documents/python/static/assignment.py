"""Assignments: binding of values to names, attributes and items, marked as conditional if they may not happen."""

from __future__ import annotations

import ast

from cfglint_train.documents.document import Sequence, Span
from cfglint_train.documents.python.static.evaluator import Evaluator
from cfglint_train.documents.python.static.imported import set_foreign_attribute
from cfglint_train.documents.python.static.mappings import put_key
from cfglint_train.documents.python.tree import Record, Step
from cfglint_train.documents.python.values import Class, External, Foreign, Scope, choose_value, mark_conditional
from cfglint_train.foundation.typed import Any


def bind_name(evaluator: Evaluator, name: str, value: Any, scope: Scope) -> None:
    """Bind a name to a value; under an undecided condition, mark the value as conditional.

    The end of the branch decides between the values of a name of the branch's own scope (`join_names`).
    """
    owner = scope.find_owner(name)
    if len(evaluator.open_conditions) > owner.level:
        step = evaluator.open_conditions[-1]
        chosen = value if owner is scope else choose_value(owner.names.get(name, value), value)
        value = mark_conditional(chosen, step)
    owner.names[name] = value


def join_names(scope: Scope, before: dict[str, Any], branches: list[dict[str, Any]], step: Step) -> None:
    """Set the names of a scope after branches of which one, or none if there is only one, has run.

    A name keeps its earlier value, unless each branch assigns it. Then it has the value of the first branch.
    """
    scope.names = dict(before)
    for name in dict.fromkeys(name for names in branches for name in names):
        values = [names[name] for names in branches if name in names and names[name] is not before.get(name)]
        if not values:
            scope.names.setdefault(name, before.get(name))
            continue
        is_replaced = len(branches) > 1 and len(values) == len(branches)
        first = values[0] if is_replaced or name not in before else before[name]
        steps = [inner for value in values for inner in getattr(value, "how", ()) if inner.kind == "depends"]
        for value in values:
            first = choose_value(first, value)
        for inner in steps or [step]:  # the innermost condition says most
            first = mark_conditional(first, inner)
        scope.names[name] = first


def assign_target(
    evaluator: Evaluator, target: ast.expr, value: Any, scope: Scope, source: ast.expr | None = None
) -> None:
    """Assign a value to a target: a name, an attribute, an item, or a tuple of targets.

    `source` is the expression that states the value; by default, the value is located at the target.
    """
    place = target if source is None else source
    if isinstance(target, ast.Name):
        bind_name(evaluator, target.id, value, scope)
    elif isinstance(target, ast.Attribute):
        owner = evaluator.evaluate(target.value, scope)
        if isinstance(owner, Record):
            end = evaluator.document.find_span(target).end
            evaluator.set_key(owner, target.attr, value, Span(end - len(target.attr.encode()), end), place)
        elif isinstance(owner, Foreign):
            set_foreign_attribute(evaluator, owner, target.attr, value)
        elif isinstance(owner, External):
            evaluator.record_patch(owner, target.attr)
        elif isinstance(owner, Class):
            evaluator.get_shape(owner.node).members[target.attr] = None
    elif isinstance(target, ast.Subscript):
        owner, key = evaluator.evaluate(target.value, scope), evaluator.evaluate(target.slice, scope)
        if isinstance(owner, Record):
            put_key(evaluator, owner, key, value, evaluator.document.find_span(target.slice), place)
    elif isinstance(target, (ast.Tuple, ast.List)):
        items = value.items if isinstance(value, Sequence) else []
        exact = len(items) == len(target.elts) and not any(isinstance(part, ast.Starred) for part in target.elts)
        for index, part in enumerate(target.elts):
            assign_target(evaluator, part, items[index] if exact else evaluator.build_unknown(part), scope)
    elif isinstance(target, ast.Starred):
        assign_target(evaluator, target.value, value, scope)
