"""Conversion of records to the types of the language server protocol.

The records count lines and columns from 1, and columns in characters. The protocol counts from 0, in units that client
and server agree on (UTF-16 unless they choose otherwise).
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate

from lsprotocol import types
from pygls import uris
from pygls.workspace import PositionCodec

from cfglint_rules import registry
from cfglint_train.documents.document import Document, Entry, Mapping, Node, Scalar, Sequence, Span
from cfglint_train.documents.notebooks import CodePlaces, parse_notebook
from cfglint_train.foundation.typed import Final, Protocol
from cfglint_train.records import Failure, Finding
from cfglint_train.reports.style import Style

SOURCE: Final = "cfglint"
BYTE_ORDER_MARK: Final = "\ufeff"
_SEVERITIES: Final = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "info": types.DiagnosticSeverity.Information,
}
_TAGS: Final = {
    "deprecated": types.DiagnosticTag.Deprecated,
    "unnecessary": types.DiagnosticTag.Unnecessary,
}


class Spanned(Protocol):
    """A range of a file, as the records state it."""

    @property
    def line(self) -> int:
        """First line."""

    @property
    def column(self) -> int:
        """First column."""

    @property
    def end_line(self) -> int:
        """Last line."""

    @property
    def end_column(self) -> int:
        """Column after the end."""


class Text:
    """A text with the conversion of its positions."""

    def __init__(self, text: str, codec: PositionCodec) -> None:
        """Store the text and the codec that the client agreed to."""
        self.text = text
        self._codec = codec

    @property
    def start(self) -> int:
        """Offset of the first character that is no byte-order mark, which most clients keep out of the text."""
        return int(self.text.startswith(BYTE_ORDER_MARK))

    @cached_property
    def _starts(self) -> list[int]:
        """Offset of every line as the records count them: a newline ends a line."""
        return [self.start, *(match.end() for match in re.finditer("\n", self.text))]

    @cached_property
    def lines(self) -> list[str]:
        """Lines as the protocol counts them, with their ends: a lone carriage return ends a line as well."""
        parts = re.split(r"(\r\n|\n|\r)", self.text)
        return [text + end for text, end in zip(parts[::2], [*parts[1::2], ""])]

    @cached_property
    def _client_starts(self) -> list[int]:
        return [0, *accumulate(map(len, self.lines[:-1]))]

    def find_position(self, offset: int) -> types.Position:
        """Return the position after a number of characters."""
        line = bisect_right(self._client_starts, offset) - 1
        text = self.lines[line][: offset - self._client_starts[line]]
        return types.Position(line, self._codec.client_num_units(text))

    def find_offset(self, position: types.Position) -> int:
        """Return the number of characters before a position of the client; a position beyond the text is its end."""
        if position.line >= len(self.lines):
            return len(self.text)
        inner = self._codec.position_from_client_units(self.lines, position)
        line = self.lines[inner.line].rstrip("\r\n")
        return self._client_starts[inner.line] + min(inner.character, len(line))

    def convert_position(self, line: int, column: int) -> types.Position:
        """Return the position at a line and a column, both counted from 1."""
        if line > len(self._starts):
            return self.find_position(len(self.text))
        return self.find_position(min(self._starts[line - 1] + column - 1, len(self.text)))

    def convert_range(self, place: Spanned) -> types.Range:
        """Return the range of a record."""
        return types.Range(
            self.convert_position(place.line, place.column), self.convert_position(place.end_line, place.end_column)
        )

    def convert_span(self, document: Document, span: Span) -> types.Range:
        """Return the range of a span of bytes."""
        start, end = document.locate(span.start), document.locate(span.end)
        return types.Range(self.convert_position(start.line, start.column), self.convert_position(end.line, end.column))


class NotebookText(Text):
    """The text of a notebook. Records state the lines of the file, and the columns of its code."""

    @cached_property
    def _places(self) -> CodePlaces:
        notebook = parse_notebook(self.text)
        return CodePlaces(self.text, "" if notebook is None else notebook.python)

    def convert_position(self, line: int, column: int) -> types.Position:
        """Return the position at a line of the file and a column of the code, both counted from 1."""
        return super().convert_position(line, self._places.find_column(line - 1, column - 1) + 1)


class Texts(Protocol):
    """Access to texts by path."""

    def get(self, path: str) -> Text:
        """Return the text of an open document, or of a file."""


def build_diagnostic(finding: Finding, text: Text, read: Texts, style: Style) -> types.Diagnostic:
    """Return the diagnostic of a finding in the file with a text; `read` has the texts of the related places."""
    rule = registry.RULES[finding.code]
    address = style.build_page_url(rule.code, rule.name)
    return types.Diagnostic(
        range=text.convert_range(finding),
        message=format_message(finding),
        severity=_SEVERITIES[finding.severity],
        code=finding.code,
        code_description=None if address is None else types.CodeDescription(address),
        source=SOURCE,
        tags=None if rule.tag is None else [_TAGS[rule.tag]],
        related_information=[
            types.DiagnosticRelatedInformation(
                types.Location(uris.from_fs_path(place.path) or "", read.get(place.path).convert_range(place)),
                place.message,
            )
            for place in finding.related
        ],
    )


def format_message(finding: Finding) -> str:
    """Return the headline, the notes and the help of a finding, one per line."""
    notes = [f"note: {note}" for note in finding.notes]
    return "\n".join([finding.message, *notes, *([f"help: {finding.help}"] if finding.help else ())])


def build_failure(failure: Failure, text: Text) -> types.Diagnostic:
    """Return the diagnostic of a problem that kept cfglint from checking."""
    start = text.convert_position(failure.line or 1, failure.column or 1)
    rule = "" if failure.rule is None else f"{failure.rule} failed: "
    return types.Diagnostic(
        types.Range(start, start),
        f"not checked: {rule}{failure.message}",
        types.DiagnosticSeverity.Error,
        source=SOURCE,
    )


def build_symbols(document: Document, text: Text) -> list[types.DocumentSymbol]:
    """Return the outline of a document: its keys and sections, nested."""
    return list(_list_symbols(document.root, document, text, 0))


_MAX_DEPTH: Final = 16
"""Depth at which the outline ends."""


def _list_symbols(node: Node | None, document: Document, text: Text, depth: int) -> Iterator[types.DocumentSymbol]:
    if depth > _MAX_DEPTH:
        return
    if isinstance(node, Mapping):
        for entry in node.entries:
            if entry.name:
                yield _build_symbol(entry.name, entry, document, text, depth)
    elif isinstance(node, Sequence):
        for index, item in enumerate(node.items):
            if not isinstance(item, Scalar):
                span = text.convert_span(document, item.span)
                children = list(_list_symbols(item, document, text, depth + 1))
                if children:
                    span = types.Range(min(span.start, children[0].range.start), max(span.end, children[-1].range.end))
                    start = types.Range(span.start, span.start)
                    name = _name_command(item, document) if document.syntax == "shell" else str(index)
                    yield types.DocumentSymbol(name, types.SymbolKind.Array, span, start, children=children)


def _name_command(command: Node, document: Document) -> str:
    """Return the words of a command before its first option, in its first line."""
    source = document.source[command.span.start : command.span.end].decode(errors="replace")
    return source.strip().partition("\n")[0].split(" -")[0].rstrip(" \\\r") or "command"


def _build_symbol(name: str, entry: Entry, document: Document, text: Text, depth: int) -> types.DocumentSymbol:
    children = list(_list_symbols(entry.value, document, text, depth + 1))
    kind = types.SymbolKind.Property
    detail = None
    if isinstance(entry.value, Mapping):
        kind = types.SymbolKind.Module
    elif isinstance(entry.value, Sequence):
        kind = types.SymbolKind.Array
    elif isinstance(entry.value, Scalar):
        detail = entry.value.text.splitlines()[0][:80] if entry.value.text else None
    return types.DocumentSymbol(
        name,
        kind,
        text.convert_span(document, entry.span),
        text.convert_span(document, entry.key.span),
        detail=detail,
        children=children,
    )


def map_lines(before: list[str], after: list[str]) -> dict[int, int]:
    """Return the new number of each line that a change leaves as it is, above or below the changed lines."""
    shortest = min(len(before), len(after))
    above = next((number for number in range(shortest) if before[number] != after[number]), shortest)
    rest = shortest - above
    below = next((number for number in range(rest) if before[-1 - number] != after[-1 - number]), rest)
    kept = (*range(above), *range(len(before) - below, len(before)))
    return {number: number if number < above else number + len(after) - len(before) for number in kept}


def move_range(place: types.Range, line: int) -> types.Range:
    """Return a range that starts in another line."""
    end = types.Position(place.end.line + line - place.start.line, place.end.character)
    return types.Range(types.Position(line, place.start.character), end)


def build_edits(before: Text, after: str) -> list[types.TextEdit]:
    """Return the edits that turn a text into another, by whole lines."""
    old, new = before.text.splitlines(keepends=True), after.splitlines(keepends=True)
    offsets = [0, *accumulate(map(len, old))]
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [
        types.TextEdit(
            types.Range(before.find_position(offsets[start]), before.find_position(offsets[end])),
            "".join(new[new_start:new_end]),
        )
        for kind, start, end, new_start, new_end in blocks
        if kind != "equal"
    ]
