"""Documents: a file as text plus a tree of positioned nodes, and edits to change it.

Offsets are bytes into `Document.source`, the file as it is on disk (a byte-order mark included), so that an edit never
disturbs a byte outside its span. Lines and columns are counted from 1; columns count characters.

The tree has three kinds of node (`Scalar`, `Mapping`, `Sequence`) and, in YAML, `Alias`. A **route** is the path from
the root to a node: keys of mappings and indices of sequences. Changes refer to routes (`Set`, `Delete`, `Rename`,
`Append`); each syntax turns them into edits in the file's own style.

The records here and elsewhere are named tuples rather than dataclasses: a dataclass costs 0.66 ms to define and its
module 8 ms to import, too much for a command that starts in 50 ms (`benchmarks/`).
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
    """Bytes `start` (inclusive) to `end` (exclusive) of a document's source."""

    start: int
    end: int


class Position(Frozen):
    """A line and a column for messages, both counted from 1; the column counts characters."""

    line: int
    column: int


class Edit(Frozen):
    """A replacement of the bytes of `span` with `text`. An empty span inserts; an empty string deletes."""

    span: Span
    text: str


class Comment(Frozen):
    """A comment, including its marker."""

    span: Span
    text: str


class Problem(Frozen):
    """A construct that cfglint reads but the launcher may reject: a duplicate key, a comment in JSON."""

    kind: str
    span: Span
    message: str
    related: Span | None = None


class Set(Frozen):
    """A new value for the node at `route`.

    A missing key is created after the first key of `beside` that is present.
    """

    route: Route
    value: Any
    beside: tuple[str, ...] = ()
    moved: Route = ()
    """Deleted entry that a created one replaces: the comment at the end of its line moves too."""


class Append(Frozen):
    """A new last item for the list at `route`. A missing list is created as by `Set`."""

    route: Route
    value: Any
    beside: tuple[str, ...] = ()


class Delete(Frozen):
    """The removal of the key (or list item) at `route` with its value."""

    route: Route


class Rename(Frozen):
    """A new key for the entry at `route`; the value and comments stay."""

    route: Route
    key: str


Change = Set | Append | Delete | Rename


class DocumentError(Exception):
    """Error for a file that cannot be parsed in its syntax, with the position of the fault."""

    def __init__(
        self, message: str, position: Position | None = None, help: str | None = None, stop: Position | None = None
    ) -> None:
        """Store the message, the position (by default the start of the text) and the place where the parser stops."""
        super().__init__(message)
        self.message = message
        self.position = position or Position(1, 1)
        self.help = help
        self.stop = stop or self.position


class NotText(DocumentError):
    """Error for bytes that are not UTF-8."""


class CannotEdit(Exception):
    """Error for a change that cannot be written, such as a change to protected text; the message is the reason."""


class _Missing:
    """Marker for the value of an absent key. `None` is a value, so it cannot mark absence."""

    def __repr__(self) -> str:
        """Return the name of the constant."""
        return "MISSING"

    def __bool__(self) -> bool:
        """Return False, so that `MISSING` is falsy."""
        return False


MISSING: Final = _Missing()


MAX_DIGITS: Final = 300
"""Maximum digits of an integer. Longer integers stay strings: no float holds them and no trainer uses them."""


class Unknown:
    """The value of a setting that cannot be determined from the text.

    `reason` names the expression or fact that it depends on. `path` is the value as written if it is a path and only
    its folder is unknown (`$MODELS/Qwen/Qwen2.5-7B`), else empty.
    """

    __slots__ = ("path", "reason")

    def __init__(self, reason: str, path: str = "") -> None:
        """Store the reason and the path."""
        self.reason = reason
        self.path = path

    def __repr__(self) -> str:
        """Return the class name with the reason."""
        return f"Unknown({self.reason!r})"


class Node:
    """A node of the tree. `span` covers its text; the span of a block collection ends with its last child."""

    __slots__ = ("span",)
    span: Span


class Scalar(Node):
    """A single value. `text` is the unescaped text between the quotes; `style` is empty for plain text.

    `value` is the typed value once it is computed; call `Document.get_scalar_value` to read it.
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
        """Store the parts of the scalar."""
        self.span = span
        self.text = text
        self.style = style
        self.tag = tag
        self.is_anchored = anchored
        self.value = value


class Entry:
    """A `key: value` pair of a mapping. `name` is the key's text, or None if the key is a collection."""

    __slots__ = ("key", "name", "value")

    def __init__(self, key: Node, value: Node) -> None:
        """Store key and value and derive the name."""
        self.key = key
        self.value = value
        target = key if type(key) is Scalar else follow(key)
        self.name: str | None = target.text if isinstance(target, Scalar) else None

    @property
    def is_key_quoted(self) -> bool:
        """True if the key is in quotes."""
        return isinstance(self.key, Scalar) and bool(self.key.style)

    @property
    def span(self) -> Span:
        """Bytes from the start of the key to the end of the value."""
        return Span(self.key.span.start, max(self.key.span.end, self.value.span.end))


