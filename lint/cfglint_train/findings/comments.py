"""Stale comments: refusal of edits that would leave the old number in a comment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from cfglint_train.documents.document import CannotEdit, Change, Comment, Document, Edit, Scalar, Set
from cfglint_train.foundation.typed import Final

_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")

# A product in a comment that explains a batch size, `4*2*8` or `4 x 2 x 8`, but not `8x80GB`.
_PRODUCT: Final = re.compile(r"\d+(?:(?:\s*[*\u00d7]\s*\d+)+|(?:\s*x\s*\d+){2,})(?!\w)")


def check_comments(document: Document, changes: Sequence[Change], edits: Iterable[Edit]) -> None:
    """Raise `CannotEdit` if a comment would become wrong.

    This covers comments on a changed line that state the old number, and comments anywhere in the file that use the old
    number as a factor of a product.
    """
    edits = tuple(edits)
    # A change replaces a whole setting or only one factor of an expression (`8 * LENGTH`). In the second case, only the
    # edit contains the number.
    replaced_numbers = {text for change in changes if (text := _find_replaced_number(document, change)) is not None}
    replaced_numbers |= {
        text for edit in edits if (text := document.get_text(edit.span)) != edit.text and _NUMBER.fullmatch(text)
    }
    if not replaced_numbers:
        return
    lines = {document.locate(edit.span.start).line for edit in edits}
    for comment in document.list_comments():
        is_on_changed_line = document.locate(comment.span.start).line in lines
        if replaced_numbers & set(_list_numbers(comment, is_on_changed_line)):
            raise CannotEdit(
                f"the comment `{comment.text}` would become wrong; change the value and the comment together"
            )


def _find_replaced_number(document: Document, change: Change) -> str | None:
    """Return the text of the number that a change replaces, or None if it does not replace a number."""
    if not isinstance(change, Set):
        return None
    node = document.find_node(change.route)
    value = document.get_scalar_value(node) if isinstance(node, Scalar) else None
    if not isinstance(node, Scalar) or isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return node.text if change.value != value else None


def _list_numbers(comment: Comment, is_on_changed_line: bool) -> list[str]:
    """Return the numbers in a comment, or only the factors of its products if its line is not changed."""
    texts = [comment.text] if is_on_changed_line else _PRODUCT.findall(comment.text)
    return [number for text in texts for number in _NUMBER.findall(text)]
