"""HTML for user-written text: no text becomes markup, and invisible characters become visible escapes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from cfglint_train.reports.escape import escape_source_line, escape_text


def escape_html(value: object) -> str:
    """Return a value as one escaped line for an element or a double-quoted attribute."""
    return escape(escape_text(str(value)))


def render_message(value: object) -> str:
    """Return a message as HTML, with words in backticks rendered as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape_html(value))


def escape_code(line: str) -> str:
    """Escape a source line for an element; each tab becomes one space."""
    return escape(escape_source_line(line))


def measure_size(lines: Iterable[str]) -> int:
    """Return the size of lines of the page in bytes, with their line ends."""
    return sum(len(line.encode()) + 1 for line in lines)


def format_span(low: int, high: int) -> str:
    """Return an interval in GiB, `70.1 to 79.8`, or an empty string if both ends are the same."""
    ends = [f"{size / 2**30:,.1f}" for size in (low, high)]
    return "" if ends[0] == ends[1] else " to ".join(ends)


def format_value(value: object) -> str:
    """Return a value of a setting in words, not yet as HTML: `yes`, `4,096`, or a text as it is."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def render_badge(verdict: str | None) -> str:
    """Return a verdict as a colored badge, or an empty string without one."""
    return "" if verdict is None else f'<span class="badge {verdict.replace(" ", "-")}">{verdict}</span>'


def render_chip(words: str) -> str:
    """Return the origin of a value, in words, as a chip."""
    return f'<span class="chip {words.split()[-1]}">{words}</span>'


def render_details(summary: str, body: str, kind: str = "") -> str:
    """Return folded content; the summary and the body are HTML."""
    return f"<details{kind and f' class={kind}'}><summary>{summary}</summary>\n{body}</details>"


def render_table(
    caption: str,
    head: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    numbers: tuple[int, ...] = (),
    subject: str = "",
    kind: str = "",
) -> str:
    """Render a table from cells that are already HTML; the first column contains row headers.

    The columns in `numbers` contain numbers. The table scrolls inside a region that is labeled with `subject` and
    `caption`. Of the kind `stack`, it shows one cell below the other on a phone.
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
        f"<table{kind and f' class={kind}'}><caption>{caption}</caption>\n"
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}</tbody></table></div>"
    )
