"""Construction of YAML trees from PyYAML's parse events, which carry exact positions.

Scalars are typed later, on demand, because the framework and its dialect are known only after cfglint has
inspected the tree.
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
    build_offset_converter,
)
from cfglint_train.documents.limits import MAX_DEPTH, MAX_KEYS, MAX_NODES, MAX_SLOW_BYTES, LimitExceeded
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final

START: Final = Position(1, 1)
_BLOCK_STYLES: Final = ("|", ">")


class LoaderStop(Frozen):
    """The place where a loader stops reading a text, with the reason."""

    message: str
    position: Position
    character_offset: int
    """Number of characters before `position`."""
    help: str | None = None
    """Remedy, if one is known."""


def compose(text: str, source: bytes) -> tuple[Node | None, LoaderStop | None]:
    """Return the root node, and the place where libyaml stops if only PyYAML's own scanner can parse the text.

    The root is None for an empty text; the place is None if libyaml parses the text. Raise `DocumentError` if neither
    can parse it, and `LimitExceeded` if it is too large.
    """
    loaders: list[type[Any]] = [yaml.SafeLoader] if len(source) <= MAX_SLOW_BYTES else []
    if hasattr(yaml, "CSafeLoader"):
        loaders.insert(0, yaml.CSafeLoader)
    first: LoaderStop | None = None
    failure: DocumentError | None = None
    for loader in loaders:
        parser: Any = None
        stack: _Stack = []
        try:
            parser = loader(text)
            return _build(source, build_offset_converter(text, source), parser.get_event, stack), first
        except ERRORS as error:
            if first is None:
                from cfglint_train.documents.yaml.faults import explain  # needed only for broken files

                first = build_stop(error, text, parser)
                fault = explain(error, first.message, first.position, stack, text, source)
                position = fault.position or first.position
                failure = DocumentError(fault.message or first.message, position, fault.help, first.position)
        finally:
            if parser is not None:
                parser.dispose()
    if failure is None:
        raise LimitExceeded(f"more than {MAX_SLOW_BYTES >> 10} KiB, and PyYAML is installed without libyaml", START)
    raise failure


ERRORS: Final = (yaml.MarkedYAMLError, yaml.reader.ReaderError, ValueError)
"""Errors that PyYAML raises for a text it rejects; ValueError is raised for `\\UFFFFFFFF`."""


def build_stop(error: Exception, text: str, loader: Any) -> LoaderStop:
    """Return PyYAML's error as a single line, with its position."""
    if isinstance(error, yaml.reader.ReaderError):
        # libyaml and PyYAML count this position differently, so search for the character.
        bad = yaml.reader.Reader.NON_PRINTABLE.search(text)
        text_before = text[: bad.start()] if bad else ""
        position = Position(text_before.count("\n") + 1, len(text_before) - text_before.rfind("\n"))
        return LoaderStop(f"control character ({error.reason})", position, len(text_before))
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "not YAML"
        if problem == "second occurrence":
            problem = str(error.context).partition(";")[0]  # found duplicate anchor 'name'
    else:
        mark, problem = loader.get_mark(), str(error)
    message = " ".join(problem.split())
    if mark is None:
        return LoaderStop(message, START, 0)
    return LoaderStop(message, Position(mark.line + 1, mark.column + 1), mark.index)


_Stack = list[tuple[Mapping | Sequence, list[Node]]]
"""Open collections, innermost last, each with the key whose value has not been read yet."""


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
            raise LimitExceeded(f"more than {MAX_NODES:,} values", _get_position(event))
        node: Node
        if kind is scalar_event:
            start, end = event.start_mark.index, event.end_mark.index
            if offset is not None:
                start, end = offset(start), offset(end)
            is_plain, quoted = event.implicit
            text, anchor = event.value, event.anchor
            if is_plain:
                node = Scalar(Span(start, end), text, "", None, anchor is not None)
            else:
                style = event.style or ""
                if style in _BLOCK_STYLES:
                    end = _find_block_scalar_end(source, start, end)
                node = Scalar(Span(start, end), text, style, None, anchor is not None)
                if quoted:
                    node.value = text
                else:
                    node.tag = event.tag
            if anchor is not None:
                anchors[anchor] = node
        elif kind is mapping_start or kind is sequence_start:
            if len(stack) >= MAX_DEPTH:
                raise LimitExceeded(f"nested deeper than {MAX_DEPTH} levels", _get_position(event))
            start = event.start_mark.index
            if offset is not None:
                start = offset(start)
            is_flow = bool(event.flow_style)
            collection: Mapping | Sequence = (
                Mapping(Span(start, start), [], is_flow)
                if kind is mapping_start
                else Sequence(Span(start, start), [], is_flow)
            )
            if event.anchor is not None:
                anchors[event.anchor] = collection
            stack.append((collection, []))
            continue
        elif kind in collection_ends:
            closed = stack.pop()[0]
            if closed.is_flow:
                end = event.end_mark.index
                closed.span = Span(closed.span.start, offset(end) if offset is not None else end)
            else:
                closed.span = Span(closed.span.start, _find_end(closed))
            if type(closed) is Mapping:
                keys += len(closed.entries)
                if keys > MAX_KEYS:
                    raise LimitExceeded(f"more than {MAX_KEYS:,} keys", _get_position(event))
            node = closed
            if closed.is_flow and _is_template_mark(closed):
                node = Scalar(closed.span, source[closed.span.start : closed.span.end].decode())
        elif kind is alias_event:
            start, end = event.start_mark.index, event.end_mark.index
            if offset is not None:
                start, end = offset(start), offset(end)
            if event.anchor not in anchors:
                help = "quote the value: `*` starts an alias"
                raise DocumentError(f"the alias *{event.anchor} has no anchor", _get_position(event), help)
            node = Alias(Span(start, end), anchors[event.anchor])
            aliased = True
        elif kind is yaml.DocumentStartEvent:
            documents += 1
            if documents > 1:
                raise DocumentError("a second document starts here; a config must have only one", _get_position(event))
            continue
        elif kind is yaml.StreamEndEvent:
            if aliased and root is not None:
                from cfglint_train.documents.yaml import aliases

                aliases.check(root, Document("", source).locate)
            return root
        else:
            continue
        if not stack:
            root = node
            continue
        parent, pending_keys = stack[-1]
        if type(parent) is Sequence:
            parent.items.append(node)
        elif pending_keys:
            parent.entries.append(Entry(pending_keys.pop(), node))  # type: ignore[union-attr]
        else:
            pending_keys.append(node)


def _is_template_mark(closed: Mapping | Sequence) -> bool:
    """Return whether a collection is a template placeholder such as `{{ lr }}`.

    YAML reads it as a mapping whose only key is a mapping, which every loader rejects.
    """
    if not isinstance(closed, Mapping) or len(closed.entries) != 1:
        return False
    key = closed.entries[0].key
    return type(key) is Mapping and key.span.start == closed.span.start + 1


def _get_position(event: Any) -> Position:
    return Position(event.start_mark.line + 1, event.start_mark.column + 1)


def _find_end(node: Node) -> int:
    if isinstance(node, Mapping) and node.entries:
        return node.entries[-1].span.end
    if isinstance(node, Sequence) and node.items:
        return max(node.span.start + 1, node.items[-1].span.end)
    return node.span.start


def _find_block_scalar_end(source: bytes, start: int, end: int) -> int:
    header = source[start : source.find(b"\n", start)]
    if b"+" in header:
        return end
    return start + len(source[start:end].rstrip())
