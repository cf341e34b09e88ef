"""JSON with offsets, read leniently: DeepSpeed opens its configuration with hjson, the HF Trainer with `json`.

The parser accepts constructs that strict JSON forbids and records them in `Document.problems`, so that a file can be
valid for DeepSpeed but an error for the HF Trainer. The accepted forms are hjson's: comments, trailing and missing
commas, unquoted keys and strings, single quotes, triple quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from json import JSONDecodeError, dumps, loads
from json.decoder import scanstring  # type: ignore[attr-defined]  # missing from typeshed
from math import isfinite

from cfglint_train.documents import flow
from cfglint_train.documents.document import (
    MAX_DIGITS,
    MISSING,
    Append,
    CannotEdit,
    Change,
    Comment,
    Document,
    DocumentError,
    Edit,
    Entry,
    Mapping,
    Node,
    Position,
    Problem,
    Rename,
    Route,
    Scalar,
    Sequence,
    Set,
    Span,
    build_offset_converter,
    decode,
)
from cfglint_train.documents.limits import MAX_DEPTH, MAX_KEYS, MAX_NODES, LimitExceeded
from cfglint_train.documents.writer import Writer, find_own_entry, is_identical
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Any, ClassVar, Final

_SPACE: Final = compile_on_use(r"[ \t\r\n]*")
_COMMENT: Final = compile_on_use(r"#[^\n]*|//[^\n]*|/\*.*?\*/", re.S)
_NUMBER: Final = compile_on_use(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_BARE_KEY: Final = compile_on_use(r"[^\s,:\[\]{}\"']+")
_BARE_END: Final = compile_on_use(r"[,\]}#\r\n]|//|/\*|\Z")
_LINE: Final = compile_on_use(r"[^\r\n]*")
_WORDS: Final = {
    "true": True,
    "false": False,
    "null": None,
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}


class JsonDocument(Document):
    """A JSON file. `problems` lists what strict JSON would reject, in order."""

    syntax: ClassVar[str] = "json"

    def __init__(self, path: str, source: bytes) -> None:
        """Parse the source.

        Raise `DocumentError` if the text is neither JSON nor hjson, and `LimitExceeded` if it is too large.
        """
        super().__init__(path, source)
        text = decode(source)
        reader = _Reader(self, text)
        try:
            self.root = reader.parse_document()
        except LimitExceeded:
            raise
        except DocumentError:
            if {problem.kind for problem in self.problems} <= {"unquoted-string"}:
                _check_strict_json(text)  # hjson is unlikely here, so strict JSON's error is more helpful
            raise
        self._comments = reader.comments

    def list_comments(self) -> list[Comment]:
        """Return the comments, which only hjson allows."""
        return self._comments

    def build_edits(self, changes: Iterable[Change]) -> list[Edit]:
        """Return the edits that make `changes`. Raise `CannotEdit` if a change cannot be made."""
        return _Writer(self).write(list(changes))


def _check_strict_json(text: str) -> None:
    """Raise `DocumentError` with strict JSON's message if strict JSON rejects the text."""
    try:
        loads(text, parse_int=str)  # keep integers of any length as text
    except JSONDecodeError as error:
        raise DocumentError(error.msg[0].lower() + error.msg[1:], Position(error.lineno, error.colno)) from None
    except RecursionError:
        return