class Mapping(Node):
    """Keys and values in source order. Duplicate keys are kept; the last of them wins."""

    __slots__ = ("_index", "entries", "is_flow")

    def __init__(self, span: Span, entries: list[Entry], flow: bool) -> None:
        """Store the entries."""
        self.span = span
        self.entries = entries
        self.is_flow = flow
        self._index: dict[str, Entry] | None = None

    @property
    def index(self) -> dict[str, Entry]:
        """Entries by key. The last duplicate wins, and the mapping's own keys win over keys merged with `<<`."""
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
        """Return the entry that wins for `key`, or None."""
        return self.index.get(key)


def _find_merge_sources(node: Node) -> Iterator[Mapping]:
    target = follow(node)
    if isinstance(target, Mapping):
        yield target
    elif isinstance(target, Sequence):
        for item in target.items:
            yield from _find_merge_sources(item)


class Sequence(Node):
    """A list of nodes."""

    __slots__ = ("is_flow", "items")

    def __init__(self, span: Span, items: list[Node], flow: bool) -> None:
        """Store the items."""
        self.span = span
        self.items = items
        self.is_flow = flow


class Alias(Node):
    """A YAML alias (`*name`). `span` is its place, `target` the node that it refers to."""

    __slots__ = ("target",)

    def __init__(self, span: Span, target: Node) -> None:
        """Store span and target."""
        self.span = span
        self.target = target


def follow(node: Node) -> Node:
    """Return the node itself, or the target if it is an alias."""
    while isinstance(node, Alias):
        node = node.target
    return node


