"""Dictionary methods and `del`: keys that are set or removed, certainly or possibly.

After a change that cannot be followed, all keys except internal ones (`_CLASS_`) are dropped, because each may
have been changed or removed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from cfglint_train.documents.document import Entry, Scalar, Sequence, Span
from cfglint_train.documents.python.static.evaluator import Evaluator
from cfglint_train.documents.python.tree import Record, Value
from cfglint_train.documents.python.values import Arguments, Scope, mark_conditional
from cfglint_train.foundation.typed import Any, Final

REMOVING_METHODS: Final = frozenset(("clear", "pop", "popitem"))
METHODS: Final = REMOVING_METHODS | {"__setitem__", "setdefault", "update"}


def apply_method(evaluator: Evaluator, node: ast.Call, owner: Record, name: str, arguments: Arguments) -> Any:
    """Apply one of `METHODS` to a record and return its result."""
    positional = arguments.positional
    if name == "update":
        _update(evaluator, node, owner, arguments)
    elif name in ("clear", "popitem") or not positional or not arguments.is_complete:
        forget_keys(evaluator, owner, node)
    elif name == "pop":
        removed = remove_key(evaluator, owner, positional[0], node)
        if removed is not None:
            return removed
        return positional[1] if len(positional) > 1 and not owner.open else evaluator.build_unknown(node)
    elif name == "__setitem__" and len(positional) == 2:
        put_key(evaluator, owner, positional[0], positional[1], evaluator.document.find_span(node.args[0]), node)
    elif name == "setdefault":
        key = positional[0]
        present = owner.get(key.value) if isinstance(key, Value) and isinstance(key.value, str) else None
        if present is not None:
            return present.value
        value = positional[1] if len(positional) > 1 and not owner.open else evaluator.build_unknown(node)
        put_key(evaluator, owner, key, value, evaluator.document.find_span(node.args[0]), node)
        return value
    return evaluator.build_unknown(node)


def read_key(evaluator: Evaluator, node: ast.Call, owner: Record, arguments: Arguments) -> Any:
    """Return the result of `mapping.get(key, default)`; unknown if the mapping may have the key without showing it."""
    key = arguments.positional[0] if arguments.positional and arguments.is_complete else None
    if not isinstance(key, Value) or not isinstance(key.value, str):
        return evaluator.build_unknown(node)
    present = owner.get(key.value)
    if present is not None:
        return owner.objects.get(key.value, present.value)
    if owner.open or owner.implicit or owner.call is not None:
        return evaluator.build_unknown(node)
    default = arguments.positional[1] if len(arguments.positional) > 1 else arguments.get("default")
    return Value(evaluator.document.find_span(node), None) if default is None else default


def delete_keys(evaluator: Evaluator, node: ast.Delete, scope: Scope) -> None:
    """Remove the keys that a statement such as `del kwargs["max_seq_length"]` deletes."""
    for target in node.targets:
        if isinstance(target, ast.Subscript):
            owner, key = evaluator.evaluate(target.value, scope), evaluator.evaluate(target.slice, scope)
            if isinstance(owner, Record):
                remove_key(evaluator, owner, key, target)


def put_key(evaluator: Evaluator, owner: Record, key: Any, value: Any, key_span: Span, expression: ast.expr) -> None:
    """Set a key of a record; if the key is unknown, the values of a dictionary are in doubt."""
    if isinstance(key, Value) and isinstance(key.value, str):
        evaluator.set_key(owner, key.value, value, key_span, expression)
    elif owner.call is None and not owner.implicit:
        doubt_keys(evaluator, owner, expression)
    else:
        forget_keys(evaluator, owner, expression)


def remove_key(evaluator: Evaluator, owner: Record, key: Any, expression: ast.expr) -> Any:
    """Remove a key from a record and return its value, or None if the key is absent or unknown.

    If the key is unknown, forget all keys.
    """
    if not isinstance(key, Value) or not isinstance(key.value, str):
        forget_keys(evaluator, owner, expression)
        return None
    present = owner.get(key.value)
    if present is None:
        return None
    if len(evaluator.open_conditions) > owner.level:
        step = evaluator.open_conditions[-1]
        _drop_key(owner, key.value, f"is removed under a condition ({step.text})")
        return mark_conditional(present.value, step)
    owner.drop(key.value)
    return present.value


def loosen_keys(evaluator: Evaluator, node: ast.expr, key: ast.expr | None, owner: Any) -> None:
    """Drop the keys that a later `del` or a call of a removing method may remove."""
    if not isinstance(owner, Record) or owner.call is not None:
        return
    if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
        forget_keys(evaluator, owner, node)
    elif owner.get(key.value) is not None:
        _drop_key(owner, key.value, "may be removed")


def _drop_key(owner: Record, key: str, reason: str) -> None:
    """Drop a key that may still exist, and mark the record as open."""
    owner.drop(key)
    owner.open = f"`{key}` {reason}"


def forget_keys(evaluator: Evaluator, owner: Record, expression: ast.expr) -> None:
    """Drop all keys of a record except internal ones, because each may have been changed or removed."""
    for entry in list(owner.entries):
        if isinstance(entry.name, str) and not entry.name.startswith("_"):
            owner.drop(entry.name)
    owner.open = f"{evaluator.document.get_short_text(evaluator.document.find_span(expression))} changes it"


def doubt_keys(evaluator: Evaluator, owner: Record, expression: ast.expr, reason: str = "") -> None:
    """Mark the values of a mapping as conditional, because unknown keys may have replaced each of them."""
    text = evaluator.document.get_short_text(evaluator.document.find_span(expression))
    step = evaluator.build_condition(text, expression)
    evaluator.spend_steps(len(owner.entries))
    for entry in list(owner.entries):
        if isinstance(entry.name, str) and not entry.name.startswith("_"):
            evaluator.put(owner, Entry(entry.key, mark_conditional(entry.value, step)))
    owner.implicit = False
    owner.open = reason or f"{text} changes it"


def merge_mapping(evaluator: Evaluator, owner: Record, mapping: Any, expression: ast.expr) -> None:
    """Set the keys of a mapping in a record; if not all of them are known, each value of the record is in doubt."""
    pairs = _list_pairs(mapping)
    if pairs is None or (isinstance(mapping, Record) and mapping.open):
        doubt_keys(evaluator, owner, expression, getattr(mapping, "open", ""))
    evaluator.spend_steps(len(pairs or ()))
    for name, value, key_span in pairs or ():
        evaluator.set_key(owner, name, value, key_span, expression)


def alter_attributes(evaluator: Evaluator, owner: Record, names: Iterable[str] | None, expression: ast.expr) -> None:
    """Make attributes of a record unknown; None for `names` means that any key may change.

    A key that was passed to the record's call still counts as an argument of that call.
    """
    if names is None:
        forget_keys(evaluator, owner, expression)
        return
    for name in names:
        present = owner.get(name)
        span = evaluator.document.find_span(expression)
        key = Scalar(span, name, value=name) if present is None else present.key
        owner.implicit = False
        owner.assigned_keys.add(name)
        evaluator.put(owner, Entry(key, evaluator.build_unknown(expression)))


def _update(evaluator: Evaluator, node: ast.Call, owner: Record, arguments: Arguments) -> None:
    for mapping in arguments.positional:
        merge_mapping(evaluator, owner, mapping, node)
    if not arguments.is_complete or len(arguments.positional) > 1:
        doubt_keys(evaluator, owner, node)
    expressions = {keyword.arg: keyword.value for keyword in node.keywords}
    for name, argument in arguments.keywords.items():
        evaluator.set_key(owner, name, argument.value, argument.key, expressions.get(name, node))


def _list_pairs(mapping: Any) -> list[tuple[str, Any, Span]] | None:
    """Return the keys and values of a mapping or a list of pairs, or None if not all of them are known."""
    if isinstance(mapping, Record):
        if mapping.implicit:
            return None
        entries = [entry for entry in mapping.entries if entry.name is not None and entry.name != "_CLASS_"]
        return [
            (entry.name or "", mapping.objects.get(entry.name or "", entry.value), entry.key.span) for entry in entries
        ]
    if not isinstance(mapping, Sequence):
        return None
    pairs = []
    for item in mapping.items:
        if not isinstance(item, Sequence) or len(item.items) != 2:
            return None
        key, value = item.items
        if not isinstance(key, Value) or not isinstance(key.value, str):
            return None
        pairs.append((key.value, value, key.span))
    return pairs
