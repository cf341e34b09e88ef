"""What the methods of a dictionary, and `del`, make of it: keys that are set, that are gone, or that may be either.

A change that cannot be followed leaves no key: each may have another value, or be gone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from cfglint_train.documents.document import Entry, Scalar, Sequence, Span
from cfglint_train.documents.python.static.evaluator import Evaluator
from cfglint_train.documents.python.tree import Record, Value
from cfglint_train.documents.python.values import Arguments, Scope, hedged
from cfglint_train.foundation.typed import Any, Final

TAKING: Final = frozenset(("clear", "pop", "popitem"))
METHODS: Final = TAKING | {"__setitem__", "setdefault", "update"}


def method(evaluator: Evaluator, node: ast.Call, owner: Record, name: str, arguments: Arguments) -> Any:
    """What one of the METHODS does to a record, and what it yields."""
    given = arguments.positional
    if name == "update":
        _update(evaluator, node, owner, arguments)
    elif name in ("clear", "popitem") or not given or not arguments.complete:
        change(evaluator, owner, node)
    elif name == "pop":
        taken = remove(evaluator, owner, given[0], node)
        if taken is not None:
            return taken
        return given[1] if len(given) > 1 and not owner.open else evaluator.unknown(node)
    elif name == "__setitem__" and len(given) == 2:
        put(evaluator, owner, given[0], given[1], evaluator.document.span(node.args[0]), node)
    elif name == "setdefault":
        key = given[0]
        present = owner.get(key.value) if isinstance(key, Value) and isinstance(key.value, str) else None
        if present is not None:
            return present.value
        value = given[1] if len(given) > 1 and not owner.open else evaluator.unknown(node)
        put(evaluator, owner, key, value, evaluator.document.span(node.args[0]), node)
        return value
    return evaluator.unknown(node)


def delete(evaluator: Evaluator, node: ast.Delete, scope: Scope) -> None:
    """`del kwargs["max_seq_length"]`."""
    for target in node.targets:
        if isinstance(target, ast.Subscript):
            owner, key = evaluator.value(target.value, scope), evaluator.value(target.slice, scope)
            if isinstance(owner, Record):
                remove(evaluator, owner, key, target)


def put(evaluator: Evaluator, owner: Record, key: Any, value: Any, place: Span, where: ast.expr) -> None:
    """Set a key of a record; which one may be unknown."""
    if isinstance(key, Value) and isinstance(key.value, str):
        evaluator.set_key(owner, key.value, value, place, where)
    else:
        change(evaluator, owner, where)


def remove(evaluator: Evaluator, owner: Record, key: Any, where: ast.expr) -> Any:
    """Take a key out of a record; its value, None where it has none."""
    if not isinstance(key, Value) or not isinstance(key.value, str):
        change(evaluator, owner, where)
        return None
    present = owner.get(key.value)
    if present is None:
        return None
    if len(evaluator.undecided) > owner.level:
        step = evaluator.undecided[-1]
        _take(owner, key.value, f"is taken out under a condition ({step.text})")
        return hedged(present.value, step)
    owner.drop(key.value)
    return present.value


def loosen(evaluator: Evaluator, node: ast.expr, key: ast.expr | None, owner: Any) -> None:
    """Let the keys of a dictionary be gone that `del`, or a call of one of TAKING, may take out later."""
    if not isinstance(owner, Record) or owner.call is not None:
        return
    if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
        change(evaluator, owner, node)
    elif owner.get(key.value) is not None:
        _take(owner, key.value, "may be taken out")


def _take(owner: Record, key: str, how: str) -> None:
    """Let a key be gone that may still be there."""
    owner.drop(key)
    owner.open = f"`{key}` {how}"


def change(evaluator: Evaluator, owner: Record, where: ast.expr) -> None:
    """Forget the keys of a record: any may be changed or gone."""
    for entry in list(owner.entries):
        if isinstance(entry.name, str) and not entry.name.startswith("_"):
            owner.drop(entry.name)
    owner.open = f"{evaluator.document.cut(evaluator.document.span(where))} changes it"


def alter(evaluator: Evaluator, owner: Record, names: Iterable[str] | None, where: ast.expr) -> None:
    """Let attributes of a record have any value; None: what a function does to the record cannot be followed.

    A key that the record was made with is still one that it was made with.
    """
    if names is None:
        change(evaluator, owner, where)
        return
    for name in names:
        present = owner.get(name)
        place = evaluator.document.span(where)
        key = Scalar(place, name, value=name) if present is None else present.key
        owner.implicit = False
        owner.assigned.add(name)
        evaluator.put(owner, Entry(key, evaluator.unknown(where)))


def _update(evaluator: Evaluator, node: ast.Call, owner: Record, arguments: Arguments) -> None:
    known = arguments.complete and len(arguments.positional) < 2
    for extra in arguments.positional:
        pairs = _pairs(extra)
        if pairs is None:
            known = False
            continue
        evaluator.step(len(pairs))
        for name, value, place in pairs:
            evaluator.set_key(owner, name, value, place, node)
    if not known:
        change(evaluator, owner, node)
    expressions = {keyword.arg: keyword.value for keyword in node.keywords}
    for name, argument in arguments.keywords.items():
        evaluator.set_key(owner, name, argument.value, argument.key, expressions.get(name, node))


def _pairs(given: Any) -> list[tuple[str, Any, Span]] | None:
    """The keys and values of a mapping or of a list of pairs; None where there may be others."""
    if isinstance(given, Record):
        if given.open:
            return None
        return [(entry.name or "", entry.value, entry.key.span) for entry in given.entries]
    if not isinstance(given, Sequence):
        return None
    pairs = []
    for item in given.items:
        if not isinstance(item, Sequence) or len(item.items) != 2:
            return None
        key, value = item.items
        if not isinstance(key, Value) or not isinstance(key.value, str):
            return None
        pairs.append((key.value, value, key.span))
    return pairs
