"""The tree of a plain YAML text, which most configurations are, without a parser of YAML.

Importing PyYAML takes longer than all that a lint does with one file. Plain is a small text of printable ASCII in
which every line is empty, a comment, or `key: value` or `- value` in block style, with values of one line that are
plain or in quotes without escapes. Of such a text the indentation says everything. What is not surely plain is left
to `compose.py`, and so is every error.
"""

from __future__ import annotations

from cfglint_train.documents.document import Entry, Mapping, Node, Scalar, Sequence, Span
from cfglint_train.documents.limits import MAX_DEPTH
from cfglint_train.foundation.typed import Final

_SMALL: Final = 20_000
"""Bytes. So few hold fewer keys and values than any limit, and a larger text is worth an import."""
_QUOTES: Final = "'\""
_STARTS: Final = "._/~$<+=("
"""What may begin a plain value beside letters and digits, and is no mark of YAML."""


def compose_plain(source: bytes) -> Node | None:
    """The root of a plain text with at least one key or item; None where the text is not surely plain."""
    if len(source) > _SMALL or not source.isascii():
        return None
    text = source.decode("ascii")
    if not text.replace("\n", "").isprintable():
        return None
    reader = _Reader()
    start = 0
    for line in text.split("\n"):
        body = line.strip(" ")
        if body and body[0] != "#" and not reader.read(body, line.index(body[0]), start):
            return None
        start += len(line) + 1
    return reader.finished()


_IN_NAMES: Final = dict.fromkeys(map(ord, "_-./"))
"""What may be in a key beside letters and digits."""


class _Reader:
    """The collections that are open while a text is read line by line."""

    def __init__(self) -> None:
        self.open: list[tuple[int, Mapping | Sequence]] = []
        """Column and collection, innermost last."""
        self.root: Node | None = None
        self.key: Scalar | None = None
        """The last key; None behind the mark of an item."""
        self.waits = -1
        """Where the value of the last key or mark stands if it is empty; -1 where it was read."""

    def read(self, body: str, column: int, start: int) -> bool:
        """Whether a line, without the spaces around it, is plain and fits in. `start` is the line's first byte."""
        while True:
            at = start + column
            is_item = body == "-" or body.startswith("- ")
            if not self._enter(column, Sequence if is_item else Mapping, at):
                return False
            if is_item:
                self.key, self.waits = None, at + 1
                rest = body[1:].lstrip(" ")
            else:
                name, colon, rest = body.partition(":")
                if not colon or not _is_name(name) or rest[:1] not in ("", " "):
                    return False
                self.key, self.waits = Scalar(Span(at, at + len(name)), name), at + len(name) + 1
                rest = rest.lstrip(" ")
            if not rest or rest[0] == "#":
                return True
            inner = column + len(body) - len(rest)
            if is_item and (rest == "-" or rest.startswith("- ") or _has_key(rest)):
                body, column = rest, inner
                continue
            value = _value(rest, start + inner)
            if value is None:
                return False
            self._put(value)
            return True

    def _enter(self, column: int, kind: type[Mapping | Sequence], at: int) -> bool:
        """Whether a collection of this kind is open in a column, once those inside it are closed, or opens there."""
        if self.open:
            outer, collection = self.open[-1]
            beside = column == outer and kind is Sequence and type(collection) is Mapping  # as its key
            if self.waits < 0 or not (column > outer or beside):
                return self._return_to(column, kind)
        elif self.root is not None:
            return False
        if len(self.open) >= MAX_DEPTH:
            return False
        opened = kind(Span(at, at), [], False)
        self._put(opened)
        self.open.append((column, opened))
        return True

    def _return_to(self, column: int, kind: type[Mapping | Sequence]) -> bool:
        """Whether a collection of this kind is open in a column; those inside it are closed."""
        self._put_empty()
        while self.open and (self.open[-1][0], type(self.open[-1][1])) != (column, kind):
            if self.open[-1][0] < column:
                return False
            self._close()
        return bool(self.open)

    def _put(self, value: Node) -> None:
        """Give the key or mark that waits its value."""
        if not self.open:
            self.root = value
        else:
            parent = self.open[-1][1]
            if type(parent) is Sequence:
                parent.items.append(value)
            else:
                assert type(parent) is Mapping
                assert self.key is not None
                parent.entries.append(Entry(self.key, value))
        self.waits = -1

    def _put_empty(self) -> None:
        """Give the key or mark that waits an empty value."""
        if self.waits >= 0:
            self._put(Scalar(Span(self.waits, self.waits), ""))

    def _close(self) -> None:
        closed = self.open.pop()[1]
        last = closed.items[-1] if isinstance(closed, Sequence) else closed.entries[-1].value
        closed.span = Span(closed.span.start, max(closed.span.start + 1, last.span.end))

    def finished(self) -> Node | None:
        """The root, once all lines are read."""
        self._put_empty()
        while self.open:
            self._close()
        return self.root


def _is_name(text: str) -> bool:
    return text.isidentifier() or (text[:1].isalpha() and text.translate(_IN_NAMES).isalnum())


def _has_key(text: str) -> bool:
    return text[0] not in _QUOTES and (": " in text or text.endswith(":"))


def _value(text: str, at: int) -> Scalar | None:
    """The scalar at the start of a text, of which at most a comment follows; None where that is not sure."""
    first = text[0]
    if first in _QUOTES:
        end = text.find(first, 1)
        inner, rest = text[1:end], text[end + 1 :]
        if end < 0 or "\\" in inner or rest.strip(" ")[:1] not in ("", "#") or rest[:1] == "#":
            return None
        return Scalar(Span(at, at + end + 1), inner, first, None, False, inner)
    if not (first.isalnum() or first in _STARTS or (first == "-" and text[1:2].isalnum())):
        return None
    plain = text.partition(" #")[0].rstrip(" ")
    if ": " in plain or plain.endswith(":"):
        return None
    return Scalar(Span(at, at + len(plain)), plain)
