"""Reports of `cfglint fit`: the alternatives of a run as text or JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cfglint_train import records
from cfglint_train.findings.finding import Applicability
from cfglint_train.findings.verdicts import Judgement, describe_own_runs, format_size
from cfglint_train.fitting import places, words
from cfglint_train.fitting.alternatives import Alternative, Alternatives
from cfglint_train.fitting.hardware_needed import HardwareNeed
from cfglint_train.fitting.smallest import Solution
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.memory.budget import Resource
from cfglint_train.records import RunFit
from cfglint_train.reports import answer, estimate, timeline
from cfglint_train.reports.cost import build_cost, format_cost
from cfglint_train.reports.escape import escape_data
from cfglint_train.reports.json import convert_record, encode
from cfglint_train.reports.style import PLAIN, Style

VERSION: Final = 1


def render_text(runs: Sequence[Alternatives], style: Style = PLAIN) -> Iterator[str]:
    """Yield every run with its verdict, its alternatives and the proposed change."""
    written_runs = [alternatives.written or alternatives.run for alternatives in runs]
    yield from estimate.wrap_lines(answer.answer_several(written_runs), style)
    for alternatives, written in zip(runs, written_runs):
        corrected_keys = [key.description for key in alternatives.run.inputs.corrected_keys]
        opening = answer.format_answer(
            places.choose_worse(written),
            alternatives.solution,
            hardware_need=alternatives.hardware_need,
            sizes=len(runs) == 1,
        )
        yield from estimate.wrap_lines([opening], style)
        yield from estimate.render_head(alternatives.run, style)
        comparison = list(answer.compare_written(written))
        yield from estimate.wrap_lines(comparison or (f"  {description}" for description in corrected_keys), style)
        yield from estimate.wrap_lines(_render_run(alternatives, style), style)
        yield ""


def _render_run(alternatives: Alternatives, style: Style) -> Iterator[str]:
    judgement = alternatives.judgement
    if judgement is None:
        gap = answer.find_gap(alternatives.run)
        yield from () if gap is None else (f"  memory not checked: {gap.message}; {gap.help}",)
        return
    yield from map(_format_judgement, (judgement, *alternatives.host_and_disk))
    if (cost := build_cost(alternatives.run)) is not None:
        yield f"  time, cost: {format_cost(cost)} at the stated throughput"
    assumptions = estimate.list_assumptions(alternatives.run)
    yield from (f"  assumes {note}" for note in estimate.collect_notes(assumptions))
    if alternatives.alternatives:
        yield ""
        yield "  each change alone (* chosen, ! unsafe)"
        yield from _render_alternatives(alternatives.alternatives, style)
    yield ""
    yield from render_change(alternatives)
    if alternatives.offload is not None:
        yield f"  {alternatives.offload}; offered only if you state a host memory that is large enough"
    if alternatives.maximized_field is not None:
        key = alternatives.run.spell_key(alternatives.maximized_field)
        largest = f"{alternatives.largest:,}" if alternatives.largest else "none"
        if (alternatives.largest_expected or 0) > (alternatives.largest or 0):
            largest += f" (tight up to {alternatives.largest_expected:,})"
        elif not alternatives.largest:
            largest += f" ({key}: 1 does not fit either)"
        yield f"  largest {key} that fits, with everything else unchanged: {largest}"


def render_change(alternatives: Alternatives) -> Iterator[str]:
    """Yield the proposed change, or the reason why there is none, of a run with an estimate."""
    assert alternatives.judgement is not None
    judgement, solution = alternatives.judgement, alternatives.solution
    if solution is not None:
        yield from _render_solution(solution)
    elif not alternatives.lacks_room:
        yield _describe_no_change(judgement, *alternatives.host_and_disk)
        if any(item.is_safe and item.verdict == "fits" != judgement.verdict for item in alternatives.alternatives):
            yield "  a slower change makes it fit: see --goal throughput"
    else:
        yield "  no change to these files makes it fit"
    if alternatives.hardware_need is not None:
        yield f"  {alternatives.hardware_need.description}"


def _describe_no_change(*judgements: Judgement) -> str:
    """Return the line for a run that is expected to fit unchanged, with the margins if it is tight."""
    margins = describe_tight(judgements)
    return f"  expected to fit as it is, but tight: {margins}" if margins else "  no change needed"


def describe_tight(judgements: Iterable[Judgement]) -> str:
    """Return the expected and the worst margin at the tightest place, or nothing if no verdict is `tight`."""
    tight = [judgement for judgement in judgements if judgement.verdict == "tight"]
    if not tight:
        return ""
    worst = max(tight, key=lambda judgement: judgement.high - judgement.capacity)
    return describe_margins(worst.budget.expected, worst.high, worst.capacity, worst.phase.title)


def describe_margins(expected: int, high: int, capacity: int, title: str) -> str:
    """Return the expected and the worst margin, from sizes in bytes, of a tight phase with this title."""
    return f"{format_gib(capacity - expected)} to spare in {title}, at worst {format_gib(high - capacity)} short"


def _format_judgement(judgement: Judgement) -> str:
    """Format a judgement: `backward: 180 GiB expected (145.1 to 215.9), 79.1 GiB available: does not fit`.

    The resource is named if it is not the GPU.
    """
    budget = judgement.budget
    resource = "" if judgement.resource == "gpu" else f" ({judgement.resource})"
    own_runs = f" {describe_own_runs(budget)}" if budget.own_runs is not None else ""
    return (
        f"  {judgement.phase.name}{resource}: {format_size(budget, ' expected')}{own_runs}, "
        f"{format_gib(judgement.capacity)} available: {judgement.verdict}"
    )


def _render_alternatives(alternatives: Sequence[Alternative], style: Style) -> Iterator[str]:
    """Yield one line per change, or two lines each if any line is wider than the terminal."""
    verdict_width = max(len(alternative.verdict) for alternative in alternatives)
    rows = [(_format_settings(item), _format_effect(item, verdict_width)) for item in alternatives]
    width = min(max(len(setting) for setting, _ in rows), 77)
    lines = [f"{setting:<{width}}  {effect}" for setting, effect in rows]
    if style.width is None or max(map(len, lines)) <= style.width:
        yield from lines
        return
    for setting, effect in rows:
        yield setting
        yield f"       {effect}"


def _format_settings(alternative: Alternative) -> str:
    return (
        f"  {'*' if alternative.chosen else ' '}{' ' if alternative.is_safe else '!'} {', '.join(alternative.settings)}"
    )


def _format_effect(alternative: Alternative, verdict_width: int) -> str:
    """Return the memory, the verdict (padded), the cost, and why a faster change that fits was not chosen."""
    cost = "" if alternative.move.gives_up == "nothing" else f"; {alternative.move.gives_up}"
    loss = f"; not chosen: {alternative.loss}" if alternative.loss else ""
    return (
        f"-{format_gib(alternative.saved):>10} ={format_gib(alternative.after):>10}  "
        f"{alternative.verdict:<{verdict_width}}  "
        f"{_RESOURCE_LABELS[alternative.place]}{words.format_slowdown(alternative.move.slowdown)} "
        f"({alternative.move.basis}){cost}{loss}"
    )


_RESOURCE_LABELS: Final[dict[Resource, str]] = {"gpu": "", "host": "on the host, ", "disk": "on disk, "}


def describe_applicability(applicability: Applicability, rests_on_guesses: bool) -> str:
    """Return the applicability of a change in words; `rests_on_guesses`: only assumptions keep it from being safe."""
    return "unsafe until the assumptions are confirmed" if rests_on_guesses else applicability


def _render_solution(solution: Solution) -> Iterator[str]:
    applicability = describe_applicability(solution.applicability, solution.rests_on_guesses)
    title, margins = "smallest change that fits", describe_tight(solution.outcomes)
    if not solution.is_enough:
        title = "change with the lowest peak, which does not fit"
    elif margins:
        title = f"smallest change that is expected to fit, but tight: {margins}"
    yield f"  {title} ({applicability}):"
    for setting in solution.settings:
        yield f"    {setting}"
    if set(solution.files) - {solution.run.main.document.path}:
        yield f"  in {', '.join(solution.files)}"
    outcomes = (solution.after.verdict, *(after.verdict for _, after in solution.host_and_disk))
    results = (f"{drop}, {outcome}" for drop, outcome in zip(solution.drops, outcomes))
    yield f"  {', '.join(results)}, {words.format_slowdown(solution.slowdown)}"


def render_json(runs: Sequence[Alternatives]) -> Iterator[str]:
    """Yield the report as indented JSON."""
    yield encode(build_document(runs))


def build_document(runs: Sequence[Alternatives]) -> dict[str, Any]:
    """Return the report as plain values; sizes are in bytes, slowdowns multiply the time per step."""
    return {"version": VERSION, "runs": [convert_record(build_fit(alternatives)) for alternatives in runs]}


def build_fit(alternatives: Alternatives) -> RunFit:
    """Return the record of a run's alternatives."""
    gpu = None if alternatives.judgement is None else estimate.build_room(alternatives.judgement)
    return RunFit(
        path=escape_data(alternatives.run.main.document.path),
        framework=alternatives.run.framework.name,
        phase=None if gpu is None else gpu.phase,
        expected=None if gpu is None else gpu.expected,
        low=None if gpu is None else gpu.low,
        high=None if gpu is None else gpu.high,
        capacity=None if gpu is None else gpu.capacity,
        verdict=None if gpu is None else gpu.verdict,
        own_runs=None if alternatives.judgement is None else estimate.convert_own_runs(alternatives.judgement.budget),
        elsewhere=tuple(map(estimate.build_room, alternatives.host_and_disk)),
        rungs=tuple(map(_build_rung, alternatives.alternatives)),
        solution=None if alternatives.solution is None else _build_solution(alternatives.solution),
        holding=None if alternatives.hardware_need is None else _build_holding(alternatives.hardware_need),
        offload=None if alternatives.offload is None else escape_data(alternatives.offload),
        largest=alternatives.largest,
        largest_expected=alternatives.largest_expected,
        not_checked=answer.find_gap(alternatives.run),
        assumptions=tuple(map(escape_data, estimate.list_assumption_notes(alternatives.run))),
        cost=build_cost(alternatives.run),
    )


