"""The what-if grid of a run, as a heat map and as a table."""

from __future__ import annotations

from collections.abc import Sequence

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.reports.html.charts import Charts
from cfglint_train.reports.html.markup import escape_html, render_table
from cfglint_train.runs.run import Run
from cfglint_train.whatif.grid import EVALUATION, Axis, Cell, find_idle_axes, generate_cells, get_value
from cfglint_train.whatif.plan_file import StatedPlan

_MARKS: Final[dict[str | None, str]] = {
    "fits": "✓",
    "tight": "≈",
    "probably does not fit": "✗?",
    "does not fit": "✗",
    None: "",
}


class Grid(Frozen):
    """Combinations of values: one row per combination of all axes except the last, one column per value of the last."""

    axes: tuple[Axis, ...]
    rows: tuple[tuple[Cell, ...], ...]
    current: tuple[int, int] | None
    """Row and column of the run's own values, or None if the grid does not contain them."""


def build_grid(run: Run | StatedPlan, axes: Sequence[Axis]) -> Grid:
    """Estimate every combination of the axes' values."""
    cells = tuple(generate_cells(run, axes))
    width = len(axes[-1].values)
    rows = tuple(cells[start : start + width] for start in range(0, len(cells), width))
    current_values = {axis.name: get_value(run, axis) for axis in axes}
    current = next((divmod(number, width) for number, cell in enumerate(cells) if cell.changes == current_values), None)
    return Grid(tuple(axes), rows, current)


def render_figure(result: Grid, name: str, run_name: str, charts: Charts) -> str:
    """Render the heat map and its table, and add its data to `charts` as `name`; `run_name` labels the table."""
    *outer, last = result.axes
    labels = [", ".join(_format_value(row[0].changes[axis.name]) for axis in outer) for row in result.rows]
    columns = [_format_value(value) for value in last.values]
    row_title = ", ".join(axis.name for axis in outer)
    charts.charts[name] = {
        "kind": "grid",
        "rowTitle": row_title,
        "columnTitle": last.name,
        "rows": labels,
        "rowNames": [
            ", ".join(f"{axis.name} {_format_value(row[0].changes[axis.name])}" for axis in outer)
            for row in result.rows
        ],
        "columns": columns,
        "own": result.current,
        "cells": [[_get_values(cell) for cell in row] for row in result.rows],
    }
    rows = []
    for down, (label, row) in enumerate(zip(labels, result.rows)):
        sizes = [
            f"<b>{_format_size(cell)}</b>" if (down, across) == result.current else _format_size(cell)
            for across, cell in enumerate(row)
        ]
        rows.append((escape_html(label), *sizes))
    head = (escape_html(row_title), *(escape_html(f"{last.name} {column}") for column in columns))
    caption = "Peak memory per GPU in training or evaluation, whichever is higher"
    numbers = render_table(f"{caption}: what if", head, rows, tuple(range(1, len(head))), run_name)
    idle = "".join(
        f"<p><code>{escape_html(axis)}</code> has no effect on this estimate.</p>"
        for axis in find_idle_axes([cell for row in result.rows for cell in row], result.axes)
    )
    return (
        f"<figure><figcaption><h4>What if</h4> {caption[0].lower() + caption[1:]}; everything else unchanged"
        f'</figcaption>\n<div class="chart grid" data-chart="{name}"></div>\n<p class="readout" role="status"></p>\n'
        f"{idle}"
        f"<details><summary>The numbers</summary>\n{numbers}"
        "<p>✓ fits, ≈ tight, ✗? probably does not fit, ✗ does not fit; bold: the current run.</p></details></figure>"
    )


def _format_value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _format_size(cell: Cell) -> str:
    if cell.budget is None:
        return "?"
    size = f"{format_gib(cell.budget.expected)} {_MARKS[cell.verdict]}".rstrip()
    return f"evaluation {size}" if cell.phase == EVALUATION else size


def _get_values(cell: Cell) -> list[Any] | None:
    budget = cell.budget
    return None if budget is None else [budget.expected, budget.low, budget.high, cell.verdict, cell.phase]
