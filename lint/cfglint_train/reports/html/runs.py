"""The runs of a page: their budgets per phase on a GPU, a host and the disk, and what would fit instead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cfglint_train.foundation.sizes import gib
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.memory.budget import Verdict
from cfglint_train.reports.html.charts import Charts
from cfglint_train.reports.html.grid import Grid, figure, tried
from cfglint_train.reports.html.markup import table, text
from cfglint_train.reports.html.summary import PLACES, PhaseSummary, ResourceSummary, RunSummary
from cfglint_train.runs.run import Run
from cfglint_train.whatif.grid import Axis
from cfglint_train.whatif.plan_file import Planned

MANY: Final = 12
"""Runs; where there are more, they are folded and have no grids, each of which takes as long as 20 to 30 estimates."""

_TITLES: Final = {"gpu": "One GPU", "host": "One host", "disk": "Disk"}


def section(
    told: Sequence[RunSummary], own: Sequence[Run | Planned], axes: Sequence[Axis], charts: Charts
) -> Iterator[str]:
    """The section, run by run. `own` are the runs themselves, or nothing where only their summaries are here."""
    if not told:
        return
    yield '<section id="runs" aria-labelledby="runs-title">'
    yield '<h2 id="runs-title">Memory</h2>'
    if len(told) > 1:
        yield _overview(told)
    few = len(told) <= MANY
    for number, run in enumerate(told):
        grid = None
        if own and (axes or (few and run.axes)):
            grid = tried(own[number], axes or run.axes)
        yield from _run(run, f"run-{number}", grid, charts, folded=not few)
    yield "</section>"


def _overview(runs: Sequence[RunSummary]) -> str:
    rows = []
    for number, run in enumerate(runs):
        peaks = {place.place: _peak(place) for place in run.places}
        link = f'<a href="#run-{number}">{text(run.path)}</a>'
        rows.append((link, *(peaks.get(place, "") for place in PLACES)))
    return table("Peaks of every run", ("Run", *(_TITLES[place] for place in PLACES)), rows)


def _peak(place: ResourceSummary) -> str:
    worst = place.phases[place.worst]
    limit = f" of {gib(place.capacity)}" if place.capacity is not None else ""
    return f"{gib(worst.expected)}{limit} {_badge(worst.verdict)}"


def _badge(judged: Verdict | None) -> str:
    return "" if judged is None else f'<span class="badge {judged.replace(" ", "-")}">{judged}</span>'


def _run(run: RunSummary, name: str, grid: Grid | None, charts: Charts, folded: bool) -> Iterator[str]:
    head = f'<h3 id="{name}-title">{text(run.path)}</h3>'
    yield f'<section class="run" id="{name}" aria-labelledby="{name}-title">'
    yield f"<details><summary>{head}</summary>" if folded else head
    yield f'<p class="facts">{" · ".join(map(text, run.facts))}</p>'
    yield '<div class="charts">'
    for place in run.places:
        yield _place(place, f"{name}-{place.place}", text(run.path), charts)
        if place.place == "gpu" and grid is not None:
            yield figure(grid, f"{name}-grid", text(run.path), charts)
    yield "</div>"
    if run.axes and grid is None:
        command = f"cfglint estimate --output-format html {text(run.path)}"
        yield f'<p class="note">Other micro batches and lengths: <code>{command}</code></p>'
    for label, notes in (
        ("Assumed", run.assumptions),
        ("Not known", run.missing),
        ("Not counted", run.not_counted),
    ):
        if notes:
            listed = "".join(f"<li>{text(note)}</li>" for note in notes)
            yield f'<p class="notes">{label}:</p><ul class="notes">{listed}</ul>'
    yield "</details></section>" if folded else "</section>"


def _place(place: ResourceSummary, name: str, of: str, charts: Charts) -> str:
    title, worst = _TITLES[place.place], place.phases[place.worst]
    charts.charts[name] = {
        "kind": "bars",
        "capacity": place.capacity,
        "phases": [_bar(phase, charts) for phase in place.phases],
    }
    limit = f" of {gib(place.capacity)}" if place.capacity is not None else ""
    unstated = "" if place.capacity is not None else "; capacity unknown"
    phases = [
        (
            text(phase.name),
            gib(phase.expected),
            f"{gib(phase.low)} to {gib(phase.high)}",
            _badge(phase.verdict),
            text(phase.event),
        )
        for phase in place.phases
    ]
    parts = [(text(part), gib(size), text(formula)) for part, size, formula in place.formulas]
    by_phase = table(
        f"{title}, phase by phase", ("Phase", "Expected", "Interval", "Verdict", "At the peak"), phases, (1, 2), of
    )
    by_part = table(
        f"{title}: the {text(worst.name)} in parts", ("Part", "Size", "How it is computed"), parts, (1,), of
    )
    return (
        f"<figure><figcaption><h4>{title}</h4> {gib(worst.expected)}{limit} in the {text(worst.name)}{unstated} "
        f'{_badge(worst.verdict)}</figcaption>\n<div class="chart" data-chart="{name}"></div>\n'
        f"<details><summary>The numbers</summary>\n{by_phase}\n{by_part}</details></figure>"
    )


def _bar(phase: PhaseSummary, charts: Charts) -> dict[str, Any]:
    parts = [[charts.component(name), size] for name, size in phase.parts]
    return {"name": phase.name, "low": phase.low, "high": phase.high, "parts": parts}
