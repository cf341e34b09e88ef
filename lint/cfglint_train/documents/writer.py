"""Common base of the YAML and JSON writers: order and merging of changes, independent of syntax."""

from __future__ import annotations

from cfglint_train.documents.document import (
    Append,
    CannotEdit,
    Change,
    Delete,
    Document,
    Edit,
    Entry,
    Mapping,
    Node,
    Rename,
    Route,
    Scalar,
    Set,
    Span,
    sort_edits,
)
from cfglint_train.foundation.typed import Any, Generic, TypeVar

AnyDocument = TypeVar("AnyDocument", bound=Document)


class Writer(Generic[AnyDocument]):
    """Conversion of the changes of a document into edits in the document's style."""

    def __init__(self, document: AnyDocument) -> None:
        """Store the document."""
        self.document = document
        self.deleted_routes: set[Route] = set()
        self.moved_routes: dict[Route, Route] = {}
        """Deleted entries by the entry that replaces each."""
        self._inserted: set[tuple[Span, int]] = set()

    def record_insertion(self, brackets: Span, after: int) -> bool:
        """Record an insertion inside brackets. Return whether this batch has already inserted at the same place."""
        repeated = (brackets, after) in self._inserted
        self._inserted.add((brackets, after))
        return repeated

    def write(self, changes: list[Change]) -> list[Edit]:
        """Return the edits of all changes, sorted. Raise `CannotEdit` if a change cannot be made."""
        self.deleted_routes = {change.route for change in changes if isinstance(change, Delete)}
        self.moved_routes = {
            change.route: change.moved for change in changes if isinstance(change, Set) and change.moved
        }
        edits: list[Edit] = []
        for change in self._merge_below_missing_parents(changes):
            if isinstance(change, Set):
                edits += self.set(change)
            elif isinstance(change, Append):
                edits += self.append(change)
            elif isinstance(change, Delete):
                edits += self.delete(change.route)
            else:
                edits += self.rename(change)
        return sort_edits(edits)

    def set(self, change: Set) -> list[Edit]:
        """Return the edits that replace or insert a value whose parent exists."""
        raise NotImplementedError

    def append(self, change: Append) -> list[Edit]:
        """Return the edits that add an item to an existing list."""
        raise NotImplementedError

    def delete(self, route: Route) -> list[Edit]:
        """Return the edits that remove a key or an item."""
        raise NotImplementedError

    def rename(self, change: Rename) -> list[Edit]:
        """Return the edits that rename a key."""
        raise NotImplementedError

    def _merge_below_missing_parents(self, changes: list[Change]) -> list[Change]:
        """Combine changes below a parent that does not exist yet into a single change that creates the parent."""
        created: dict[Route, Set] = {}
        result: list[Change] = []
        for change in changes:
            if not isinstance(change, (Set, Append)):
                result.append(change)
                continue
            depth = 0
            while depth < len(change.route) and not is_empty(self.document.find_node(change.route[: depth + 1])):
                depth += 1
            value = change.value
            if isinstance(change, Append):
                if depth == len(change.route):
                    result.append(change)
                    continue
                value = [value]
            top, inner_route = change.route[: depth + 1], change.route[depth + 1 :]
            if top not in created:
                created[top] = Set(top, _wrap_value(inner_route, value), change.beside)
                result.append(created[top])
            else:
                _merge_value(created[top].value, inner_route, value)
        return result


def _wrap_value(route: Route, value: Any) -> Any:
    for step in reversed(route):
        value = {step: value}
    return value


def _merge_value(tree: Any, route: Route, value: Any) -> None:
    """Put `value` at `route` in a tree under construction; two lists at the same place are joined."""
    if not route:
        if isinstance(tree, list) and isinstance(value, list):
            tree.extend(value)
            return
        raise CannotEdit("two edits of the same key")
    for step in route[:-1]:
        tree = tree.setdefault(step, {}) if isinstance(tree, dict) else tree
    if not isinstance(tree, dict):
        raise CannotEdit("two edits of the same key")
    if isinstance(tree.get(route[-1]), list) and isinstance(value, list):
        tree[route[-1]].extend(value)
    else:
        tree[route[-1]] = value


def is_empty(node: Node | None) -> bool:
    """Return whether the node is absent or a scalar without text."""
    return node is None or (isinstance(node, Scalar) and node.span.start == node.span.end)


def find_own_entry(mapping: Mapping, key: str) -> Entry | None:
    """Return the mapping's own entry that wins for a key, ignoring entries from a YAML merge; None if absent."""
    return next((entry for entry in reversed(mapping.entries) if entry.name == key), None)


def is_identical(left: Any, right: Any) -> bool:
    """Return whether two values are equal in value and type, down to the leaves: 1, 1.0 and true all differ."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(is_identical(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(is_identical, left, right))
    return bool(left == right) or (left != left and right != right)
