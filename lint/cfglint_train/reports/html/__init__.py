"""Self-contained HTML page: does each run fit, where does it break, what would change that, and on which GPU.

Charts are SVG and tables that are complete without scripts: in a browser, in print, in mail, and under a content policy
that forbids everything but the page's own styles. Every number of the page is one of the JSON reports of `estimate`,
`fit` and the lint (`page.collect_run`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cfglint_train.judging.result import Result
from cfglint_train.reports.html import page
from cfglint_train.reports.html.run import PageRun, collect_run, collect_runs
from cfglint_train.reports.style import PLAIN, Style
from cfglint_train.runs.run import Run
from cfglint_train.whatif.grid import Axis
from cfglint_train.whatif.plan_file import StatedPlan

__all__ = ["estimate", "report", "summarize_runs"]


def summarize_runs(runs: Sequence[Run]) -> list[PageRun]:
    """Return the records of a process's runs on the page of a lint, in their order, for another process."""
    return collect_runs(runs, ())


def report(result: Result, style: Style = PLAIN) -> Iterator[str]:
    """Render the page of a lint: the findings, then the runs."""
    if len(result.runs) == 1:
        records: Sequence[PageRun] = [collect_run(result.runs[0], ())]
    else:
        records = result.digests or summarize_runs(result.runs)
    return page.render_page(result, records, style, findings_first=True)


def estimate(
    runs: Sequence[Run | StatedPlan], axes: Sequence[Axis] = (), result: Result | None = None, style: Style = PLAIN
) -> Iterator[str]:
    """Render the page of an estimate: the runs with their grids, then the findings if there is a lint result.

    Without `axes`, the grid of a single run varies GPU, micro batch and sequence length around the run's own values.
    """
    records = [collect_run(runs[0], axes)] if len(runs) == 1 else collect_runs(runs, axes)
    return page.render_page(result, records, style, findings_first=False)
