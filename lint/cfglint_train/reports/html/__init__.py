"""One self-contained HTML page: budgets as charts and tables, findings with their fixes.

The page contains everything as text and tables, made here; `page.js` draws the charts beside them. The
page loads nothing: styles, scripts and the part of Observable Plot that draws (`plot.min.js`, made by `tools/plot`) are
written into it, and its content security policy allows nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cfglint_train.judging.result import Result
from cfglint_train.reports.html import page
from cfglint_train.reports.html.summary import summarised
from cfglint_train.reports.style import PLAIN, Style
from cfglint_train.runs.run import Run
from cfglint_train.whatif.grid import Axis
from cfglint_train.whatif.plan_file import StatedPlan

__all__ = ["estimate", "report", "summarised"]


def report(result: Result, style: Style = PLAIN) -> Iterator[str]:
    """The page of a lint: the findings, then the runs."""
    return page.render_page(
        result, result.digests or tuple(map(summarised, result.runs)), result.runs, (), style, findings_first=True
    )


def estimate(
    runs: Sequence[Run | StatedPlan], axes: Sequence[Axis] = (), result: Result | None = None, style: Style = PLAIN
) -> Iterator[str]:
    """The page of an estimate: the runs with their grids, then the findings where a result has them.

    Without `axes`, the grid is that of micro batches and sequence lengths around the run's own.
    """
    return page.render_page(result, tuple(map(summarised, runs)), runs, axes, style, findings_first=False)
