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

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __repr__(self) -> str:
        return f"Unknown({self.reason!r})"


class Node:
    """A node of the tree. `span` covers its text; a block collection's ends with its last child."""

    __slots__ = ("span",)
    span: Span


class Scalar(Node):
    """A single value. `text` is what is between the quotes, unescaped; `style` is empty for plain text.

    `value` is the typed value once it is known; ask `Document.scalar_value` for it.
    """

    __slots__ = ("is_anchored", "style", "tag", "text", "value")

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
        self.is_anchored = anchored
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
    def is_key_quoted(self) -> bool:
        """Whether the key is in quotes."""
        return isinstance(self.key, Scalar) and bool(self.key.style)

    @property
    def span(self) -> Span:
        """From the key's first byte to the value's last."""
        return Span(self.key.span.start, max(self.key.span.end, self.value.span.end))


class Mapping(Node):
    """Keys and values in the order of the text; duplicates are all here, the last one wins."""

    __slots__ = ("_index", "entries", "is_flow")

    def __init__(self, span: Span, entries: list[Entry], flow: bool) -> None:
        self.span = span
        self.entries = entries
        self.is_flow = flow
        self._index: dict[str, Entry] | None = None

    @property
    def index(self) -> dict[str, Entry]:
        """Entries by key: the last duplicate wins, and keys merged in by `<<` are behind the mapping's own."""
        if self._index is None:
            self._index = {}
            own_entries: dict[str, Entry] = {}
            for entry in self.entries:
                name = entry.name
                if name == "<<" and isinstance(entry.key, Scalar) and not entry.key.style:
                    for source in _find_merge_sources(entry.value):
                        for key, merged in source.index.items():
                            self._index.setdefault(key, merged)
                elif name is not None:
                    own_entries[name] = entry
            self._index.update(own_entries)
        return self._index

    def get(self, key: str) -> Entry | None:
        """The entry that wins for `key`."""
        return self.index.get(key)


def _find_merge_sources(node: Node) -> Iterator[Mapping]:
    target = follow(node)
    if isinstance(target, Mapping):
        yield target
    elif isinstance(target, Sequence):
        for item in target.items:
            yield from _find_merge_sources(item)


class Sequence(Node):
    """A list."""

    __slots__ = ("is_flow", "items")

    def __init__(self, span: Span, items: list[Node], flow: bool) -> None:
        self.span = span
        self.items = items
        self.is_flow = flow


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
    is_placeholder: ClassVar[bool] = False

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

    def find_entry(self, route: Route) -> Entry | None:
        """The mapping entry at `route`, or None (also where the route ends in a list index)."""
        if not route or not isinstance(route[-1], str):
            return None
        parent = self.find_node(route[:-1])
        return parent.get(route[-1]) if isinstance(parent, Mapping) else None

    def find_node(self, route: Route) -> Node | None:
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

    def get_assumption(self, route: Route) -> str:
        """What the value at `route` rests on where the text gives it only by default; empty where it is certain."""
        return ""

    def get_spelled_route(self, route: Route) -> Route:
        """A route as the text spells it: a call may have another name for a setting than the tree."""
        return route

    def get_value(self, route: Route = ()) -> Any:
        """The plain value at `route` as the document's reader types it; MISSING where nothing is there.

        Raises DocumentError where there are more than MAX_VALUES values, which aliases can multiply.
        """
        node = self.find_node(route)
        if type(node) is Scalar:
            return self.get_scalar_value(node)
        return MISSING if node is None else self.build_value(node)

    def build_value(self, node: Node) -> Any:
        """The plain value of a node: dicts, lists and typed scalars."""
        return self.get_scalar_value(node) if type(node) is Scalar else self._build_value(node, [self.MAX_VALUES], 0)

    def _build_value(self, node: Node, budget: list[int], depth: int) -> Any:
        if type(node) is Alias:
            node = follow(node)
        if isinstance(node, Scalar):
            return self.get_scalar_value(node)
        budget[0] -= 1
        if budget[0] < 0 or depth > 200:
            raise DocumentError("more values than a configuration can have", self.locate(node.span.start))
        if isinstance(node, Mapping):
            budget[0] -= len(node.index)
            return {key: self._build_value(entry.value, budget, depth + 1) for key, entry in node.index.items()}
        assert isinstance(node, Sequence)
        budget[0] -= len(node.items)
        return [self._build_value(item, budget, depth + 1) for item in node.items]

    def get_scalar_value(self, scalar: Scalar) -> Any:
        """The typed value of a scalar."""
        return scalar.value

    def list_comments(self) -> list[Comment]:
        """Every comment of the text, in order."""
        return []

    def find_extent(self, line: int) -> tuple[int, int]:
        """Return the first and the last line of the command or text that a line is part of: what a comment above is
        about.
        """
        if self._blocks is None:
            self._blocks = sorted(
                (self.locate(span.start).line, self.locate(span.end).line) for span in self.list_blocks()
            )
        at = bisect_right(self._blocks, (line, len(self.source))) - 1
        block = self._blocks[at] if at >= 0 else (0, 0)
        return block if block[1] >= line else (line, line)

    def list_blocks(self) -> Iterable[Span]:
        """Return the texts over several lines, none in another."""
        return ()

    def list_mappings(self) -> list[tuple[Route, Mapping]]:
        """Every mapping of the text with its route, parents first."""
        if self._mappings is None:
            self._mappings = []
            stack: list[tuple[Route, Node]] = [((), self.root)] if self.root is not None else []
            while stack:
                route, node = stack.pop()
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
                stack += reversed(children)
        return self._mappings

    def find_duplicate_keys(self) -> Iterator[tuple[Route, Entry, Entry]]:
        """Each entry whose key its mapping (at the route) already has, and the entry that had it first."""
        for route, mapping in self.list_mappings():
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

    def locate(self, offset: int) -> Position:
        """Line and column of a byte offset. A byte-order mark has no width."""
        line = bisect_right(self.line_starts, offset)
        start = self.line_starts[line - 1]
        prefix = self.source[start:offset]
        if line == 1 and prefix.startswith(BOM):
            prefix = prefix[len(BOM) :]
        return Position(line, len(prefix.decode("utf-8", "replace")) + 1)

    def get_text(self, span: Span) -> str:
        """The text of a span."""
        return self.source[span.start : span.end].decode("utf-8", "replace")

    @property
    def newline(self) -> str:
        """The line ending that the file uses (its first one)."""
        at = self.source.find(b"\n")
        return "\r\n" if at > 0 and self.source[at - 1 : at] == b"\r" else "\n"

    def find_line_end(self, offset: int) -> int:
        """The offset of the line ending (or of the end of the file) at or after `offset`."""
        at = self.source.find(b"\n", offset)
        if at < 0:
            return len(self.source)
        return at - 1 if at > offset and self.source[at - 1 : at] == b"\r" else at

    def build_edits(self, changes: Iterable[Change]) -> list[Edit]:
        """The edits that make `changes`, sorted, without overlap.

        Raises CannotEdit where a change would touch what it must not (a comment, an anchored value, computed text).
        """
        raise CannotEdit(f"{self.syntax} cannot be edited")


