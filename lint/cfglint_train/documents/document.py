"""A file as text plus a tree of positioned nodes, and the one way to change it: edits.

Offsets are bytes into `Document.source`, the file as it is on disk (a byte-order mark included), so that an
edit can never disturb a byte outside its span. Lines and columns are counted from 1; columns count characters.

The tree has three kinds of node (`Scalar`, `Mapping`, `Sequence`) and, in YAML, `Alias`. A **route** is the path
from the root to a node: keys of mappings and indices of sequences. Changes are stated on routes (`Set`, `Delete`,
`Rename`, `Append`); each syntax turns them into edits in the file's own style.

The records here and elsewhere are named tuples rather than dataclasses: a dataclass costs 0.66 ms to define and its
module 8 ms to import, which a command that starts in 50 ms does not have (`benchmarks/`).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, ClassVar, Final

BOM: Final = b"\xef\xbb\xbf"

Route = tuple[str | int, ...]


class Span(Frozen):
    """Bytes `start` (included) to `end` (excluded) of a document's source."""

    start: int
    end: int


class Position(Frozen):
    """A place for people: line and column from 1, the column in characters."""

    line: int
    column: int


class Edit(Frozen):
    """Replace the bytes of `span` by `text`. An empty span inserts, an empty text deletes."""

    span: Span
    text: str


class Comment(Frozen):
    """One comment, its marker included."""

    span: Span
    text: str


class Problem(Frozen):
    """What the syntax lets us read and the launcher may refuse: a duplicate key, a comment in JSON."""

    kind: str
    span: Span
    message: str
    related: Span | None = None


class Set(Frozen):
    """Give the node at `route` a new value. A missing key is created after the first of `beside` that is present."""

    route: Route
    value: Any
    beside: tuple[str, ...] = ()


class Append(Frozen):
    """Add `value` at the end of the list at `route`; a missing list is created as `Set` would create it."""

    route: Route
    value: Any
    beside: tuple[str, ...] = ()


class Delete(Frozen):
    """Remove the key (or list item) at `route` with its value."""

    route: Route


class Rename(Frozen):
    """Give the entry at `route` the key `key`; value and comments stay."""

    route: Route
    key: str


Change = Set | Append | Delete | Rename


