"""Reports of `cfglint fit --across`: a run on several kinds of hardware, as text, JSON or HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cfglint_train.fitting import words
from cfglint_train.fitting.across import HardwareRow
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.wording import format_count, join_names
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
    """Yield the page of the tables, in the frame of all pages."""
    from cfglint_train.reports.html.markup import escape_html
    from cfglint_train.reports.html.page import render_frame

    name = escape_html(tables[0][0]) if len(tables) == 1 else format_count(len(tables), "run")
    kind = _VERDICTS[max((_rank_row(row) for _, rows in tables for row in rows), default=0)]
    header = f'<p class="path">cfglint · {name}</p><h1 class="{kind}">{escape_html(_describe_tables(tables))}</h1>'
    yield from render_frame("cfglint: hardware", header, render_section(tables))


_VERDICTS: Final = ("unknown", "does-not-fit", "tight", "fits")
"""Kinds of a headline, from the worst outcome of a row to the best."""
_OUTCOMES: Final = ("not estimated on", "does not fit on", "fits with a change on", "fits as it is on")


def _rank_row(row: HardwareRow) -> int:
    """Return the number of a row's outcome in `_OUTCOMES`."""
    if row.headroom is None:
        return int(row.verdict is not None)
    return 2 if row.change else 3


def _describe_tables(tables: Tables) -> str:
    """Return the headline: `Fits as it is on H200x8; fits with a change on H100-80GBx8`."""
    if len(tables) != 1:
        return f"{format_count(len(tables), 'run')} on several kinds of hardware"
    names = [[row.hardware for row in tables[0][1] if _rank_row(row) == rank] for rank in range(len(_OUTCOMES))]
    text = "; ".join(f"{outcome} {join_names(group)}" for outcome, group in zip(_OUTCOMES[::-1], names[::-1]) if group)
    return text[:1].upper() + text[1:]


def render_section(tables: Tables) -> Iterator[str]:
    """Yield the tables as HTML without the page around them."""
    from cfglint_train.reports.html.markup import escape_html, render_badge, render_chip, render_message, render_table

    for path, rows in tables:
        has_prices = _has_prices(rows)
        body = []
        for row in rows:
            name, verdict, peak, _, headroom, _, batch, *prices = map(escape_html, _list_cells(row, has_prices))
            settings = "<br>".join(f"<code>{escape_html(setting)}</code>" for setting in row.change)
            slowdown = "" if row.slowdown in (None, 1) else f", {words.format_slowdown(row.slowdown)}"
            kind = f" <small>{row.applicability}</small>" if row.change else ""
            outcome = f"{render_badge(row.outcome)} " if row.change else ""
            body.append(
                (
                    f"{name}{' ' + render_chip('best trade-off') if row.is_pareto else ''}",
                    verdict if row.verdict is None else f'{render_badge(row.verdict)} <span class="n">{peak}</span>',
                    f"{settings}{kind}" if row.change else render_message(_describe_change(row)),
                    "" if row.headroom is None else f'{outcome}<span class="n">{headroom} free</span>{slowdown}',
                    f"batch {batch}",
                    *(f"{label} {price}" for label, price in zip(_PRICES, prices)),
                )
            )
        head = ("hardware", "as it is", "smallest change", "with it", "samples per step", *_PRICES[: 2 * has_prices])
        yield f"<section><h2>{escape_html(path)}</h2>"
        yield render_table("The run on each kind of hardware", head, body, (), escape_html(path), "stack")
        notes = [f"best trade-off: {_LEGEND[2:]}"] if any(row.is_pareto for row in rows) else []
        yield from (f'<p class="note">{escape_html(note)}</p>' for note in (*notes, *_list_notes(rows)))
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