class _Reader:
    """A lenient parser of one JSON text."""

    def __init__(self, document: JsonDocument, text: str) -> None:
        """Store the document and its text."""
        self.owner = document
        self.text = text
        self.offset = build_offset_converter(text, document.source)
        self.comments: list[Comment] = []
        self.depth = 0
        self.nodes = self.keys = 0

    def parse_document(self) -> Node | None:
        at = self.skip_space(0)
        if at == len(self.text):
            raise self.make_error("the file is empty", at)
        if self.text[at] not in "{[":
            raise self.make_error("a JSON object or list starts with { or [", at)
        root, at = self.parse_value(at)
        at = self.skip_space(at)
        if at < len(self.text):
            raise self.make_error("text follows the end of the value", at)
        return root

    def make_span(self, start: int, end: int) -> Span:
        return Span(start, end) if self.offset is None else Span(self.offset(start), self.offset(end))

    def make_error(self, message: str, at: int) -> DocumentError:
        return DocumentError(message, self.owner.locate(self.make_span(at, at).start))

    def make_limit_error(self, message: str, at: int) -> LimitExceeded:
        return LimitExceeded(message, self.owner.locate(self.make_span(at, at).start))

    def record_problem(self, kind: str, start: int, end: int, message: str) -> None:
        self.owner.problems.append(Problem(kind, self.make_span(start, end), message))

    def skip_space(self, at: int) -> int:
        """Return the next index that is neither in white space nor in a comment."""
        text = self.text
        while True:
            at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
            if text[at : at + 1] not in ("#", "/"):
                return at
            comment = _COMMENT.match(text, at)
            if comment is None:
                return at
            end = at + len(comment.group().rstrip("\r"))
            self.comments.append(Comment(self.make_span(at, end), text[at:end]))
            self.record_problem("comment", at, end, "JSON does not allow comments")
            at = end

    def parse_value(self, at: int) -> tuple[Node, int]:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise self.make_limit_error(f"more than {MAX_NODES:,} values", at)
        first = self.text[at : at + 1]
        if first == "{":
            return self.parse_nested(self.parse_mapping, at)
        if first == "[":
            return self.parse_nested(self.parse_sequence, at)
        if first in ('"', "'"):
            return self.parse_string(at)
        if first == "" or first in ",:]}":
            raise self.make_error("a value is missing", at)
        return self.parse_bare(at)

    def parse_nested(self, parse: Any, at: int) -> tuple[Node, int]:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.make_limit_error(f"nested deeper than {MAX_DEPTH} levels", at)
        node: tuple[Node, int] = parse(at)
        self.depth -= 1
        return node

    def parse_mapping(self, start: int) -> tuple[Node, int]:
        entries: list[Entry] = []
        at = self.skip_space(start + 1)
        while self.text[at : at + 1] != "}":
            key, at = self.parse_key(at)
            at = self.skip_space(at)
            if self.text[at : at + 1] != ":":
                raise self.make_error(
                    "missing colon after the key" if at < len(self.text) else "the brace is never closed", at
                )
            value, at = self.parse_value(self.skip_space(at + 1))
            entries.append(Entry(key, value))
            self.keys += 1
            if self.keys > MAX_KEYS:
                raise self.make_limit_error(f"more than {MAX_KEYS:,} keys", at)
            at = self.skip_separator(at, "}")
        return Mapping(self.make_span(start, at + 1), entries, flow=True), at + 1

    def parse_sequence(self, start: int) -> tuple[Node, int]:
        items: list[Node] = []
        at = self.skip_space(start + 1)
        while self.text[at : at + 1] != "]":
            item, at = self.parse_value(at)
            items.append(item)
            at = self.skip_separator(at, "]")
        return Sequence(self.make_span(start, at + 1), items, flow=True), at + 1

    def skip_separator(self, end: int, closing: str) -> int:
        """Return the index of the next item or of the closing bracket after a value."""
        at = self.skip_space(end)
        next_character = self.text[at : at + 1]
        if next_character == ",":
            comma, at = at, self.skip_space(at + 1)
            if self.text[at : at + 1] == closing:
                self.record_problem(
                    "trailing-comma", comma, comma + 1, "JSON does not allow a comma after the last item"
                )
            elif self.text[at : at + 1] == ",":
                raise self.make_error("two commas in a row", at)
            return at
        if next_character == closing:
            return at
        if next_character == "":
            raise self.make_error("the bracket is never closed", at)
        if "\n" not in self.text[end:at]:
            raise self.make_error(f"expected a comma or {closing}", at)
        self.record_problem("missing-comma", end, end, "JSON separates items with commas")
        return at

    def parse_key(self, at: int) -> tuple[Scalar, int]:
        if self.text[at : at + 1] in ('"', "'"):
            return self.parse_string(at)
        match = _BARE_KEY.match(self.text, at)
        if match is None:
            raise self.make_error("a key is missing" if at < len(self.text) else "the brace is never closed", at)
        self.record_problem("unquoted-key", at, match.end(), "JSON keys must be quoted")
        return Scalar(self.make_span(at, match.end()), match.group(), "", value=match.group()), match.end()

    def parse_string(self, at: int) -> tuple[Scalar, int]:
        text, quote = self.text, self.text[at]
        if text.startswith("'''", at):
            end = text.find("'''", at + 3)
            if end < 0:
                raise self.make_error("the string is never closed", at)
            self.record_problem("triple-quotes", at, end + 3, "JSON strings must not span several lines")
            lines = text[at + 3 : end].replace("\r", "").strip("\n").split("\n")
            value = "\n".join(line.strip() for line in lines)
            return Scalar(self.make_span(at, end + 3), value, "'''", value=value), end + 3
        if quote == "'":
            self.record_problem("single-quotes", at, at + 1, "JSON strings need double quotes")
            match = re.compile(r"'((?:[^'\\\r\n]|\\.)*)'").match(text, at)
            if match is None:
                raise self.make_error("the string is never closed", at)
            value = match.group(1).replace("\\'", "'").replace('\\"', '"')
            return Scalar(self.make_span(at, match.end()), value, quote, value=value), match.end()
        try:
            value, end = scanstring(text, at + 1, True)
        except JSONDecodeError as error:
            raise self.make_error(error.msg[0].lower() + error.msg[1:], error.pos) from None
        return Scalar(self.make_span(at, end), value, quote, value=value), end

    def parse_bare(self, at: int) -> tuple[Scalar, int]:
        """Parse a number, a word, or an unquoted hjson string, which runs to the end of its line."""
        text = self.text
        stop = _BARE_END.search(text, at).start()  # type: ignore[union-attr]
        literal = text[at:stop].rstrip()
        value = self.parse_literal(literal)
        if value is MISSING:
            literal = _LINE.match(text, at).group().rstrip()  # type: ignore[union-attr]
            value = literal
            self.record_problem("unquoted-string", at, at + len(literal), "JSON strings must be quoted")
        end = at + len(literal)
        return Scalar(self.make_span(at, end), literal, "", value=value), end

    @staticmethod
    def parse_literal(literal: str) -> Any:
        if literal in _WORDS:
            return _WORDS[literal]
        number = _NUMBER.fullmatch(literal)
        if number is None:
            return MISSING
        integer, fraction, exponent = number.groups()
        if fraction or exponent:
            return float(literal)
        return int(integer) if len(integer) <= MAX_DIGITS else literal