class DocumentError(Exception):
    """The text cannot be read as its syntax; carries the place."""

    def __init__(self, message: str, position: Position | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.position = position or Position(1, 1)


class NotText(DocumentError):
    """The bytes are not UTF-8."""


class CannotEdit(Exception):
    """The change cannot be written without touching what it must not touch; says why."""


class _Missing:
    """The value of a key that is not there (`None` is a value)."""

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Final = _Missing()


MAX_DIGITS: Final = 300
"""Longer integers stay text: no float holds them, and nothing that trains means them."""


class Unknown:
    """The value of a setting that cannot be determined from the text: `why` names what it depends on."""

    __slots__ = ("why",)

    def __init__(self, why: str) -> None:
        self.why = why

    def __repr__(self) -> str:
        return f"Unknown({self.why!r})"


class Node:
    """A node of the tree. `span` covers its text; a block collection's ends with its last child."""

    __slots__ = ("span",)
    span: Span


class Scalar(Node):
    """A single value. `text` is what is between the quotes, unescaped; `style` is empty for plain text.

    `value` is the typed value once it is known; ask `Document.scalar_value` for it.
    """

    __slots__ = ("anchored", "style", "tag", "text", "value")

    def __init__(
        self,
        span: Span,
        text: str,
        style: str = "",
        tag: str | None = None,
        anchored: bool = False,
        value: Any = MISSING,
    ) -> None:
        self.span = span
        self.text = text
        self.style = style
        self.tag = tag
        self.anchored = anchored
        self.value = value


class Entry:
    """One `key: value` of a mapping. `name` is the key's text, or None for a key that is itself a collection."""

    __slots__ = ("key", "name", "value")

    def __init__(self, key: Node, value: Node) -> None:
        self.key = key
        self.value = value
        target = key if type(key) is Scalar else follow(key)
        self.name: str | None = target.text if isinstance(target, Scalar) else None

    @property
    def key_quoted(self) -> bool:
        """Whether the key is in quotes."""
        return isinstance(self.key, Scalar) and bool(self.key.style)

    @property
    def span(self) -> Span:
        """From the key's first byte to the value's last."""
        return Span(self.key.span.start, max(self.key.span.end, self.value.span.end))


class Mapping(Node):
    """Keys and values in the order of the text; duplicates are all here, the last one wins."""

    __slots__ = ("_index", "entries", "flow")

    def __init__(self, span: Span, entries: list[Entry], flow: bool) -> None:
        self.span = span
        self.entries = entries
        self.flow = flow
        self._index: dict[str, Entry] | None = None

    @property
    def index(self) -> dict[str, Entry]:
        """Entries by key: the last duplicate wins, and keys merged in by `<<` are behind the mapping's own."""
        if self._index is None:
            self._index = {}
            own: dict[str, Entry] = {}
            for entry in self.entries:
                name = entry.name
                if name == "<<" and isinstance(entry.key, Scalar) and not entry.key.style:
                    for source in _merge_sources(entry.value):
                        for key, merged in source.index.items():
                            self._index.setdefault(key, merged)
                elif name is not None:
                    own[name] = entry
            self._index.update(own)
        return self._index

    def get(self, key: str) -> Entry | None:
        """The entry that wins for `key`."""
        return self.index.get(key)


def _merge_sources(node: Node) -> Iterator[Mapping]:
    target = follow(node)
    if isinstance(target, Mapping):
        yield target
    elif isinstance(target, Sequence):
        for item in target.items:
            yield from _merge_sources(item)


class Sequence(Node):
    """A list."""

    __slots__ = ("flow", "items")

    def __init__(self, span: Span, items: list[Node], flow: bool) -> None:
        self.span = span
        self.items = items
        self.flow = flow


class Alias(Node):
    """A YAML `*name`: `span` is where it is, `target` the node that it stands for."""

    __slots__ = ("target",)

    def __init__(self, span: Span, target: Node) -> None:
        self.span = span
        self.target = target


def follow(node: Node) -> Node:
    """The node itself, or what an alias stands for."""
    while isinstance(node, Alias):
        node = node.target
    return node


class Document:
    """A file as text plus a tree. One subclass per syntax; a document never changes, an edit makes new bytes.

    `path` is the path as the user named it, with forward slashes. `root` is None in an empty document.
    """

    syntax: ClassVar[str] = ""
    # Alias bombs end here: a tree that unfolds to more values than this is refused.
    MAX_VALUES: ClassVar[int] = 200_000
    # No file of the user's: it replaces one that is not there, so that no finding points into it.
    stands_in: ClassVar[bool] = False

    def __init__(self, path: str, source: bytes) -> None:
        self.path = path
        self.source = source
        self.root: Node | None = None
        self.problems: list[Problem] = []
        self._line_starts: list[int] | None = None
        self._mappings: list[tuple[Route, Mapping]] | None = None
        self._blocks: list[tuple[int, int]] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Between processes a document goes as the text that reports show, without its tree."""
        return Document, (self.path, self.source)

    def entry(self, route: Route) -> Entry | None:
        """The mapping entry at `route`, or None (also where the route ends in a list index)."""
        if not route or not isinstance(route[-1], str):
            return None
        parent = self.node(route[:-1])
        return parent.get(route[-1]) if isinstance(parent, Mapping) else None

    def node(self, route: Route) -> Node | None:
        """The node at `route` (aliases followed), or None."""
        node = self.root
        for step in route:
            if type(node) is Alias:
                node = follow(node)
            if isinstance(node, Mapping) and isinstance(step, str):
                entry = node.index.get(step)
                if entry is None:
                    return None
                node = entry.value
            elif isinstance(node, Sequence) and isinstance(step, int) and -len(node.items) <= step < len(node.items):
                node = node.items[step]
            else:
                return None
        return None if node is None else follow(node)

    def is_complete(self, route: Route) -> bool:
        """Whether all settings of the mapping at `route` are in the text."""
        return True

    def assumed(self, route: Route) -> str:
        """What the value at `route` rests on where the text gives it only by default; empty where it is certain."""
        return ""

    def spelling(self, route: Route) -> Route:
        """A route as the text spells it: a call may have another name for a setting than the tree."""
        return route

    def value(self, route: Route = ()) -> Any:
        """The plain value at `route` as the document's reader types it; MISSING where nothing is there.

        Raises DocumentError where there are more than MAX_VALUES values, which aliases can multiply.
        """
        node = self.node(route)
        if type(node) is Scalar:
            return self.scalar_value(node)
        return MISSING if node is None else self.plain(node)

    def plain(self, node: Node) -> Any:
        """The plain value of a node: dicts, lists and typed scalars."""
        return self.scalar_value(node) if type(node) is Scalar else self._plain(node, [self.MAX_VALUES], 0)

    def _plain(self, node: Node, budget: list[int], depth: int) -> Any:
        if type(node) is Alias:
            node = follow(node)
        if isinstance(node, Scalar):
            return self.scalar_value(node)
        budget[0] -= 1
        if budget[0] < 0 or depth > 200:
            raise DocumentError("more values than a configuration can have", self.position(node.span.start))
        if isinstance(node, Mapping):
            budget[0] -= len(node.index)
            return {key: self._plain(entry.value, budget, depth + 1) for key, entry in node.index.items()}
        assert isinstance(node, Sequence)
        budget[0] -= len(node.items)
        return [self._plain(item, budget, depth + 1) for item in node.items]

    def scalar_value(self, scalar: Scalar) -> Any:
        """The typed value of a scalar."""
        return scalar.value

    def comments(self) -> list[Comment]:
        """Every comment of the text, in order."""
        return []

    def extent(self, line: int) -> tuple[int, int]:
        """Return the first and the last line of the command or text that a line is part of: what a comment above is
        about.
        """
        if self._blocks is None:
            self._blocks = sorted((self.position(one.start).line, self.position(one.end).line) for one in self.blocks())
        at = bisect_right(self._blocks, (line, len(self.source))) - 1
        found = self._blocks[at] if at >= 0 else (0, 0)
        return found if found[1] >= line else (line, line)

    def blocks(self) -> Iterable[Span]:
        """Return the texts over several lines, none in another."""
        return ()

    def mappings(self) -> list[tuple[Route, Mapping]]:
        """Every mapping of the text with its route, parents first."""
        if self._mappings is None:
            self._mappings = []
            waiting: list[tuple[Route, Node]] = [((), self.root)] if self.root is not None else []
            while waiting:
                route, node = waiting.pop()
                if isinstance(node, Mapping):
                    self._mappings.append((route, node))
                    children: list[tuple[Route, Node]] = [
                        ((*route, entry.name or ""), entry.value)
                        for entry in node.entries
                        if type(entry.value) is not Scalar
                    ]
                elif isinstance(node, Sequence):
                    children = [
                        ((*route, index), item) for index, item in enumerate(node.items) if type(item) is not Scalar
                    ]
                else:
                    continue
                waiting += reversed(children)
        return self._mappings

    def duplicate_keys(self) -> Iterator[tuple[Route, Entry, Entry]]:
        """Each entry whose key its mapping (at the route) already has, and the entry that had it first."""
        for route, mapping in self.mappings():
            if len(mapping.entries) == len(mapping.index):
                continue
            first: dict[str, Entry] = {}
            for entry in mapping.entries:
                name = entry.name
                if name is not None and first.setdefault(name, entry) is not entry:
                    yield route, entry, first[name]

    @property
    def line_starts(self) -> list[int]:
        """The offset of the first byte of every line."""
        if self._line_starts is None:
            starts = [0]
            find = self.source.find
            at = find(b"\n")
            while at >= 0:
                starts.append(at + 1)
                at = find(b"\n", at + 1)
            self._line_starts = starts
        return self._line_starts

    def position(self, offset: int) -> Position:
        """Line and column of a byte offset. A byte-order mark has no width."""
        line = bisect_right(self.line_starts, offset)
        start = self.line_starts[line - 1]
        prefix = self.source[start:offset]
        if line == 1 and prefix.startswith(BOM):
            prefix = prefix[len(BOM) :]
        return Position(line, len(prefix.decode("utf-8", "replace")) + 1)

    def text(self, span: Span) -> str:
        """The text of a span."""
        return self.source[span.start : span.end].decode("utf-8", "replace")

    @property
    def newline(self) -> str:
        """The line ending that the file uses (its first one)."""
        at = self.source.find(b"\n")
        return "\r\n" if at > 0 and self.source[at - 1 : at] == b"\r" else "\n"

    def line_end(self, offset: int) -> int:
        """The offset of the line ending (or of the end of the file) at or after `offset`."""
        at = self.source.find(b"\n", offset)
        if at < 0:
            return len(self.source)
        return at - 1 if at > offset and self.source[at - 1 : at] == b"\r" else at

    def edits(self, changes: Iterable[Change]) -> list[Edit]:
        """The edits that make `changes`, sorted, without overlap.

        Raises CannotEdit where a change would touch what it must not (a comment, an anchored value, computed text).
        """
        raise CannotEdit(f"{self.syntax} cannot be edited")


def continued(document: Document, line: int) -> tuple[int, int]:
    """Return the first and the last of the lines that backslashes at their ends join to one."""
    starts = document.line_starts

    def joins(number: int) -> bool:
        end = document.line_end(starts[number - 1]) if 0 < number < len(starts) else 0
        return document.source[end - 1 : end] == b"\\"

    first = last = line
    while joins(first - 1):
        first -= 1
    while joins(last):
        last += 1
    return first, last


def decode(source: bytes) -> str:
    """The text of a file without its byte-order mark. Raises NotText at the first byte that is not UTF-8."""
    try:
        return source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # utf-8-sig counts from behind the mark
        at = error.start + (len(BOM) if source.startswith(BOM) else 0)
        before = source[:at]
        line = before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].removeprefix(BOM).decode("utf-8", "replace")) + 1
        raise NotText(f"not UTF-8: byte 0x{source[at]:02x}", Position(line, column)) from None


def byte_offsets(text: str, source: bytes) -> Callable[[int], int] | None:
    """From an index into the decoded text to an offset into the source; None where the two are the same."""
    shift = len(BOM) if source.startswith(BOM) else 0
    if text.isascii():
        return (lambda index: index + shift) if shift else None
    places: list[int] = []
    extra = [0]
    for match in re.finditer(r"[^\x00-\x7f]", text):
        places.append(match.start())
        extra.append(extra[-1] + len(match.group().encode("utf-8")) - 1)
    return lambda index: index + extra[bisect_left(places, index)] + shift


def scalars(node: Node | None) -> Iterator[Scalar]:
    """Every scalar below a node, keys included, each once (aliases are not followed)."""
    waiting = [node] if node is not None else []
    while waiting:
        node = waiting.pop()
        if isinstance(node, Scalar):
            yield node
        elif isinstance(node, Mapping):
            for entry in node.entries:
                waiting += (entry.key, entry.value)
        elif isinstance(node, Sequence):
            waiting += node.items


def ordered(edits: Iterable[Edit]) -> list[Edit]:
    """The edits by place; those at one place keep their order. Raises CannotEdit where two overlap."""
    result = sorted(edits, key=lambda edit: edit.span)
    for before, after in zip(result, result[1:]):
        if after.span.start < before.span.end:
            raise CannotEdit("two changes of the same text")
    return result


def apply(source: bytes, edits: Iterable[Edit]) -> bytes:
    """The source after the edits. Raises CannotEdit where two overlap."""
    parts: list[bytes] = []
    done = 0
    for edit in ordered(edits):
        parts.append(source[done : edit.span.start])
        parts.append(edit.text.encode("utf-8"))
        done = edit.span.end
    parts.append(source[done:])
    return b"".join(parts)
