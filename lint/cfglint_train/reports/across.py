"""Reports of `cfglint fit --across`: a run on several kinds of hardware, as text, JSON or HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from cfglint_train.fitting import words
from cfglint_train.fitting.across import HardwareRow, RunAcross
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.wording import format_count, join_names
from cfglint_train.reports.escape import escape_data, escape_line_start, escape_text
from cfglint_train.reports.json import convert_record, encode
from cfglint_train.reports.style import PLAIN, Style
from cfglint_train.reports.text import wrap_text

VERSION: Final = 1
_HEAD: Final = ("hardware", "as it is", "peak", "with the change", "headroom", "slowdown", "batch")
_LEGEND: Final = (
    "* no other row is certainly as good in headroom, slowdown, price and cost per token, and better in one of them"
)


def render_text(runs: Sequence[RunAcross], style: Style = PLAIN) -> Iterator[str]:
    """Yield a table for each run, and below it the change of each row that needs one."""
    for run in runs:
        rows = run.hardware
        yield style.paint(escape_line_start(run.path), "1")
        cells = list(_list_cells(rows))
        widths = [max(map(len, column)) for column in zip(*cells)]
        for mark, texts in zip((" ", *("*" if row.is_pareto else " " for row in rows)), cells):
            yield f"{mark} " + "  ".join(f"{cell:<{width}}" for cell, width in zip(texts, widths)).rstrip()
        yield ""
        for row in rows:
            yield from wrap_text(f"  {row.hardware}: ", escape_text(_describe_change(row)), style, 4)
        yield from wrap_text("  ", _LEGEND, style, 4)
        for note in _list_notes(rows):
            yield f"  {note}"
        yield ""


def build_runs(runs: Sequence[RunAcross]) -> tuple[RunAcross, ...]:
    """Return the records of the JSON report and the API."""
    return tuple(RunAcross(escape_data(run.path), tuple(map(_escape_row, run.hardware))) for run in runs)


def _escape_row(row: HardwareRow) -> HardwareRow:
    return replace(row, change=tuple(map(escape_data, row.change)), remedy=escape_data(row.remedy))


def render_json(runs: Sequence[RunAcross]) -> Iterator[str]:
    """Yield the rows as indented JSON; sizes are in bytes, slowdowns multiply the time per step."""
    yield encode({"version": VERSION, "runs": convert_record(build_runs(runs))})


def render_html(runs: Sequence[RunAcross]) -> Iterator[str]:
    """Yield the page of the tables, in the frame of all pages."""
    from cfglint_train.reports.html.markup import escape_html
    from cfglint_train.reports.html.page import render_frame

    name = escape_html(runs[0].path) if len(runs) == 1 else format_count(len(runs), "run")
    kind = _VERDICTS[max((_rank_row(row) for run in runs for row in run.hardware), default=0)]
    header = f'<p class="path">cfglint · {name}</p><h1 class="{kind}">{escape_html(_describe_runs(runs))}</h1>'
    yield from render_frame("cfglint: hardware", header, render_section(runs))


_VERDICTS: Final = ("unknown", "does-not-fit", "tight", "fits")
"""Kinds of a headline, from the worst outcome of a row to the best."""
_OUTCOMES: Final = ("not estimated on", "does not fit on", "fits with a change on", "fits as it is on")


def _rank_row(row: HardwareRow) -> int:
    """Return the number of a row's outcome in `_OUTCOMES`."""
    if row.headroom is None:
        return int(row.verdict is not None)
    return 2 if row.change else 3


def _describe_runs(runs: Sequence[RunAcross]) -> str:
    """Return the headline: `Fits as it is on H200x8; fits with a change on H100-80GBx8`."""
    if len(runs) != 1:
        return f"{format_count(len(runs), 'run')} on several kinds of hardware"
    names = [[row.hardware for row in runs[0].hardware if _rank_row(row) == rank] for rank in range(len(_OUTCOMES))]
    text = "; ".join(f"{outcome} {join_names(group)}" for outcome, group in zip(_OUTCOMES[::-1], names[::-1]) if group)
    return text[:1].upper() + text[1:]


