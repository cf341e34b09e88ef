"""Entries of the tree that a script is shown as, and the functions that a walk over it has to enter by itself."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from cfglint_train.documents.document import Entry, Node, Scalar, Span
from cfglint_train.documents.python.script import PythonScript
from cfglint_train.documents.python.static.evaluator import Evaluator
from cfglint_train.documents.python.static.modules import imports
from cfglint_train.documents.python.syntax import callee
from cfglint_train.documents.python.tree import Part, Record, Value
from cfglint_train.documents.python.values import Class, Function
from cfglint_train.foundation.typed import Any


def named(name: str, node: Node, place: Span | None = None) -> Entry:
    """Return an entry whose key is at a place, by default at that of its value."""
    return Entry(Scalar(place or node.span, name, value=name), node)


def fact(name: str, node: Node, place: Span | None = None) -> Part:
    """Return a fact of a run: a part that no call of the script takes under a name of its own."""
    return Part(None, "", named(name, node, place))


def text_of(record: Record, name: str) -> str:
    """Return the text of a key, or the empty string if it has none."""
    entry = record.get(name)
    value = entry.value.value if entry is not None and isinstance(entry.value, Value) else None
    return value if isinstance(value, str) else ""


def class_of(record: Record) -> str:
    """Return the class that made a record, with its module if the script imports it."""
    return text_of(record, "_CLASS_")


def default_of(evaluator: Evaluator, owner: Class, name: str) -> Any:
    """Return the default of a field of the script's own class, or None if it has none."""
    member = evaluator.shape(owner.node).members.get(name)
    value = evaluator.value(member, owner.scope) if isinstance(member, ast.expr) else None
    if isinstance(value, Record) and class_of(value) == "dataclasses.field":
        default = value.get("default")
        return None if default is None else default.value
    return value


def uncalled(evaluator: Evaluator, makes: Callable[[str], object]) -> Iterator[Function]:
    """Return the functions that nothing in the script calls, and that make a thing themselves."""
    for value in list(evaluator.module.names.values()):
        if isinstance(value, Function) and id(value.node) not in evaluator.called:
            calls = (inner for inner in ast.walk(value.node) if isinstance(inner, ast.Call))
            if any(makes(callee(one)) for one in calls):
                yield value


def in_full(document: PythonScript, node: ast.expr) -> str:
    """Return a name with the module that the script imports it from, or nothing if no import, or several, have it.

    Modules beside the script do not count.
    """
    if isinstance(node, ast.Attribute):
        owner = node.value
        modules = {alias.asname or alias.name: alias.name for one in document.nodes(ast.Import) for alias in one.names}
        return f"{modules[owner.id]}.{node.attr}" if isinstance(owner, ast.Name) and owner.id in modules else ""
    imported = imports(document, getattr(node, "id", ""))
    found = [f"{module}.{name}" for module, name in imported if not module.startswith(".")]
    return found[0] if len(found) == 1 else ""
