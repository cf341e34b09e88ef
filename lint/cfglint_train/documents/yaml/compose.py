"""The tree of a YAML text, built from parse events, which know where everything stands.

Scalars are typed later, on demand: the framework is only known after the tree was looked at.
"""

from __future__ import annotations

from collections.abc import Callable

import yaml

from cfglint_train.documents.document import (
    Alias,
    Document,
    DocumentError,
    Entry,
    Mapping,
    Node,
    Position,
    Scalar,
    Sequence,
    Span,
    byte_offsets,
)
from cfglint_train.documents.limits import MAX_DEPTH, MAX_KEYS, MAX_NODES, MAX_SLOW_BYTES, BeyondLimits
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final

START: Final = Position(1, 1)
_BLOCK_STYLES: Final = ("|", ">")


class Stop(Frozen):
    """Where a loader stops reading a text, and why."""

    message: str
    position: Position
    before: int
    """Characters before the place."""


def compose(text: str, source: bytes) -> tuple[Node | None, Stop | None]:
    """Return the root of a text, or None if it is empty, and where libyaml stops if only PyYAML's scanner takes it.

    Raises DocumentError if neither can parse it, and BeyondLimits.
    """
    loaders: list[type[Any]] = [yaml.SafeLoader] if len(source) <= MAX_SLOW_BYTES else []
    if hasattr(yaml, "CSafeLoader"):
        loaders.insert(0, yaml.CSafeLoader)
    first: Stop | None = None
    for loader in loaders:
        parser: Any = None
        stack: _Stack = []
        try:
            parser = loader(text)
            return _build(source, byte_offsets(text, source), parser.get_event, stack), first
        except ERRORS as error:
            if first is None:
                stop = stop_of(error, text, parser)
                first = stop._replace(message=stop.message + _opened(error, stack, source, stop.position))
        finally:
            if parser is not None:
                parser.dispose()
    if first is None:
        raise BeyondLimits(f"more than {MAX_SLOW_BYTES >> 10} KiB, and PyYAML has no libyaml here", START)
    raise DocumentError(first.message, first.position)


ERRORS: Final = (yaml.MarkedYAMLError, yaml.reader.ReaderError, ValueError)
"""What PyYAML raises for a text that it refuses; ValueError for `\\UFFFFFFFF`."""


def stop_of(error: Exception, text: str, loader: Any) -> Stop:
    """Return what PyYAML finds wrong with a text, in one line, and where."""
    if isinstance(error, yaml.reader.ReaderError):
        # libyaml and PyYAML count its position differently, so the character is looked up.
        bad = yaml.reader.Reader.NON_PRINTABLE.search(text)
        before = text[: bad.start()] if bad else ""
        place = Position(before.count("\n") + 1, len(before) - before.rfind("\n"))
        return Stop(f"control character ({error.reason})", place, len(before))
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        words = error.problem or error.context or "not YAML"
        if words == "second occurrence":
            words = str(error.context).partition(";")[0]  # found duplicate anchor 'name'
    else:
        mark, words = loader.get_mark(), str(error)
    message = " ".join(words.split())
    if mark is None:
        return Stop(message, START, 0)
    return Stop(message, Position(mark.line + 1, mark.column + 1), mark.index)


_Stack = list[tuple[Mapping | Sequence, list[Node]]]
"""Open collections, innermost last, each with the key that waits for its value."""


def _opened(error: Any, stack: _Stack, source: bytes, place: Position) -> str:
    """Return where a quote or bracket was opened that is still open at an error, or that ends on its line."""
    line = Document("", source).position
    if not isinstance(error, yaml.MarkedYAMLError):
        return ""
    unexpected = (error.problem or "").startswith("found unexpected ")  # the end, or a new document; no wrong escape
    if unexpected and "quoted scalar" in (error.context or "") and error.context_mark is not None:
        return f"; the quote on line {error.context_mark.line + 1} is not closed"
    if stack and isinstance(last := _last(*stack[-1]), Scalar) and last.style in ("'", '"'):
        start, end = line(last.span.start).line, line(last.span.end).line
        if start < end == place.line:
            return f"; the quote on line {start} is closed on line {end}"
    for node, _ in reversed(stack):
        sign = source[node.span.start : node.span.start + 1]
        if node.flow and sign in (b"[", b"{"):
            return f"; the `{sign.decode()}` on line {line(node.span.start).line} is not closed"
    return ""


def _last(node: Mapping | Sequence, waiting: list[Node]) -> Node | None:
    """Return the last node of an open collection."""
    if waiting:
        return waiting[-1]
    if isinstance(node, Sequence):
        return node.items[-1] if node.items else None
    return node.entries[-1].value if node.entries else None