def render_section(runs: Sequence[RunAcross]) -> Iterator[str]:
    """Yield the tables as HTML without the page around them."""
    from cfglint_train.reports.html.markup import escape_html, render_badge, render_chip, render_message, render_table

    for run in runs:
        labels, *cells = _list_cells(run.hardware)
        prices = labels[len(_COLUMNS) :]
        body = []
        for row, texts in zip(run.hardware, cells, strict=True):
            cell = dict(zip(labels, map(escape_html, texts)))
            settings = "<br>".join(f"<code>{escape_html(setting)}</code>" for setting in row.change)
            slowdown = "" if row.slowdown in (None, 1) else f", {words.format_slowdown(row.slowdown)}"
            kind = f" <small>{row.applicability}</small>" if row.change else ""
            outcome = f"{render_badge(row.outcome)} " if row.change else ""
            peak, headroom = (f'<span class="n">{text}</span>' for text in (cell["peak"], f"{cell['headroom']} free"))
            body.append(
                (
                    f"{cell['hardware']}{' ' + render_chip('best trade-off') if row.is_pareto else ''}",
                    cell["as it is"] if row.verdict is None else f"{render_badge(row.verdict)} {peak}",
                    f"{settings}{kind}" if row.change else render_message(_describe_change(row)),
                    "" if row.headroom is None else f"{outcome}{headroom}{slowdown}",
                    f"batch {cell['batch']}",
                    *(f"{label} {cell[label]}" for label in prices),
                )
            )
        head = ("hardware", "as it is", "smallest change", "with it", "samples per step", *prices)
        path = escape_html(run.path)
        yield f"<section><h2>{path}</h2>"
        yield render_table("The run on each kind of hardware", head, body, (), path, "stack")
        notes = [f"best trade-off: {_LEGEND[2:]}"] if any(row.is_pareto for row in run.hardware) else []
        yield from (f'<p class="note">{escape_html(note)}</p>' for note in (*notes, *_list_notes(run.hardware)))
        yield "</section>"


_COLUMNS: Final[tuple[tuple[str, Callable[[HardwareRow], str]], ...]] = (
    ("hardware", lambda row: row.hardware),
    ("as it is", lambda row: row.verdict or "not estimated"),
    ("peak", lambda row: "" if row.expected is None else _format_peak(row.expected, row.capacity or 0)),
    ("with the change", lambda row: row.outcome or "" if row.change else ""),
    ("headroom", lambda row: "" if row.headroom is None else format_gib(row.headroom)),
    ("slowdown", lambda row: "" if row.slowdown is None else _format_factor(row.slowdown, "none")),
    ("batch", lambda row: "?" if row.global_batch is None else f"{row.global_batch:,}"),
)
_PRICE_COLUMNS: Final[tuple[tuple[str, Callable[[HardwareRow], str]], ...]] = (
    ("price/h", lambda row: "" if row.price_per_hour is None else f"{row.price_per_hour:,.2f}"),
    ("cost/token", lambda row: "" if row.relative_cost is None else _format_factor(row.relative_cost)),
    ("hours", lambda row: "" if row.hours is None else f"{'at most ' * row.is_limit}{row.hours:,.1f}"),
    ("cost", lambda row: "" if row.cost is None else f"{'at most ' * row.is_limit}{row.cost:,.2f}"),
)
"""Columns that are left out if no row has a value."""


def _list_cells(rows: Sequence[HardwareRow]) -> Iterator[tuple[str, ...]]:
    """Yield the head of the table and the cells of each row."""
    columns = [*_COLUMNS, *(column for column in _PRICE_COLUMNS if any(map(column[1], rows)))]
    yield tuple(name for name, _ in columns)
    for row in rows:
        yield tuple(render(row) or ("-" if (name, render) in _COLUMNS else "?") for name, render in columns)


def _format_peak(expected: int, capacity: int) -> str:
    return f"{format_gib(expected)} of {format_gib(capacity)}"


def _format_factor(factor: float, unit: str = "1.00 x") -> str:
    return unit if factor == 1 else f"{factor:.2f} x"


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
    has_rates = any(row.price_per_hour is not None or row.hours is not None for row in rows)
    if has_rates and any(row.relative_cost is None and row.headroom is not None for row in rows):
        yield "cost/token is unknown without price_per_hour and tokens_per_second, as measured for the unchanged run"
