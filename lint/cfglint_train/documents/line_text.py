"""Text of a line by number: reports show it, and baselines identify findings by it."""

from __future__ import annotations

from cfglint_train.documents.document import BOM, Document


def get_line_text(document: Document, number: int) -> str:
    """Return a line without its ending and without a byte-order mark, or "" if there is no such line."""
    if number > len(document.line_starts):
        return ""
    begin = document.line_starts[number - 1]
    line = document.source[begin : document.find_line_end(begin)]
    return (line.removeprefix(BOM) if number == 1 else line).decode("utf-8", "replace")
