"""The text of a line by its number, as reports show it and as a baseline identifies it."""

from __future__ import annotations

from cfglint_train.documents.document import BOM, Document


def get_line_text(document: Document, number: int) -> str:
    """Return a line without its ending and without a byte-order mark, or "" after the last line."""
    if number > len(document.line_starts):
        return ""
    begin = document.line_starts[number - 1]
    line = document.source[begin : document.find_line_end(begin)]
    return (line.removeprefix(BOM) if number == 1 else line).decode("utf-8", "replace")
