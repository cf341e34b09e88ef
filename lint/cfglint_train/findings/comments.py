"""Comments: placeholders, reasons for a value, and numbers that an edit would make wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from cfglint_train.documents.document import CannotEdit, Change, Comment, Document, Edit, Scalar, Set
from cfglint_train.documents.line_text import get_line_text
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final
from cfglint_train.plan.origin import Place
from cfglint_train.settings.pragmas import MARK

_NUMBER: Final = compile_on_use(r"\d+(?:\.\d+)?")

# A product in a comment that explains a batch size, `4*2*8` or `4 x 2 x 8`, but not `8x80GB`.
_PRODUCT: Final = compile_on_use(r"\d+(?:(?:\s*[*\u00d7]\s*\d+)+|(?:\s*x\s*\d+){2,})(?!\w)")


# Words that ask the reader to state a value.
_PLACEHOLDER: Final = compile_on_use(
    r"\b(?:fill[ _-]?(?:me|this|it)?[ _-]?in|to[ _-]?do|fix[ _-]?me|tbd|(?:change|replace|set)[ _-]?(?:me|this))\b",
    re.I,
)


def find_placeholder(place: Place) -> str | None:
    """Return the text of a comment on the line of a place that asks for a value (`# FILL IN`), or None."""
    comment = next(_list_comments_at(place, 0), None)
    return comment.text if comment is not None and _PLACEHOLDER.search(comment.text) else None


def find_purpose(place: Place) -> str | None:
    """Return what shows that the value at a place was chosen on purpose, or None.

    It is a comment on the same line or directly above, or a named constant in code.
    """
    document = place.document
    if document.syntax == "python":
        name = _CONSTANT.fullmatch(document.get_text(place.span))
        if name is not None:
            return f"`{name[1]}`"
    comment = next((comment for above in (0, 1) for comment in _list_comments_at(place, above)), None)
    return None if comment is None or MARK.decode() in comment.text else f"the comment `{comment.text}`"


_CONSTANT: Final = compile_on_use(r"(?:\w+\s*=\s*)?((?:\w+\.)*[A-Z][A-Z0-9_]+)")
"""A keyword argument or a value that is a constant with a name."""


def _list_comments_at(place: Place, above: int) -> Iterator[Comment]:
    """Yield the comments on the line of a place, or those that fill the line `above` lines further up."""
    document = place.document
    line = document.locate(place.span.start).line - above
    for comment in document.list_comments():
        start = document.locate(comment.span.start)
        is_alone = not get_line_text(document, start.line)[: start.column - 1].strip()
        if start.line == line and (is_alone if above else comment.span.start >= place.span.start):
            yield comment


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
