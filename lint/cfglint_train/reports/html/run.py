"""One run on a page: the best change, the timeline, every change, the grid, and the origins of the numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cfglint_train.findings.verdicts import describe_effects
from cfglint_train.fitting import words
from cfglint_train.fitting.alternatives import Alternatives, list_alternatives
from cfglint_train.fitting.places import find_corrected
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.sizes import format_gib, format_parameters
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.budget import VERDICTS, Phase, Resource, Verdict
from cfglint_train.records import Room, RunEstimate, RunFit, Rung, Solution
from cfglint_train.reports.answer import RESOURCE_NAMES
from cfglint_train.reports.commands import spell_command
from cfglint_train.reports.estimate import MEANT, build_estimate
from cfglint_train.reports.fit import build_fit, describe_applicability, describe_margins
from cfglint_train.reports.html.grid import render_grid
from cfglint_train.reports.html.markup import (
    escape_html,
    format_span,
    format_value,
    render_badge,
    render_chip,
    render_details,
    render_message,
    render_table,
)
from cfglint_train.reports.html.timeline import render_timeline
from cfglint_train.reports.style import Style
from cfglint_train.runs.run import Run
from cfglint_train.whatif.grid import Axis, Cell, choose_axes, generate_cells
from cfglint_train.whatif.plan_file import StatedPlan

MAX_DETAILED: Final = 10
"""Largest number of runs on a page with changes and details, the worst ones."""


class PageRun(Frozen):
    """The records of a run on a page."""

    written: RunEstimate
    """Estimate of the run as written, as in the JSON report."""
    fit: RunFit | None = None
    """Changes, as in the JSON report of `fit`; None for a stated plan. On a page of several runs, only the worst that
    may not fit have changes.
    """
    rests_on_guesses: bool = False
    """True if only assumptions keep the best change from being safe."""
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


def rank_runs(records: Iterable[PageRun]) -> list[PageRun]:
    """Return the records, worst first."""
    order = sorted(records, key=lambda record: record.written.path)
    return sorted(order, key=lambda record: rank_estimate(record.estimate), reverse=True)


def collect_runs(runs: Sequence[Run | StatedPlan], axes: Sequence[Axis]) -> list[PageRun]:
    """Return the records of runs that share a page, in the same order.

    Only the `MAX_DETAILED` worst have changes if they may not fit, and a grid if there are `axes`.
    """
    records = [PageRun(build_estimate(run)) for run in runs]
    worst_ids = {id(record) for record in rank_runs(records)[:MAX_DETAILED]}

    def complete(record: PageRun, run: Run | StatedPlan) -> PageRun:
        worst = record.estimate.worst
        is_complete = id(record) not in worst_ids or (not axes and (worst is None or worst.verdict == "fits"))
        return record if is_complete else _add_changes(record, run, axes)

    return list(map(complete, records, runs))


def collect_run(run: Run | StatedPlan, axes: Sequence[Axis]) -> PageRun:
    """Return the records of the only run of a page, with the usual grid if there are no `axes`."""
    return _add_changes(PageRun(build_estimate(run)), run, axes or choose_axes(find_corrected(run) or run))


def _add_changes(record: PageRun, run: Run | StatedPlan, axes: Sequence[Axis]) -> PageRun:
    alternatives: Alternatives | None = None
    corrected: Run | StatedPlan = run
    if isinstance(run, Run):
        corrected = find_corrected(run) or run
        alternatives = list_alternatives(corrected)
    fit = None if alternatives is None else build_fit(alternatives)
    solution = None if alternatives is None else alternatives.solution
    graded = None if fit is None or fit.solution is None else fit.solution.applicability
    return PageRun(
        record.written,
        fit,
        solution is not None and solution.applicability != graded,
        "" if alternatives is None or alternatives.hardware_need is None else alternatives.hardware_need.description,
        tuple(axes),
        tuple(generate_cells(corrected, axes)) if axes else (),
    )


def describe_worst(worst: Room) -> str:
    """Return the verdict as a headline: `Does not fit: backward pass 95.7 of 79.1 GiB (121 %)`."""
    size = format_gib(worst.expected).removesuffix(" GiB")
    phase = name_phase(worst)
    capacity = _format_size(worst.capacity, worst.place)
    return f"{worst.verdict.capitalize()}: {phase} {size} of {capacity} ({worst.percent:,} %)"


def name_phase(room: Room) -> str:
    """Return the title of a phase without its article: `backward pass`."""
    return Phase(room.phase, "").title.removeprefix("the ")


def _format_size(size: int, place: Resource) -> str:
    """Return a size, with the name of its place if that is not the GPU."""
    return format_gib(size) if place == "gpu" else f"{format_gib(size)} of {RESOURCE_NAMES[place]}"


def describe_run(estimate: RunEstimate) -> str:
    """Return the headline of a run."""
    if estimate.worst is not None:
        return describe_worst(estimate.worst)
    return f"Not estimated{'' if estimate.not_checked is None else f': {estimate.not_checked.message}'}"


def render_run(run: PageRun, name: str, level: int, style: Style, is_full: bool) -> Iterator[str]:
    """Render the parts of a run below its headline; `level` is that of the headings.

    The host and the disk come first if they decide the verdict. Unless `is_full`, the folded numbers are left out, and
    so are the host and the disk if they have room.
    """
    estimate, subject = run.estimate, escape_html(run.estimate.path)
    heading = f"h{level}"
    yield f'<p class="facts">{" · ".join(_list_facts(estimate))}</p>'
    if estimate.not_checked is not None:
        advice = render_message(estimate.not_checked.help or estimate.not_checked.message)
        yield f'<section class="change"><{heading}>To get an estimate</{heading}><p>{advice}</p></section>'
    yield from _render_meant(run.written)
    yield from _render_change(run, heading, style)
    capacity = next((phase.gpu.capacity for phase in estimate.phases if phase.gpu is not None), None)
    after = run.fit.solution.timeline if run.fit is not None and run.fit.solution is not None else ()
    after = () if after == estimate.timeline else after
    is_elsewhere = estimate.worst is not None and estimate.worst.place != "gpu"
    if is_elsewhere:
        yield from _render_other_places(estimate, heading, subject)
    if estimate.timeline:
        yield f"<section><{heading}>Memory over the run</{heading}>"
        yield render_timeline(estimate.timeline, after, capacity, subject if is_full else None)
        if is_full:
            yield from _render_components(estimate, subject)
        yield "</section>"
    if is_full and not is_elsewhere:
        yield from _render_other_places(estimate, heading, subject)
    if run.fit is not None and run.fit.rungs:
        yield f"<section><{heading}>What each change would do</{heading}>"
        yield _render_rungs(run.fit.rungs, subject)
        yield "</section>"
    if run.cells:
        yield f"<section><{heading}>On which GPU it fits</{heading}>"
        yield from render_grid(run.axes, run.cells, estimate, subject, style)
        yield "</section>"
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


def _render_change(run: PageRun, heading: str, style: Style) -> Iterator[str]:
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
        outcomes = sorted(_list_outcomes(solution), key=lambda outcome: outcome[0] != worst.place)
        after = ", ".join(
            f"<b>{format_gib(size)}</b>{f' of {RESOURCE_NAMES[place]}' * (len(outcomes) > 1)} {render_badge(verdict)}"
            for place, size, verdict in outcomes
        )
        yield (
            f"<p>{_describe_peak(worst)} → {after} · "
            f"{words.format_slowdown(solution.slowdown)} · "
            f"{_describe_safety(solution, fit.rungs, run.rests_on_guesses)}</p>"
        )
    elif is_misspelled and fit.expected is not None:
        yield f"<p>{_describe_peak(worst)} → <b>{format_gib(fit.expected)}</b> {render_badge(fit.verdict)}</p>"
    if run.need:
        yield f"<p>No change to these files makes it fit: {render_message(run.need)}.</p>"
    elif solution is not None and solution.files:
        if style.subject is None:
            yield f"<p>Write it: {_render_command('fit --write', run, style)}</p>"
    elif not settings:
        yield f"<p>None is needed{_describe_tight(worst)}.</p>"
        is_slower = any(rung.safe and rung.verdict == "fits" != worst.verdict for rung in fit.rungs)
        if is_slower and style.subject is None:
            yield f"<p>A slower change makes it fit: {_render_command('fit --goal throughput', run, style)}</p>"
    if fit.offload is not None:
        yield f"<p>{render_message(fit.offload)}</p>"
    yield "</section>"


def _render_command(command: str, run: PageRun, style: Style) -> str:
    return f'<code class="copy">{escape_html(spell_command(command, run.estimate.path, style))}</code>'


def _describe_tight(worst: Room) -> str:
    """Return how close to its limits a tight run is, or an empty string if the run fits."""
    if worst.verdict != "tight":
        return ""
    margins = describe_margins(worst.expected, worst.high, worst.capacity, Phase(worst.phase, "").title)
    return f", but the run is tight: {margins}"


def _describe_safety(solution: Solution, rungs: Sequence[Rung], rests_on_guesses: bool) -> str:
    """Return the applicability of a change, with what its unsafe parts give up."""
    lost = dict.fromkeys(rung.gives_up for rung in rungs if rung.chosen and not rung.safe)
    if lost:
        return f"{solution.applicability}: {render_message(', '.join(lost))}"
    return describe_applicability(solution.applicability, rests_on_guesses)


def render_short_change(run: PageRun) -> str:
    """Render the best change in a cell, or the hardware that is needed; empty if the run fits or is not known."""
    fit = run.fit
    if fit is None:
        return ""
    settings = [_CORRECTION] if run.written.corrected is not None else []
    settings += [] if fit.solution is None else fit.solution.settings
    changes = "<br>".join(f"<code>{escape_html(setting)}</code>" for setting in settings)
    if fit.solution is not None:
        place, size, verdict = max(_list_outcomes(fit.solution), key=lambda outcome: VERDICTS.index(outcome[2]))
        return f"{changes} → {_format_size(size, place)} {render_badge(verdict)}"
    return changes or render_message(run.need)


def _list_outcomes(solution: Solution) -> list[tuple[Resource, int, Verdict]]:
    """Return the places that a change concerns, each with its expected bytes and its verdict after the change."""
    others = [(room.place, room.expected, room.verdict) for room in solution.elsewhere]
    return [*others, ("gpu", solution.expected, solution.verdict)]


_CORRECTION: Final = "correct the misspelled keys"


def _describe_peak(worst: Room) -> str:
    return f"{_format_size(worst.expected, worst.place)} {render_badge(worst.verdict)}"


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
            "none stated" if budget.capacity is None else f"of {format_gib(budget.capacity)}",
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
            format_gib(rung.saved),
            f"{_format_size(rung.after, rung.place)} {'<br>' * (rung.place != 'gpu')}{render_badge(rung.verdict)}",
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
            f"<li>{escape_html(setting.name)} <b>{escape_html(format_value(setting.value))}</b> "
            f"{render_chip(setting.origin)}</li>"
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