def find_continued_lines(document: Document, line: int) -> tuple[int, int]:
    """Return the first and the last of the lines that backslashes at their ends join to one."""
    starts = document.line_starts

    def is_continued(number: int) -> bool:
        end = document.find_line_end(starts[number - 1]) if 0 < number < len(starts) else 0
        return document.source[end - 1 : end] == b"\\"

    first = last = line
    while is_continued(first - 1):
        first -= 1
    while is_continued(last):
        last += 1
    return first, last


def decode(source: bytes) -> str:
    """The text of a file without its byte-order mark. Raises NotText at the first byte that is not UTF-8."""
    try:
        return source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # utf-8-sig counts from behind the mark
        offset = error.start + (len(BOM) if source.startswith(BOM) else 0)
        before = source[:offset]
        line = before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].removeprefix(BOM).decode("utf-8", "replace")) + 1
        raise NotText(f"not UTF-8: byte 0x{source[offset]:02x}", Position(line, column)) from None


def build_offset_converter(text: str, source: bytes) -> Callable[[int], int] | None:
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


def list_scalars(node: Node | None) -> Iterator[Scalar]:
    """Every scalar below a node, keys included, each once (aliases are not followed)."""
    stack = [node] if node is not None else []
    while stack:
        node = stack.pop()
        if isinstance(node, Scalar):
            yield node
        elif isinstance(node, Mapping):
            for entry in node.entries:
                stack += (entry.key, entry.value)
        elif isinstance(node, Sequence):
            stack += node.items


def sort_edits(edits: Iterable[Edit]) -> list[Edit]:
    """The edits by place; those at one place keep their order. Raises CannotEdit where two overlap."""
    result = sorted(edits, key=lambda edit: edit.span)
    for first, second in zip(result, result[1:]):
        if second.span.start < first.span.end:
            raise CannotEdit("two changes of the same text")
    return result


def apply_edits(source: bytes, edits: Iterable[Edit]) -> bytes:
    """The source after the edits. Raises CannotEdit where two overlap."""
    parts: list[bytes] = []
    copied_until = 0
    for edit in sort_edits(edits):
        parts.append(source[copied_until : edit.span.start])
        parts.append(edit.text.encode("utf-8"))
        copied_until = edit.span.end
    parts.append(source[copied_until:])
    return b"".join(parts)
