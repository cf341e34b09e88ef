"""Edits inside brackets, shared by YAML's flow collections and JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cfglint_train.documents.document import CannotEdit, Document, Edit, Span
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final

_COMMENT: Final = compile_on_use(rb"#|//|/\*")


def insert(
    document: Document, brackets: Span, items: Sequence[Span], after: int, text: str, repeated: bool = False
) -> list[Edit]:
    """Return the edits that insert `text` after item `after` (-1 if there are no items) in the file's layout.

    `repeated` means that an earlier change of the same batch inserted an item at the same place. Raise `CannotEdit` if
    the brackets hold only a comment.
    """
    if not items:
        content = Span(brackets.start + 1, brackets.end - 1)
        if repeated:
            return [Edit(Span(content.end, content.end), f", {text}")]
        if document.source[content.start : content.end].strip():
            raise CannotEdit("the empty brackets contain a comment")
        return [Edit(content, text)]
    anchor = items[after]
    gap = _find_gap(document, brackets, items)
    line_end = min(document.find_line_end(anchor.end), brackets.end - 1)
    line_rest = document.source[anchor.end : line_end]
    comma = re.match(rb"\s*,", line_rest)
    if _COMMENT.match(line_rest[comma.end() if comma else 0 :].lstrip()):
        # The comment belongs to the item before it, so the new item goes after the comment.
        if comma:
            return [Edit(Span(line_end, line_end), f"{gap}{text},")]
        if repeated:
            return [Edit(Span(line_end, line_end), f",{gap}{text}")]
        return [Edit(Span(anchor.end, anchor.end), ","), Edit(Span(line_end, line_end), gap + text)]
    return [Edit(Span(anchor.end, anchor.end), f",{gap}{text}")]


def _find_gap(document: Document, brackets: Span, items: Sequence[Span]) -> str:
    """Return the white space between two items in the layout of this collection."""
    for first, second in zip(items, items[1:]):
        between = document.get_text(Span(first.end, second.start))
        if "\n" in between:
            return document.newline + between[between.rfind("\n") + 1 :]
        if re.fullmatch(r",\s*", between):
            return between[1:]
    lead = document.get_text(Span(brackets.start + 1, items[0].start))
    if "\n" in lead:
        return document.newline + lead[lead.rfind("\n") + 1 :]
    return " "


def delete(document: Document, items: Sequence[Span], index: int) -> Edit:
    """Return the edit that removes item `index` with its comma. Raise `CannotEdit` if a comment is next to it."""
    if index + 1 < len(items):
        span = Span(items[index].start, items[index + 1].start)
    elif index > 0:
        span = Span(items[index - 1].end, items[index].end)
    else:
        span = items[index]
    separators = document.source[span.start : items[index].start] + document.source[items[index].end : span.end]
    if _COMMENT.search(separators):
        raise CannotEdit("a comment is next to it")
    return Edit(span, "")
