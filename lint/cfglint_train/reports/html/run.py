"""One run on a page: the best change, the timeline, every change, the grid, and the origins of the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cfglint_train.findings.verdicts import describe_effects
from cfglint_train.fitting import words
from cfglint_train.fitting.alternatives import Alternatives, list_alternatives
from cfglint_train.fitting.places import find_corrected
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.sizes import format_gib, format_parameters
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.budget import VERDICTS, Phase
from cfglint_train.records import Room, RunEstimate, RunFit, Rung
from cfglint_train.reports.estimate import MEANT
from cfglint_train.reports.fit import build_fit, describe_applicability
from cfglint_train.reports.html.grid import render_grid
from cfglint_train.reports.html.markup import (
    escape_html,
    format_span,
    render_badge,
    render_chip,
    render_details,
    render_message,
    render_table,
)
from cfglint_train.reports.html.timeline import render_timeline
from cfglint_train.runs.run import Run
from cfglint_train.whatif.grid import Axis, Cell, choose_axes, generate_cells
from cfglint_train.whatif.plan_file import StatedPlan

_PLACES: Final = {"gpu": "", "host": " of host memory", "disk": " of disk"}


class PageRun(Frozen):
    """The records of a run on a page."""

    written: RunEstimate
    """Estimate of the run as written, as in the JSON report."""
    fit: RunFit | None = None
    """Changes, as in the JSON report of `fit`; None for a stated plan, and on a page of many runs."""
    need: str = ""
    """Hardware on which the run would fit if no change makes it fit, as a sentence."""
    axes: tuple[Axis, ...] = ()
    cells: tuple[Cell, ...] = ()

    @property
    def estimate(self) -> RunEstimate:
        """Estimate as written or as meant, whichever is worse; as meant if they are the same."""
        corrected = self.written.corrected
        return self.written if corrected is None else max((corrected, self.written), key=rank_estimate)


def rank_estimate(estimate: RunEstimate) -> tuple[int, float]:
    """Return a sort key: the verdict and the share of the capacity; lowest for a run without an estimate."""
    worst = estimate.worst
    return (-1, 0.0) if worst is None else (VERDICTS.index(worst.verdict), worst.expected / worst.capacity)


def collect_run(estimate: RunEstimate, run: Run | StatedPlan | None, axes: Sequence[Axis], is_alone: bool) -> PageRun:
    """Return the records of a run; without `run`, only its estimate is available.

    A run that shares its page with others has a grid only if `axes` are set, and changes only if it may not fit.
    """
    worst = PageRun(estimate).estimate.worst
    if run is None or (not is_alone and not axes and (worst is None or worst.verdict == "fits")):
        return PageRun(estimate)
    alternatives: Alternatives | None = None
    corrected: Run | StatedPlan = run
    if isinstance(run, Run):
        corrected = find_corrected(run) or run
        alternatives = list_alternatives(corrected)
    chosen = tuple(axes or (choose_axes(corrected) if is_alone else ()))
    return PageRun(
        estimate,
        None if alternatives is None else build_fit(alternatives),
        "" if alternatives is None or alternatives.hardware_need is None else alternatives.hardware_need.description,
        chosen,
        tuple(generate_cells(corrected, chosen)) if chosen else (),
    )


def describe_worst(worst: Room) -> str:
    """Return the verdict as a headline: `Does not fit: backward pass 95.7 of 79.1 GiB (121 %)`."""
    size = format_gib(worst.expected).removesuffix(" GiB")
    phase = Phase(worst.phase, "").title.removeprefix("the ")
    return (
        f"{worst.verdict.capitalize()}: {phase} {size} of {format_gib(worst.capacity)}{_PLACES[worst.place]} "
        f"({worst.percent:,} %)"
    )


def describe_run(estimate: RunEstimate) -> str:
    """Return the headline of a run."""
    if estimate.worst is not None:
        return describe_worst(estimate.worst)
    return f"Not estimated{'' if estimate.not_checked is None else f': {estimate.not_checked.message}'}"


def render_run(run: PageRun, name: str, level: int, is_full: bool) -> Iterator[str]:
    """Render the parts of a run below its headline; `level` is that of the headings.

    Unless `is_full`, the folded numbers are left out, and so are the host and the disk.
    """
    estimate, subject = run.estimate, escape_html(run.estimate.path)
    heading = f"h{level}"
    yield f'<p class="facts">{" · ".join(_list_facts(estimate))}</p>'
    if estimate.not_checked is not None:
        advice = render_message(estimate.not_checked.help or estimate.not_checked.message)
        yield f'<section class="change"><{heading}>To get an estimate</{heading}><p>{advice}</p></section>'
    yield from _render_meant(run.written)
    yield from _render_change(run, heading)
    capacity = next((phase.gpu.capacity for phase in estimate.phases if phase.gpu is not None), None)
    after = run.fit.solution.timeline if run.fit is not None and run.fit.solution is not None else ()
    if estimate.timeline:
        yield f"<section><{heading}>Memory over the run</{heading}>"
        yield render_timeline(estimate.timeline, after, capacity, subject if is_full else None)
        if is_full:
            yield from _render_components(estimate, subject)
        yield "</section>"
    if run.fit is not None and run.fit.rungs:
        yield f"<section><{heading}>What each change would do</{heading}>"
        yield _render_rungs(run.fit.rungs, subject)
        yield "</section>"
    if run.cells:
        yield f"<section><{heading}>On which GPU it fits</{heading}>"
        yield from render_grid(run.axes, run.cells, estimate, subject)
        yield "</section>"
    if is_full:
        yield from _render_other_places(estimate, heading, subject)
    yield from _render_grounds(estimate, heading, name)


def _list_facts(estimate: RunEstimate) -> Iterator[str]:
    if estimate.framework is not None:
        yield escape_html(f"{estimate.framework} {estimate.release or ''}".rstrip())
    if estimate.model is not None:
        yield f"{escape_html(estimate.model.id)}, {format_parameters(estimate.model.parameters)} parameters"
    cluster = [setting for setting in estimate.settings if setting.name in ("GPU", "nodes", "GPUs per node")]
    sizes = " x ".join("?" if size is None else str(size) for size in (estimate.nodes, estimate.gpus_per_node))
    assumed = "" if all(setting.origin != "assumed" for setting in cluster) else f" {render_chip('assumed')}"
    yield f"{sizes} {escape_html(estimate.gpu or 'GPUs')}{assumed}"
    if estimate.book is not None:
        yield f"book at least <b>{format_gib(estimate.book)}</b> per GPU"


def _render_meant(written: RunEstimate) -> Iterator[str]:
    """Render the verdicts as written and as meant if misspelled keys make a difference."""
    if written.corrected is not None:
        keys = "; ".join(render_message(note) for note in written.corrected.assumptions if note.endswith(MEANT))
        yield (
            f'<p class="meant">As written: {escape_html(describe_run(written))}.<br>'
            f"As meant: {escape_html(describe_run(written.corrected))}. {keys}</p>"
        )


def _render_change(run: PageRun, heading: str) -> Iterator[str]:
    """Render the best change, or the reason why there is none. Misspelled keys are corrected before all else."""
    worst, fit = run.estimate.worst, run.fit
    if worst is None or fit is None:
        return
    solution, is_misspelled = fit.solution, run.written.corrected is not None
    settings = [*([_CORRECTION] if is_misspelled else ()), *(() if solution is None else solution.settings)]
    yield f'<section class="change"><{heading}>Best change</{heading}>'
    if settings:
        yield f'<pre class="copy"><code>{chr(10).join(map(escape_html, settings))}</code></pre>'
    if solution is not None:
        yield (
            f"<p>{_describe_peak(worst)} → <b>{format_gib(solution.expected)}</b> {render_badge(solution.verdict)} · "
            f"{words.format_slowdown(solution.slowdown)} · "
            f"{describe_applicability(solution.applicability, bool(fit.assumptions))}</p>"
        )
    elif is_misspelled and fit.expected is not None:
        yield f"<p>{_describe_peak(worst)} → <b>{format_gib(fit.expected)}</b> {render_badge(fit.verdict)}</p>"
    if run.need:
        yield f"<p>No change to these files makes it fit: {render_message(run.need)}.</p>"
    elif solution is not None and solution.files:
        yield f'<p>Write it: <code class="copy">cfglint fit --write {escape_html(run.estimate.path)}</code></p>'
    elif not settings:
        yield "<p>None is needed.</p>"
    if fit.offload is not None:
        yield f"<p>{render_message(fit.offload)}</p>"
    yield "</section>"


def render_short_change(run: PageRun) -> str:
    """Render the best change in a cell, or the hardware that is needed; empty if the run fits or is not known."""
    fit = run.fit
    if fit is None:
        return ""
    settings = [_CORRECTION] if run.written.corrected is not None else []
    settings += [] if fit.solution is None else fit.solution.settings
    changes = "<br>".join(f"<code>{escape_html(setting)}</code>" for setting in settings)
    if fit.solution is not None:
        return f"{changes} → {format_gib(fit.solution.expected)} {render_badge(fit.solution.verdict)}"
    return changes or render_message(run.need)


_CORRECTION: Final = "correct the misspelled keys"


def _describe_peak(worst: Room) -> str:
    return f"{format_gib(worst.expected)}{_PLACES[worst.place]} {render_badge(worst.verdict)}"


def _render_components(estimate: RunEstimate, subject: str) -> Iterator[str]:
    """Render the components of the highest peak with their formulas, folded."""
    ranked = [
        (VERDICTS.index(budget.verdict) if budget.verdict is not None else 0, budget.expected, phase)
        for phase in estimate.phases
        if (budget := phase.gpu) is not None
    ]
    *_, phase = max(ranked, key=lambda row: row[:2])
    budget = phase.gpu
    assert budget is not None
    parts = [
        (render_message(part.name), format_gib(part.bytes), render_message(part.formula))
        for part in sorted(budget.components, key=lambda part: -part.bytes)
        if part.bytes
    ]
    title = Phase(phase.name, "").title
    caption = f"In {escape_html(title)}, {render_message(phase.event)}"
    table = render_table(caption, ("Component", "Size", "Formula"), parts, (1,), subject)
    if budget.own_runs is not None:
        yield f'<p class="note">Interval {describe_effects(budget.own_runs.narrowed, budget.own_runs.widened)}.</p>'
    yield render_details(f"Formulas of {escape_html(title)}", table)


def _render_other_places(estimate: RunEstimate, heading: str, subject: str) -> Iterator[str]:
    rows = [
        (
            f"{place}, {escape_html(phase.name)}",
            format_gib(budget.expected),
            format_span(budget.low, budget.high),
            "not stated" if budget.capacity is None else format_gib(budget.capacity),
            render_badge(budget.verdict),
        )
        for place, budgets in (
            ("host", [(phase, phase.host) for phase in estimate.phases]),
            ("disk", [(phase, phase.disk) for phase in estimate.phases]),
        )
        for phase, budget in budgets
        if budget is not None and budget.expected >= 2**30 / 100
    ]
    if rows:
        yield f"<section><{heading}>Host and disk</{heading}>"
        yield render_table(
            "One host, and disk",
            ("phase", "expected", "interval", "capacity", "verdict"),
            rows,
            (1, 2, 3),
            subject,
            "stack",
        )
        yield "</section>"


def _render_rungs(rungs: Sequence[Rung], subject: str) -> str:
    rows = [
        (
            f"{'<br>'.join(f'<code>{escape_html(setting)}</code>' for setting in rung.settings)}"
            f"{' ' + render_chip('chosen') if rung.chosen else ''}",
            f"−{format_gib(rung.saved)}",
            f"{format_gib(rung.after)} {render_badge(rung.verdict)}",
            words.format_slowdown(rung.slowdown),
            f"{'' if rung.safe else '<b>unsafe:</b> '}{render_message(rung.gives_up)}"
            f"{rung.loss and f'; not chosen: {render_message(rung.loss)}'}",
        )
        for rung in rungs
    ]
    head = ("change", "saves", "peak after", "speed", "gives up")
    return render_table("Each change alone", head, rows, (1, 2), subject, "stack")


def _render_grounds(estimate: RunEstimate, heading: str, name: str) -> Iterator[str]:
    """Render the settings with their origins, and everything that the estimate assumes or leaves out."""
    if estimate.settings:
        items = "".join(
            f"<li>{escape_html(setting.name)} <b>{_format_value(setting.value)}</b> {render_chip(setting.origin)}</li>"
            for setting in estimate.settings
        )
        yield f'<section><{heading} id="{name}-settings">What this rests on</{heading}><ul class="given">{items}</ul>'
    for label, notes in (
        ("Assumed", estimate.assumptions),
        ("Not known", estimate.missing),
        ("Not counted", estimate.not_counted),
    ):
        if notes:
            listed = "".join(f"<li>{render_message(note)}</li>" for note in notes)
            yield f'<p class="notes">{label}:</p><ul class="notes">{listed}</ul>'
    if estimate.settings:
        yield "</section>"


def _format_value(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else escape_html(value)
