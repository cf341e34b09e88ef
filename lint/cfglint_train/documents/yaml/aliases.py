"""Limits on the size and depth of a YAML tree after its aliases are expanded."""

from __future__ import annotations

from collections.abc import Callable

from cfglint_train.documents.document import Alias, Mapping, Node, Position, Scalar, Sequence
from cfglint_train.documents.limits import MAX_DEPTH, MAX_NODES, LimitExceeded


def check(root: Node, position: Callable[[int], Position]) -> None:
    """Raise `LimitExceeded` if a node contains an alias of itself, or if the expanded tree is too large or too deep.

    Every node is measured once, so the time is linear in the size of the text.
    """
    measured: dict[int, tuple[int, int]] = {}
    """Number of nodes and depth of each expanded node, by node id."""
    ancestors: set[int] = set()
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, is_done = stack.pop()
        if isinstance(node, Scalar) or id(node) in measured:
            continue
        children = _list_children(node)
        if not is_done:
            ancestors.add(id(node))
            stack.append((node, True))
            for child in children:
                if isinstance(child, Alias) and id(child.target) in ancestors:
                    raise LimitExceeded("an alias is inside its own anchor", position(child.span.start))
                stack.append((child.target if isinstance(child, Alias) else child, False))
            continue
        ancestors.discard(id(node))
        size, depth = 1, 1
        for child in children:
            child_size = measured.get(id(child.target if isinstance(child, Alias) else child), (1, 0))
            size, depth = size + child_size[0], max(depth, child_size[1] + 1)
            if size > MAX_NODES:
                raise LimitExceeded(f"expands to more than {MAX_NODES:,} values", position(child.span.start))
            if depth > MAX_DEPTH:
                raise LimitExceeded(f"expands to more than {MAX_DEPTH} levels", position(child.span.start))
        measured[id(node)] = size, depth


def _list_children(node: Node) -> list[Node]:
    if isinstance(node, Mapping):
        return [part for entry in node.entries for part in (entry.key, entry.value)]
    return list(node.items) if isinstance(node, Sequence) else []