class Document:
    """A file as text plus a tree. Each syntax has a subclass. A document never changes; edits produce new bytes.

    `path` is the path as the user named it, with forward slashes. `root` is None for an empty document.
    """

    syntax: ClassVar[str] = ""
    # Limit against alias bombs: cfglint refuses a tree that expands to more values.
    MAX_VALUES: ClassVar[int] = 200_000
    # True for a document that replaces a missing file; findings must not point into it.
    is_placeholder: ClassVar[bool] = False

    def __init__(self, path: str, source: bytes) -> None:
        """Store path and source; subclasses parse the source."""
        self.path = path
        self.source = source
        self.root: Node | None = None
        self.problems: list[Problem] = []
        self._line_starts: list[int] | None = None
        self._mappings: list[tuple[Route, Mapping]] | None = None
        self._blocks: list[tuple[int, int]] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path and the source without the tree, because other processes only show the text.

        The unpickled object is a plain `Document`, whatever the subclass.
        """
        return Document, (self.path, self.source)

    def find_entry(self, route: Route) -> Entry | None:
        """Return the mapping entry at `route`, or None if there is none or the route ends in a list index."""
        if not route or not isinstance(route[-1], str):
            return None
        parent = self.find_node(route[:-1])
        return parent.get(route[-1]) if isinstance(parent, Mapping) else None

    def find_node(self, route: Route) -> Node | None:
        """Return the node at `route` (aliases followed), or None."""
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
        """Return whether the text states every setting of the mapping at `route`."""
        return True

    def get_assumption(self, route: Route) -> str:
        """Return the assumption behind the value at `route` if the value is only a default, else ""."""
        return ""

    def locate_entry(self, entry: Entry) -> tuple[Document, Span]:
        """Return where a user edits a setting: the document, and the span of key and value, or of a section's key."""
        return self, entry.span if isinstance(entry.value, Scalar) else entry.key.span

    def list_spans(self, entry: Entry) -> list[Span]:
        """Return the parts of the text that state a setting or a section."""
        return [entry.span]

    def locate_key(self, entry: Entry) -> tuple[Document, Span]:
        """Return where the key of a setting is written."""
        return self, entry.key.span

    def get_spelled_route(self, route: Route) -> Route:
        """Return the route as the text spells it, because a call may name a setting differently from the tree."""
        return route

    def get_value(self, route: Route = ()) -> Any:
        """Return the plain value at `route` as the document's loader types it, or MISSING if nothing is there.

        Raise `DocumentError` if there are more than MAX_VALUES values, which aliases can cause.
        """
        node = self.find_node(route)
        if type(node) is Scalar:
            return self.get_scalar_value(node)
        return MISSING if node is None else self.build_value(node)

    def build_value(self, node: Node) -> Any:
        """Return the plain value of a node: dicts, lists and typed scalars."""
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
        """Return the typed value of a scalar."""
        return scalar.value

    def list_comments(self) -> list[Comment]:
        """Return every comment of the text, in order."""
        return []

    def find_extent(self, line: int) -> tuple[int, int]:
        """Return the first and the last line of the command or text that contains a line.

        A comment above the first line applies to all of these lines.
        """
        if self._blocks is None:
            self._blocks = sorted(
                (self.locate(span.start).line, self.locate(span.end).line) for span in self.list_blocks()
            )
        at = bisect_right(self._blocks, (line, len(self.source))) - 1
        block = self._blocks[at] if at >= 0 else (0, 0)
        return block if block[1] >= line else (line, line)

    def list_blocks(self) -> Iterable[Span]:
        """Return the spans of commands and texts that may cover several lines; they never nest."""
        return ()

    def list_mappings(self) -> list[tuple[Route, Mapping]]:
        """Return every mapping of the text with its route, parents first."""
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
        """Yield each repeated key: the route of its mapping, the repeated entry and the first entry."""
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
        """Offsets of the first byte of every line."""
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
        """Return the line and column of a byte offset. A byte-order mark has no width."""
        line = bisect_right(self.line_starts, offset)
        start = self.line_starts[line - 1]
        prefix = self.source[start:offset]
        if line == 1 and prefix.startswith(BOM):
            prefix = prefix[len(BOM) :]
        return Position(line, len(prefix.decode("utf-8", "replace")) + 1)

    def get_text(self, span: Span) -> str:
        """Return the text of a span."""
        return self.source[span.start : span.end].decode("utf-8", "replace")

    @property
    def newline(self) -> str:
        """Line ending of the file, taken from its first line."""
        at = self.source.find(b"\n")
        return "\r\n" if at > 0 and self.source[at - 1 : at] == b"\r" else "\n"

    def find_line_end(self, offset: int) -> int:
        """Return the offset of the first line ending at or after `offset`, or the end of the file."""
        at = self.source.find(b"\n", offset)
        if at < 0:
            return len(self.source)
        return at - 1 if at > offset and self.source[at - 1 : at] == b"\r" else at

    def build_edits(self, changes: Iterable[Change]) -> list[Edit]:
        """Return the edits that make `changes`, sorted and without overlap.

        Raise `CannotEdit` if a change would touch protected text (a comment, an anchored value, computed text).
        """
        raise CannotEdit(f"{self.syntax} cannot be edited")


def find_continued_lines(document: Document, line: int) -> tuple[int, int]:
    """Return the first and the last line of the group around `line` that trailing backslashes join."""
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
    """Return the text of a file without its byte-order mark.

    Raise `NotText` at the first byte that is not UTF-8.
    """
    try:
        return source.removeprefix(BOM).decode()
    except UnicodeDecodeError as error:
        # offsets are counted from the end of the byte-order mark
        offset = error.start + (len(BOM) if source.startswith(BOM) else 0)
        before = source[:offset]
        line = before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].removeprefix(BOM).decode("utf-8", "replace")) + 1
        raise NotText(f"not UTF-8: byte 0x{source[offset]:02x}", Position(line, column)) from None


def build_offset_converter(text: str, source: bytes) -> Callable[[int], int] | None:
    """Return a function that maps indices of the decoded text to byte offsets, or None if the two are always equal."""
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
    """Yield every scalar below a node once, keys included; aliases are not followed."""
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
    """Return the edits sorted by place; edits at the same place keep their order.

    Raise `CannotEdit` if two edits overlap.
    """
    result = sorted(edits, key=lambda edit: edit.span)
    for first, second in zip(result, result[1:]):
        if second.span.start < first.span.end:
            raise CannotEdit("two edits of the same text")
    return result


def apply_edits(source: bytes, edits: Iterable[Edit]) -> bytes:
    """Return the source after the edits. Raise `CannotEdit` if two edits overlap."""
    parts: list[bytes] = []
    copied_until = 0
    for edit in sort_edits(edits):
        parts.append(source[copied_until : edit.span.start])
        parts.append(edit.text.encode("utf-8"))
        copied_until = edit.span.end
    parts.append(source[copied_until:])
    return b"".join(parts)
