"""The runs of a page: budgets per phase for a GPU, a host and the disk, and the what-if grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.memory.budget import Verdict
from cfglint_train.reports.html.charts import Charts
from cfglint_train.reports.html.grid import Grid, build_grid, render_figure
from cfglint_train.reports.html.markup import escape_html, render_message, render_table
from cfglint_train.reports.html.summary import PLACES, PhaseSummary, ResourceSummary, RunSummary
from cfglint_train.runs.run import Run
from cfglint_train.whatif.grid import Axis
from cfglint_train.whatif.plan_file import StatedPlan

MAX_EXPANDED: Final = 12
"""Maximum number of runs to expand. If there are more, all are collapsed, and have grids only if axes are set: a grid
takes as long as 20 to 30 estimates.
"""

_TITLES: Final = {"gpu": "One GPU", "host": "One host", "disk": "Disk"}


def render_section(
    summaries: Sequence[RunSummary], estimated_runs: Sequence[Run | StatedPlan], axes: Sequence[Axis], charts: Charts
) -> Iterator[str]:
    """Render the section with the runs.

    `estimated_runs` are the runs of `summaries`, in the same order, or empty if only the summaries are available; then
    there are no grids.
    """
    if not summaries:
        return
    yield '<section id="runs" aria-labelledby="runs-title">'
    yield '<h2 id="runs-title">Memory</h2>'
    if len(summaries) > 1:
        yield _render_overview(summaries)
    is_expanded = len(summaries) <= MAX_EXPANDED
    for number, run in enumerate(summaries):
        grid = None
        if estimated_runs and (axes or (is_expanded and run.axes)):
            grid = build_grid(estimated_runs[number], axes or run.axes)
        yield from _render_run(run, f"run-{number}", grid, charts, is_collapsed=not is_expanded)
    yield "</section>"


def _render_overview(runs: Sequence[RunSummary]) -> str:
    rows = []
    for number, run in enumerate(runs):
        peaks = {resource.place: _format_peak(resource) for resource in run.places}
        link = f'<a href="#run-{number}">{escape_html(run.path)}</a>'
        rows.append((link, *(peaks.get(resource, "") for resource in PLACES)))
    return render_table("Peak memory of each run", ("Run", *(_TITLES[resource] for resource in PLACES)), rows)


def _format_peak(resource: ResourceSummary) -> str:
    worst = resource.phases[resource.worst]
    limit = f" of {format_gib(resource.capacity)}" if resource.capacity is not None else ""
    return f"{format_gib(worst.expected)}{limit} {_render_badge(worst.verdict)}"


def _render_badge(verdict: Verdict | None) -> str:
    return "" if verdict is None else f'<span class="badge {verdict.replace(" ", "-")}">{verdict}</span>'


def _render_run(run: RunSummary, name: str, grid: Grid | None, charts: Charts, is_collapsed: bool) -> Iterator[str]:
    head = f'<h3 id="{name}-title">{escape_html(run.path)}</h3>'
    yield f'<section class="run" id="{name}" aria-labelledby="{name}-title">'
    yield f"<details><summary>{head}</summary>" if is_collapsed else head
    yield f'<p class="facts">{" · ".join(map(escape_html, run.facts))}</p>'
    yield '<div class="charts">'
    for resource in run.places:
        yield _render_resource(resource, f"{name}-{resource.place}", escape_html(run.path), charts)
        if resource.place == "gpu" and grid is not None:
            yield render_figure(grid, f"{name}-grid", escape_html(run.path), charts)
    yield "</div>"
    if run.axes and grid is None:
        command = f"cfglint estimate --output-format html {escape_html(run.path)}"
        yield f'<p class="note">Other micro batches and lengths: <code>{command}</code></p>'
    for label, notes in (
        ("Memory not checked", run.gaps),
        ("Assumed", run.assumptions),
        ("Not known", run.missing),
        ("Not counted", run.not_counted),
        ("Misspelled keys", run.corrections),
    ):
        if notes:
            items = "".join(f"<li>{render_message(note)}</li>" for note in notes)
            yield f'<p class="notes">{label}:</p><ul class="notes">{items}</ul>'
    yield "</details></section>" if is_collapsed else "</section>"


def _render_resource(resource: ResourceSummary, name: str, run_name: str, charts: Charts) -> str:
    title, worst = _TITLES[resource.place], resource.phases[resource.worst]
    charts.charts[name] = {
        "kind": "bars",
        "capacity": resource.capacity,
        "phases": [_build_bar(phase, charts) for phase in resource.phases],
    }
    limit = f" of {format_gib(resource.capacity)}" if resource.capacity is not None else ""
    unstated = "" if resource.capacity is not None else "; capacity unknown"
    phases = [
        (
            escape_html(phase.name),
            format_gib(phase.expected),
            f"{format_gib(phase.low)} to {format_gib(phase.high)}{phase.own_runs and f', {phase.own_runs}'}",
            _render_badge(phase.verdict),
            render_message(phase.event),
        )
        for phase in resource.phases
    ]
    parts = [
        (render_message(part), format_gib(size), render_message(formula)) for part, size, formula in resource.formulas
    ]
    by_phase = render_table(
        f"{title}, phase by phase",
        ("Phase", "Expected", "Interval", "Verdict", "At the peak"),
        phases,
        (1, 2),
        run_name,
    )
    by_part = render_table(
        f"{title}: components of the {escape_html(worst.name)} peak",
        ("Component", "Size", "Formula"),
        parts,
        (1,),
        run_name,
    )
    return (
        f"<figure><figcaption><h4>{title}</h4> {format_gib(worst.expected)}{limit} in "
        f"{escape_html(worst.title)}{unstated} "
        f'{_render_badge(worst.verdict)}</figcaption>\n<div class="chart" data-chart="{name}"></div>\n'
        f"<details><summary>The numbers</summary>\n{by_phase}\n{by_part}</details></figure>"
    )


def _build_bar(phase: PhaseSummary, charts: Charts) -> dict[str, Any]:
    parts = [[charts.register_component(name), size] for name, size in phase.parts]
    return {"name": phase.name, "low": phase.low, "high": phase.high, "parts": parts}
