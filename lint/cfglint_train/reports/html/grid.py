"""The grid of a run: what would fit instead, as a heat map and as a table."""

from __future__ import annotations

from collections.abc import Sequence

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.sizes import gib
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.reports.html.charts import Charts
from cfglint_train.reports.html.markup import table, text
from cfglint_train.runs.run import Run
from cfglint_train.whatif.grid import EVALUATION, Axis, Cell, grid, value_of, without_effect
from cfglint_train.whatif.plan_file import Planned

_MARKS: Final[dict[str | None, str]] = {
    "fits": "✓",
    "tight": "≈",
    "probably does not fit": "✗?",
    "does not fit": "✗",
    None: "",
}


class Grid(Frozen):
    """Combinations: rows of all axes but the last, columns of the last."""

    axes: tuple[Axis, ...]
    rows: tuple[tuple[Cell, ...], ...]
    own: tuple[int, int] | None
    """Row and column of the run as it is, where it is among them."""


def tried(run: Run | Planned, axes: Sequence[Axis]) -> Grid:
    """Every combination, each with an estimate of its own."""
    cells = tuple(grid(run, axes))
    across = len(axes[-1].values)
    rows = tuple(cells[start : start + across] for start in range(0, len(cells), across))
    as_it_is = {axis.name: value_of(run, axis) for axis in axes}
    own = next((divmod(number, across) for number, cell in enumerate(cells) if cell.changes == as_it_is), None)
    return Grid(tuple(axes), rows, own)


def figure(found: Grid, name: str, of: str, charts: Charts) -> str:
    """The heat map with its table; `of` is the run that it is about."""
    *outer, last = found.axes
    labels = [", ".join(_shown(row[0].changes[axis.name]) for axis in outer) for row in found.rows]
    columns = [_shown(value) for value in last.values]
    row_title = ", ".join(axis.name for axis in outer)
    charts.charts[name] = {
        "kind": "grid",
        "rowTitle": row_title,
        "columnTitle": last.name,
        "rows": labels,
        "rowNames": [
            ", ".join(f"{axis.name} {_shown(row[0].changes[axis.name])}" for axis in outer) for row in found.rows
        ],
        "columns": columns,
        "own": found.own,
        "cells": [[_values(cell) for cell in row] for row in found.rows],
    }
    rows = []
    for down, (label, row) in enumerate(zip(labels, found.rows)):
        sizes = [
            f"<b>{_size(cell)}</b>" if (down, across) == found.own else _size(cell) for across, cell in enumerate(row)
        ]
        rows.append((text(label), *sizes))
    head = (text(row_title), *(text(f"{last.name} {column}") for column in columns))
    caption = "Peak of the training step, or of an evaluation that is worse, on one GPU"
    numbers = table(f"{caption}: what if", head, rows, tuple(range(1, len(head))), of)
    idle = "".join(
        f"<p><code>{text(axis)}</code> has no effect on this estimate.</p>"
        for axis in without_effect([cell for row in found.rows for cell in row], found.axes)
    )
    return (
        f"<figure><figcaption><h4>What if</h4> {caption[0].lower() + caption[1:]}, everything else as it is"
        f'</figcaption>\n<div class="chart grid" data-chart="{name}"></div>\n<p class="readout" role="status"></p>\n'
        f"{idle}"
        f"<details><summary>The numbers</summary>\n{numbers}"
        "<p>✓ fits, ≈ tight, ✗? probably does not fit, ✗ does not fit; in bold the run as it is.</p></details></figure>"
    )


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _size(cell: Cell) -> str:
    if cell.budget is None:
        return "?"
    size = f"{gib(cell.budget.expected)} {_MARKS[cell.verdict]}".rstrip()
    return f"evaluation {size}" if cell.phase == EVALUATION else size


def _values(cell: Cell) -> list[Any] | None:
    budget = cell.budget
    return None if budget is None else [budget.expected, budget.low, budget.high, cell.verdict, cell.phase]
