"""HTML of text that users wrote: nothing of it becomes markup, and invisible characters are shown as escapes."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from cfglint_train.foundation.typed import Any
from cfglint_train.reports.escape import escape_source_line, escape_text
from cfglint_train.reports.json import encode_compact

# Inside a script element, where entities mean nothing: the same characters as JSON spells them.
_IN_SCRIPT = str.maketrans({"&": "\\u0026", "<": "\\u003c", ">": "\\u003e", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def escape_html(value: object) -> str:
    """One line of text, for an element or for an attribute in double quotes."""
    return escape(escape_text(str(value)))


def escape_code(line: str) -> str:
    """A line of a file; tabs become spaces."""
    return escape(escape_source_line(line))


def format_count(count: int, noun: str) -> str:
    """`1 error`, `2 errors`."""
    return f"{count} {noun}" if count == 1 or noun == "info" else f"{count} {noun}s"


def encode_script_data(value: Any) -> str:
    """JSON for a script element of type application/json."""
    return encode_compact(value).translate(_IN_SCRIPT)


def render_table(
    caption: str,
    head: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    numbers: tuple[int, ...] = (),
    subject: str = "",
) -> str:
    """A table of cells that are HTML already; the columns in `numbers` hold numbers, the first one heads its row.

    It scrolls inside a region, whose name is the caption with what it is a table `of`.
    """

    def render_cell(column: int, content: str) -> str:
        kind = ' class="number"' if column in numbers else ""
        return f'<th scope="row"{kind}>{content}</th>' if column == 0 else f"<td{kind}>{content}</td>"

    heads = "".join(
        f'<th scope="col"{" class=number" if column in numbers else ""}>{name}</th>' for column, name in enumerate(head)
    )
    body = "".join(
        f"<tr>{''.join(render_cell(column, content) for column, content in enumerate(row))}</tr>\n" for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{subject}{", " * bool(subject)}{caption}">'
        f"<table><caption>{caption}</caption>\n"
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}</tbody></table></div>"
    )