def _build(
    source: bytes, offset: Callable[[int], int] | None, next_event: Callable[[], Any], stack: _Stack
) -> Node | None:
    scalar_event, alias_event = yaml.ScalarEvent, yaml.AliasEvent
    mapping_start, sequence_start = yaml.MappingStartEvent, yaml.SequenceStartEvent
    collection_ends = (yaml.MappingEndEvent, yaml.SequenceEndEvent)
    anchors: dict[str, Node] = {}
    root: Node | None = None
    documents = 0
    events = keys = 0
    aliased = False
    while True:
        event = next_event()
        kind = type(event)
        events += 1
        if events > MAX_NODES:
            raise BeyondLimits(f"more than {MAX_NODES:,} values", _position(event))
        node: Node
        if kind is scalar_event:
            start, end = event.start_mark.index, event.end_mark.index
            if offset is not None:
                start, end = offset(start), offset(end)
            plain, quoted = event.implicit
            text, anchor = event.value, event.anchor
            if plain:
                node = Scalar(Span(start, end), text, "", None, anchor is not None)
            else:
                style = event.style or ""
                if style in _BLOCK_STYLES:
                    end = _block_scalar_end(source, start, end)
                node = Scalar(Span(start, end), text, style, None, anchor is not None)
                if quoted:
                    node.value = text
                else:
                    node.tag = event.tag
            if anchor is not None:
                anchors[anchor] = node
        elif kind is mapping_start or kind is sequence_start:
            if len(stack) >= MAX_DEPTH:
                raise BeyondLimits(f"nested deeper than {MAX_DEPTH} levels", _position(event))
            start = event.start_mark.index
            if offset is not None:
                start = offset(start)
            flows = bool(event.flow_style)
            made: Mapping | Sequence = (
                Mapping(Span(start, start), [], flows)
                if kind is mapping_start
                else Sequence(Span(start, start), [], flows)
            )
            if event.anchor is not None:
                anchors[event.anchor] = made
            stack.append((made, []))
            continue
        elif kind in collection_ends:
            closed = stack.pop()[0]
            if closed.flow:
                end = event.end_mark.index
                closed.span = Span(closed.span.start, offset(end) if offset is not None else end)
            else:
                closed.span = Span(closed.span.start, _last_end(closed))
            if type(closed) is Mapping:
                keys += len(closed.entries)
                if keys > MAX_KEYS:
                    raise BeyondLimits(f"more than {MAX_KEYS:,} keys", _position(event))
            node = closed
            if closed.flow and _is_mark(closed):
                node = Scalar(closed.span, source[closed.span.start : closed.span.end].decode())
        elif kind is alias_event:
            start, end = event.start_mark.index, event.end_mark.index
            if offset is not None:
                start, end = offset(start), offset(end)
            if event.anchor not in anchors:
                raise DocumentError(f"the alias *{event.anchor} has no anchor", _position(event))
            node = Alias(Span(start, end), anchors[event.anchor])
            aliased = True
        elif kind is yaml.DocumentStartEvent:
            documents += 1
            if documents > 1:
                raise DocumentError("a second document starts here; a configuration is one", _position(event))
            continue
        elif kind is yaml.StreamEndEvent:
            if aliased and root is not None:
                from cfglint_train.documents.yaml import aliases

                aliases.check(root, Document("", source).position)
            return root
        else:
            continue
        if not stack:
            root = node
            continue
        parent, waiting = stack[-1]
        if type(parent) is Sequence:
            parent.items.append(node)
        elif waiting:
            parent.entries.append(Entry(waiting.pop(), node))  # type: ignore[union-attr]
        else:
            waiting.append(node)


def _is_mark(closed: Mapping | Sequence) -> bool:
    """Whether a template's engine puts a value here (`{{ lr }}`): for YAML a mapping whose one key is a mapping, which
    no loader accepts.
    """
    if not isinstance(closed, Mapping) or len(closed.entries) != 1:
        return False
    key = closed.entries[0].key
    return type(key) is Mapping and key.span.start == closed.span.start + 1


def _position(event: Any) -> Position:
    return Position(event.start_mark.line + 1, event.start_mark.column + 1)


def _last_end(node: Node) -> int:
    if isinstance(node, Mapping) and node.entries:
        return node.entries[-1].span.end
    if isinstance(node, Sequence) and node.items:
        return max(node.span.start + 1, node.items[-1].span.end)
    return node.span.start


def _block_scalar_end(source: bytes, start: int, end: int) -> int:
    header = source[start : source.find(b"\n", start)]
    if b"+" in header:
        return end
    return start + len(source[start:end].rstrip())
