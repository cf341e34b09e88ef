"""Reports of `cfglint fit --across`: a run on several kinds of hardware, as text, JSON or HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cfglint_train.fitting import words
from cfglint_train.fitting.across import HardwareRow
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.reports.escape import escape_data, escape_line_start, escape_text
from cfglint_train.reports.json import convert_record, encode
from cfglint_train.reports.style import PLAIN, Style
from cfglint_train.reports.text import wrap_text

VERSION: Final = 1
_HEAD: Final = ("hardware", "as it is", "peak", "with the change", "headroom", "slowdown", "batch")
_PRICES: Final = ("price/h", "cost/token")
_LEGEND: Final = "* no other row is at least as good in headroom, slowdown and price, and better in one of them"

Tables = Sequence[tuple[str, Sequence[HardwareRow]]]
"""The path of each run's configuration, with the rows of the run."""


def render_text(tables: Tables, style: Style = PLAIN) -> Iterator[str]:
    """Yield a table for each run, and below it the change of each row that needs one."""
    for path, rows in tables:
        yield style.paint(escape_line_start(path), "1")
        cells = [_list_heads(rows), *map(_list_cells, rows, [_has_prices(rows)] * len(rows))]
        widths = [max(map(len, column)) for column in zip(*cells)]
        for mark, texts in zip((" ", *("*" if row.is_pareto else " " for row in rows)), cells):
            yield f"{mark} " + "  ".join(f"{cell:<{width}}" for cell, width in zip(texts, widths)).rstrip()
        yield ""
        for row in rows:
            yield from wrap_text(f"  {row.hardware}: ", escape_text(_describe_change(row)), style, 4)
        yield f"  {_LEGEND}"
        for note in _list_notes(rows):
            yield f"  {note}"
        yield ""


def render_json(tables: Tables) -> Iterator[str]:
    """Yield the rows as indented JSON; sizes are in bytes, slowdowns multiply the time per step."""
    runs = [{"path": escape_data(path), "hardware": [_convert_row(row) for row in rows]} for path, rows in tables]
    yield encode({"version": VERSION, "runs": runs})


def _convert_row(row: HardwareRow) -> dict[str, Any]:
    record: dict[str, Any] = convert_record(row)
    return {**record, "change": list(map(escape_data, row.change)), "remedy": escape_data(row.remedy)}


def render_html(tables: Tables) -> Iterator[str]:
    """Yield a page without scripts that holds the tables."""
    from cfglint_train.reports.html.page import read_asset

    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<meta name="color-scheme" content="light dark">\n<title>cfglint: hardware</title>'
    yield f"<style>\n{read_asset('page.css')}</style>"
    yield '</head>\n<body>\n<header><h1>cfglint</h1></header>\n<main id="main">'
    yield from render_section(tables)
    yield "</main>\n</body>\n</html>"


def render_section(tables: Tables) -> Iterator[str]:
    """Yield the tables as HTML without the page around them."""
    from cfglint_train.reports.html.markup import escape_html, render_message, render_table

    for path, rows in tables:
        has_prices = _has_prices(rows)
        head = (*_list_heads(rows), "change")
        body = [
            (
                *(f"<b>{escape_html(cell)}</b>" if row.is_pareto else escape_html(cell) for cell in cells),
                render_message(_describe_change(row)),
            )
            for row in rows
            for cells in [_list_cells(row, has_prices)]
        ]
        yield f"<section><h2>{escape_html(path)}</h2>"
        yield render_table("The run on each kind of hardware", tuple(map(escape_html, head)), body)
        yield f"<p>Bold: {escape_html(_LEGEND[2:])}.</p>"
        yield from (f"<p>{escape_html(note)}</p>" for note in _list_notes(rows))
        yield "</section>"


def _has_prices(rows: Sequence[HardwareRow]) -> bool:
    return any(row.price_per_hour is not None for row in rows)


def _list_heads(rows: Sequence[HardwareRow]) -> tuple[str, ...]:
    return (*_HEAD, *(_PRICES if _has_prices(rows) else ()))


def _list_cells(row: HardwareRow, has_prices: bool) -> tuple[str, ...]:
    outcome = "-" if not row.change else row.outcome or "-"
    slowdown = "-" if row.slowdown is None else "none" if row.slowdown == 1 else f"{row.slowdown:.2f} x"
    cells = (
        row.hardware,
        row.verdict or "not estimated",
        "-" if row.expected is None else f"{format_gib(row.expected)} of {format_gib(row.capacity or 0)}",
        outcome,
        "-" if row.headroom is None else format_gib(row.headroom),
        slowdown,
        "?" if row.global_batch is None else f"{row.global_batch:,}",
    )
    if not has_prices:
        return cells
    price = "?" if row.price_per_hour is None else f"{row.price_per_hour:,.2f}"
    return (*cells, price, "?" if row.relative_cost is None else f"{row.relative_cost:.2f} x")


def _describe_change(row: HardwareRow) -> str:
    """Return the smallest change, or why there is none."""
    if row.verdict is None:
        return "not estimated; cfglint estimate names what is missing"
    if row.change and row.slowdown is not None:
        return f"{', '.join(row.change)} ({row.applicability}), {words.format_slowdown(row.slowdown)}"
    if row.headroom is not None:
        return "no change needed"
    return f"no change to these files makes it fit{row.remedy and f'; {row.remedy}'}"


def _list_notes(rows: Sequence[HardwareRow]) -> Iterator[str]:
    """Yield what the figures do not show."""
    yield "a slowdown compares with the unchanged run on the same hardware; cfglint does not know the speed of GPUs"
    if _has_prices(rows) and any(row.relative_cost is None and row.headroom is not None for row in rows):
        yield "cost/token is unknown without price_per_hour and tokens_per_second, as measured for the unchanged run"
