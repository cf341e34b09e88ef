"""Self-contained HTML page: budgets as charts and tables, and findings with their fixes.

The page contains everything as text and tables; `page.js` draws the charts next to them. The page loads nothing:
styles, scripts and the part of Observable Plot that it uses (`plot.min.js`, built by `tools/plot`) are inlined, and its
content security policy forbids everything else.
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
    """Render the page of a lint: the findings, then the runs."""
    return page.render_page(
        result, result.digests or tuple(map(summarised, result.runs)), result.runs, (), style, findings_first=True
    )


def estimate(
    runs: Sequence[Run | StatedPlan], axes: Sequence[Axis] = (), result: Result | None = None, style: Style = PLAIN
) -> Iterator[str]:
    """Render the page of an estimate: the runs with their grids, then the findings if there is a lint result.

    Without `axes`, the grid varies micro batch and sequence length around the run's own values.
    """
    return page.render_page(result, tuple(map(summarised, runs)), runs, axes, style, findings_first=False)