class _Writer(Writer[JsonDocument]):
    """Conversion of the changes of one JSON document into edits."""

    def set(self, change: Set) -> list[Edit]:
        document, step = self.document, change.route[-1]
        parent = document.find_node(change.route[:-1])
        if isinstance(parent, Mapping):
            entry = find_own_entry(parent, str(step))
            if entry is not None:
                return self._replace(entry.value, change.value)
            spans = [entry.span for entry in parent.entries]
            names = [entry.name for entry in parent.entries]
            remaining = [
                index for index, name in enumerate(names) if (*change.route[:-1], name or "") not in self.deleted_routes
            ]
            if spans and not remaining:
                raise CannotEdit("all other keys of its section are removed")
            after = next(
                (names.index(name) for name in change.beside if name in names), remaining[-1] if remaining else -1
            )
            text = f"{dumps(str(step))}: {self._format_value(change.value, self._get_indent(parent))}"
            return flow.insert(document, parent.span, spans, after, text, self.record_insertion(parent.span, after))
        if isinstance(parent, Sequence) and isinstance(step, int):
            if step >= len(parent.items):
                raise CannotEdit("its list is too short")
            return self._replace(parent.items[step], change.value)
        raise CannotEdit("its parent is not an object")

    def _replace(self, node: Node, value: Any) -> list[Edit]:
        if is_identical(self.document.build_value(node), value):
            return []
        if any(node.span.start <= comment.span.start < node.span.end for comment in self.document.list_comments()):
            raise CannotEdit("its value contains comments")
        line_start = self.document.source.rfind(b"\n", 0, node.span.start) + 1
        lead = self.document.get_text(Span(line_start, node.span.start))
        return [Edit(node.span, self._format_value(value, lead[: len(lead) - len(lead.lstrip())]))]

    def append(self, change: Append) -> list[Edit]:
        node = self.document.find_node(change.route)
        if not isinstance(node, Sequence):
            raise CannotEdit("its value is not a list")
        text = self._format_value(change.value, "")
        items = [item.span for item in node.items]
        last = len(items) - 1
        return flow.insert(self.document, node.span, items, last, text, self.record_insertion(node.span, last))

    def delete(self, route: Route) -> list[Edit]:
        parent = self.document.find_node(route[:-1])
        if isinstance(parent, Mapping):
            spans = [entry.span for entry in parent.entries]
            indices = [index for index, entry in enumerate(parent.entries) if entry.name == route[-1]]
            return [flow.delete(self.document, spans, index) for index in indices]
        if isinstance(parent, Sequence) and isinstance(route[-1], int):
            return [flow.delete(self.document, [item.span for item in parent.items], route[-1])]
        return []

    def rename(self, change: Rename) -> list[Edit]:
        parent = self.document.find_node(change.route[:-1])
        if not isinstance(parent, Mapping):
            return []
        entries = [entry for entry in parent.entries if entry.name == change.route[-1]]
        return [Edit(entry.key.span, dumps(change.key) if entry.is_key_quoted else change.key) for entry in entries]

    def _get_indent(self, mapping: Mapping) -> str:
        """Return the white space before the entries of a mapping, or "" if it is on one line."""
        if not mapping.entries:
            return ""
        start = mapping.entries[0].key.span.start
        line_start = self.document.source.rfind(b"\n", 0, start) + 1
        lead = self.document.get_text(Span(line_start, start))
        return "" if lead.strip() else lead

    def _get_indent_step(self) -> str | None:
        """Return one level of indentation as the file writes it, or None if the file is on one line."""
        root = self.document.root
        indent = self._get_indent(root) if isinstance(root, Mapping) else ""
        return indent or None

    def _format_value(self, value: Any, indent: str) -> str:
        """Format a value in the file's layout, with `indent` before every line but the first."""
        if isinstance(value, float) and isfinite(value) and float(_format_short(value)) == value:
            return min(_format_short(value), dumps(value), key=len)
        step = self._get_indent_step()
        if isinstance(value, (dict, list)) and value and step is not None and indent:
            lines = dumps(value, indent=step, ensure_ascii=False).split("\n")
            return (self.document.newline + indent).join(lines)
        return dumps(value, ensure_ascii=False)


def _format_short(number: float) -> str:
    """Format a float as people write it: 5e8 rather than 500000000.0.

    If seven significant digits do not represent it exactly, return every digit.
    """
    mantissa, exponent = f"{number:e}".split("e")
    text = f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    return text if float(text) == number else dumps(number)
