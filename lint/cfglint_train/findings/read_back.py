"""Whether a rewrite parses, does what it is meant to, and nothing else: entries of the text are compared one by one.

A mapping is compared as the values of each key in their order, so that a key that stands twice is seen to stand twice.
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
    apply,
    follow,
)
from cfglint_train.documents.document import Sequence as ListNode
from cfglint_train.documents.writer import same
from cfglint_train.documents.yaml.document import YamlDocument
from cfglint_train.foundation.errors import crash
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.lens import spelled


def check_keys(document: Document, changes: Sequence[Change]) -> None:
    """Raise CannotEdit where a key would be renamed to one that stands already, or that another change makes."""
    leaving = {change.route for change in changes if isinstance(change, (Delete, Rename))}
    made: set[Route] = {change.route for change in changes if isinstance(change, (Set, Append))}
    for change in changes:
        if isinstance(change, Rename):
            target = (*change.route[:-1], change.key)
            if target in made or (document.entry(target) is not None and target not in leaving):
                raise CannotEdit(f"{spelled(target)} is given already")
            made.add(target)


def check_tree(document: Document, changes: Sequence[Change], edits: Sequence[Edit]) -> None:
    """Read the edited text. Raises CannotEdit unless it parses and its entries are the old ones with the changes."""
    if not edits:
        return
    edited = apply(document.source, edits)
    if document.syntax == "shell":
        from cfglint_train.documents.shell.grammar import count_errors

        if count_errors(edited) > count_errors(document.source):
            raise CannotEdit("the edited script would have a syntax error")
        return
    reread = type(document)(document.path, edited)
    if document.syntax not in ("yaml", "json"):
        return
    if isinstance(document, YamlDocument) and isinstance(reread, YamlDocument):
        reread.read_as(document.dialect)
        pairs = zip_longest(document.refusals(document.dialect), reread.refusals(document.dialect))
        for refusal in (after for before, after in pairs if after is not None and before is None):
            raise CannotEdit(f"{refusal.loader} would refuse the file: {refusal.message}")
    expected = {} if document.root is None else _listed(document, document.root)
    for change in changes:
        expected = _changed(expected, change)
    if reread.root is None or not same(_listed(reread, reread.root), expected):
        raise CannotEdit("the edited text would not read back as intended")


Part = tuple[Document, Sequence[Change], Sequence[Edit]]
"""What one fix does to one document."""

MOST_READINGS: Final = 32
"""Of one document whose fixes do not all read back; what is left then is read back where it is applied."""


def refusals(parts: Sequence[Part]) -> dict[int, str]:
    """The places of the parts that would not read back, with the reason.

    The parts of a document are read back together, and in halves only where that fails: most files have none.
    """
    groups: dict[int, list[int]] = {}
    for place, (document, _, _) in enumerate(parts):
        groups.setdefault(id(document), []).append(place)
    found: dict[int, str] = {}
    for group in groups.values():
        open_, readings = [group], 0
        while open_ and readings < MOST_READINGS:
            places, readings = open_.pop(), readings + 1
            changes = [change for place in places for change in parts[place][1]]
            edits = [edit for place in places for edit in parts[place][2]]
            try:
                check_tree(parts[places[0]][0], changes, edits)
            except Exception as error:  # changes that contradict each other may fail in any way together
                if len(places) == 1:
                    found[places[0]] = str(error) if isinstance(error, (CannotEdit, DocumentError)) else crash(error)
                else:
                    half = len(places) // 2
                    open_ += [places[half:], places[:half]]
    return found


def _listed(document: Document, node: Node) -> Any:
    """A node with each mapping as key -> its values, in the order of the text."""
    node = follow(node)
    if isinstance(node, Mapping):
        found: dict[str, list[Any]] = {}
        for entry in node.entries:
            name = document.text(entry.key.span) if entry.name is None else entry.name
            found.setdefault(name, []).append(_listed(document, entry.value))
        return found
    if isinstance(node, ListNode):
        return [_listed(document, item) for item in node.items]
    assert isinstance(node, Scalar)
    return document.scalar_value(node)


def _of_value(value: Any) -> Any:
    """A plain value in the same form."""
    if isinstance(value, dict):
        return {str(key): [_of_value(item)] for key, item in value.items()}
    return [_of_value(item) for item in value] if isinstance(value, list) else value


def _changed(tree: Any, change: Change) -> Any:
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
        _change_key(parent, str(last), change)
    elif isinstance(change, Set):
        parent[last] = _of_value(change.value)
    elif isinstance(change, Append):
        parent[last].append(_of_value(change.value))
    elif isinstance(change, Delete):
        parent.pop(last)
    return tree


def _change_key(parent: dict[str, list[Any]], key: str, change: Change) -> None:
    if isinstance(change, Set):
        parent[key] = [*parent.get(key, [None])[:-1], _of_value(change.value)]
    elif isinstance(change, Append):
        *before, last = parent.get(key, [None])
        parent[key] = [*before, [*(last or []), _of_value(change.value)]]
    elif isinstance(change, Delete):
        parent.pop(key, None)
    elif key in parent:
        parent[change.key] = list(chain(parent.get(change.key, ()), parent.pop(key)))
