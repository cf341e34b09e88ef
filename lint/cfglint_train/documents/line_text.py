"""The text of a line by its number, as reports show it and a baseline recognises it."""

from __future__ import annotations

from cfglint_train.documents.document import BOM, Document


def get_line_text(document: Document, number: int) -> str:
    """A line without its ending; a byte-order mark has no width. Empty behind the last line."""
    if number > len(document.line_starts):
        return ""
    begin = document.line_starts[number - 1]
    line = document.source[begin : document.find_line_end(begin)]
    return (line.removeprefix(BOM) if number == 1 else line).decode("utf-8", "replace")