def _build_rung(alternative: Alternative) -> records.Rung:
    return records.Rung(
        name=alternative.move.name,
        settings=tuple(map(escape_data, alternative.settings)),
        place=alternative.place,
        saved=alternative.saved,
        after=alternative.after,
        slowdown=round(alternative.move.slowdown, 3),
        basis=alternative.move.basis,
        source=alternative.move.source,
        gives_up=alternative.move.gives_up,
        safe=alternative.is_safe,
        chosen=alternative.chosen,
        verdict=alternative.verdict,
        loss=alternative.loss,
    )


def _build_solution(solution: Solution) -> records.Solution:
    return records.Solution(
        applicability=solution.graded_applicability,
        settings=tuple(map(escape_data, solution.settings)),
        files=tuple(map(escape_data, solution.files)),
        expected=solution.after.budget.expected,
        low=solution.after.budget.low,
        high=solution.after.high,
        verdict=solution.after.verdict,
        own_runs=estimate.convert_own_runs(solution.after.budget),
        slowdown=round(solution.slowdown, 3),
        elsewhere=tuple(estimate.build_room(after) for _, after in solution.host_and_disk),
        timeline=timeline.build_timeline(solution.run.replace_fields(solution.changes)),
    )


def _build_holding(hardware_need: HardwareNeed) -> records.Holding:
    return records.Holding(
        hardware_need.need,
        hardware_need.nodes,
        hardware_need.gpus,
        hardware_need.gpu,
        hardware_need.settings,
        hardware_need.lacking_places,
    )
