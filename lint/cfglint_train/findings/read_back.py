"""Reading back of edits: check that the edited text parses and has exactly the intended entries.

A mapping is compared as a list of values per key, so that duplicate keys are noticed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, zip_longest

from cfglint_train.documents.document import (
    Append,
    CannotEdit,
    Change,
    Delete,
    Document,
    DocumentError,
    Edit,
    Mapping,
    Node,
    Rename,
    Route,
    Scalar,
    Set,
    apply_edits,
    follow,
)
from cfglint_train.documents.document import Sequence as ListNode
from cfglint_train.documents.writer import is_identical
from cfglint_train.documents.yaml.document import YamlDocument
from cfglint_train.foundation.errors import describe_crash
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.lens import format_route


def check_keys(document: Document, changes: Sequence[Change]) -> None:
    """Raise `CannotEdit` if a key would be renamed to a key that exists or that another change creates."""
    removed = {change.route for change in changes if isinstance(change, (Delete, Rename))}
    created: set[Route] = {change.route for change in changes if isinstance(change, (Set, Append))}
    for change in changes:
        if isinstance(change, Rename):
            target = (*change.route[:-1], change.key)
            if target in created or (document.find_entry(target) is not None and target not in removed):
                raise CannotEdit(f"{format_route(target)} is already set")
            created.add(target)


def check_tree(document: Document, changes: Sequence[Change], edits: Sequence[Edit]) -> None:
    """Parse the edited text and raise `CannotEdit` unless its entries are the old ones with `changes` applied.

    Only YAML and JSON entries are compared. A shell script must not gain syntax errors; any other text must parse.
    """
    if not edits:
        return
    edited = apply_edits(document.source, edits)
    if document.syntax == "shell":
        from cfglint_train.documents.shell.grammar import count_errors

        if count_errors(edited) > count_errors(document.source):
            raise CannotEdit("the edited script would have a syntax error")
        return
    reread = type(document)(document.path, edited)
    if document.syntax not in ("yaml", "json"):
        return
    if isinstance(document, YamlDocument) and isinstance(reread, YamlDocument):
        reread.set_dialect(document.dialect)
        pairs = zip_longest(document.find_refusals(document.dialect), reread.find_refusals(document.dialect))
        for refusal in (after for before, after in pairs if after is not None and before is None):
            raise CannotEdit(f"{refusal.loader} would refuse the file: {refusal.message}")
    expected = {} if document.root is None else _list_values(document, document.root)
    for change in changes:
        expected = _apply_change(expected, change)
    if reread.root is None or not is_identical(_list_values(reread, reread.root), expected):
        raise CannotEdit("the edited text would not read back as intended")


EditedDocument = tuple[Document, Sequence[Change], Sequence[Edit]]
"""Changes and edits of a fix in a document."""

MAX_READINGS: Final = 32
"""Maximum number of readings per document if its fixes do not all read back.

The remaining fixes are read back when they are applied.
"""


def find_unreadable(parts: Sequence[EditedDocument]) -> dict[int, str]:
    """Return the indices of the parts that do not read back, with the reasons.

    The parts of a document are read back together. Only if that fails, which is rare, are they read back in halves.
    """
    groups: dict[int, list[int]] = {}
    for position, (document, _, _) in enumerate(parts):
        groups.setdefault(id(document), []).append(position)
    reasons: dict[int, str] = {}
    for group in groups.values():
        pending, readings = [group], 0
        while pending and readings < MAX_READINGS:
            positions, readings = pending.pop(), readings + 1
            changes = [change for position in positions for change in parts[position][1]]
            edits = [edit for position in positions for edit in parts[position][2]]
            try:
                check_tree(parts[positions[0]][0], changes, edits)
            except Exception as error:  # changes that contradict each other may fail with any exception
                if len(positions) == 1:
                    reasons[positions[0]] = (
                        str(error) if isinstance(error, (CannotEdit, DocumentError)) else describe_crash(error)
                    )
                else:
                    half = len(positions) // 2
                    pending += [positions[half:], positions[:half]]
    return reasons


def _list_values(document: Document, node: Node) -> Any:
    """Return the value of a node, with each mapping as a dict from key to list of values, in source order."""
    node = follow(node)
    if isinstance(node, Mapping):
        values: dict[str, list[Any]] = {}
        for entry in node.entries:
            name = document.get_text(entry.key.span) if entry.name is None else entry.name
            values.setdefault(name, []).append(_list_values(document, entry.value))
        return values
    if isinstance(node, ListNode):
        return [_list_values(document, item) for item in node.items]
    assert isinstance(node, Scalar)
    return document.get_scalar_value(node)


def _wrap_value(value: Any) -> Any:
    """Return a plain value in the form of `_list_values`."""
    if isinstance(value, dict):
        return {str(key): [_wrap_value(item)] for key, item in value.items()}
    return [_wrap_value(item) for item in value] if isinstance(value, list) else value


def _apply_change(tree: Any, change: Change) -> Any:
    tree = {} if tree is None else tree
    parent = tree
    for step in change.route[:-1]:
        if isinstance(parent, dict):
            values = parent.setdefault(str(step), [None])
            if values[-1] is None:
                values[-1] = {}
            parent = values[-1]
        else:
            parent = parent[step]
    last = change.route[-1]
    if isinstance(parent, dict):
        _apply_key_change(parent, str(last), change)
    elif isinstance(change, Set):
        parent[last] = _wrap_value(change.value)
    elif isinstance(change, Append):
        parent[last].append(_wrap_value(change.value))
    elif isinstance(change, Delete):
        parent.pop(last)
    return tree


def _apply_key_change(parent: dict[str, list[Any]], key: str, change: Change) -> None:
    if isinstance(change, Set):
        parent[key] = [*parent.get(key, [None])[:-1], _wrap_value(change.value)]
    elif isinstance(change, Append):
        *before, last = parent.get(key, [None])
        parent[key] = [*before, [*(last or []), _wrap_value(change.value)]]
    elif isinstance(change, Delete):
        parent.pop(key, None)
    elif key in parent:
        parent[change.key] = list(chain(parent.get(change.key, ()), parent.pop(key)))
