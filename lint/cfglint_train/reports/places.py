"""Places as other programs expect them: columns in UTF-16 units or UTF-8 bytes, checkout paths, URIs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from cfglint_train.documents.document import Document, Position
from cfglint_train.documents.line_text import get_line_text
from cfglint_train.foundation import filesystem
from cfglint_train.judging.result import Result


def collect_documents(result: Result) -> Mapping[str, Document]:
    """Return the documents that the findings, fixes and runs of a result refer to, by path."""
    by_path: dict[str, Document] = {}
    for document in _iterate_documents(result):
        by_path.setdefault(document.path, document)
    return by_path


def _iterate_documents(result: Result) -> Iterator[Document]:
    for finding in result.findings:
        if finding.place is not None:
            yield finding.place.document
        for related in finding.related:
            yield related.place.document
        for edit in finding.fix.edits if finding.fix is not None else ():
            if edit.document is not None:
                yield edit.document
    for run in result.runs:
        for config in run.configs:
            yield config.document


def compute_utf16_column(document: Document | None, position: Position) -> int:
    """Return the column in UTF-16 code units, from 1."""
    before = _get_prefix(document, position)
    return (
        position.column if before.isascii() else position.column + sum(ord(character) > 0xFFFF for character in before)
    )


def compute_utf8_column(document: Document | None, position: Position) -> int:
    """Return the column in UTF-8 bytes, from 1."""
    before = _get_prefix(document, position)
    return position.column + len(before.encode("utf-8", "replace")) - len(before)


def _get_prefix(document: Document | None, position: Position) -> str:
    return "" if document is None else get_line_text(document, position.line)[: position.column - 1]


def make_checkout_path(path: str, root: str | None) -> str:
    """Return a path relative to a checkout, with forward slashes; unchanged if it is outside or `root` is empty."""
    if not root:
        return path
    relative = os.path.relpath(filesystem.resolve(path), filesystem.resolve(root))
    return path if relative.startswith(os.pardir) else relative.replace(os.sep, "/")


_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/")


def format_uri(path: str) -> str:
    """Return a path as a relative reference of RFC 3986, or as a `file` URI if it is absolute."""
    try:
        source = os.fsencode(path.replace(os.sep, "/"))
    except UnicodeEncodeError:  # a name that no real file has
        source = path.encode("utf-8", "backslashreplace")
    quoted = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in source)
    return f"file://{quoted}" if quoted.startswith("/") else quoted
