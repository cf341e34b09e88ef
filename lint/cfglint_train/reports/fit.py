"""What `cfglint fit` prints: the ladder of changes of a run, as text or as plain values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cfglint_train import records
from cfglint_train.findings.verdicts import Judgement, amount
from cfglint_train.fitting import words
from cfglint_train.fitting.alternatives import Alternative, Alternatives
from cfglint_train.fitting.hardware_needed import HardwareNeed
from cfglint_train.fitting.smallest import Solution
from cfglint_train.foundation.sizes import gib
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.memory.budget import Resource
from cfglint_train.records import Room, RunFit
from cfglint_train.releases.other_releases import RELEASE
from cfglint_train.reports import answer, estimate
from cfglint_train.reports.escape import plain
from cfglint_train.reports.json import encoded, values
from cfglint_train.reports.style import PLAIN, Style
from cfglint_train.runs.not_estimated import unchecked

VERSION: Final = 1


def text(ladders: Sequence[Alternatives], style: Style = PLAIN) -> Iterator[str]:
    """Yield every run with its verdict, its ladder and the change that is proposed."""
    yield from estimate.wrapped(answer.of_several([ladder.run for ladder in ladders]), style)
    for ladder in ladders:
        first = answer.answer(ladder.run, ladder.solution, holding=ladder.holding, sizes=len(ladders) == 1)
        yield from estimate.wrapped([first], style)
        yield from estimate.head(ladder.run, style)
        yield from estimate.wrapped((f"  {one.words}" for one in ladder.run.parts.meant), style)
        yield from estimate.wrapped(_lines(ladder, style), style)
        yield ""


def _lines(ladder: Alternatives, style: Style) -> Iterator[str]:
    judgement, solution = ladder.judgement, ladder.solution
    if judgement is None:
        found = unchecked(ladder.run)
        why = f"{found.why}; {found.remedy}" if found is not None else answer.NO_JOB
        yield f"  memory not checked: {why}"
        return
    yield from map(_verdict, (judgement, *ladder.elsewhere))
    assumed = estimate.assumed(ladder.run)
    yield from (f"  assumes {note}" for note in estimate.notes(assumed))
    if ladder.rungs:
        yield ""
        yield "  each change alone (* chosen, ! unsafe)"
        yield from _rungs(ladder.rungs, style)
    yield ""
    if solution is not None:
        # As for --fix: what a measured change does is the same at each release at which the run does not fit.
        guessed = any(not one.fact.startswith(RELEASE) for one in assumed)
        yield from _solution(solution, guessed)
    elif not ladder.lacks_room:
        yield _no_change(judgement, *ladder.elsewhere)
    else:
        yield "  no change of these files makes it fit"
        if ladder.holding is not None:
            yield f"  {ladder.holding.words}"
    if ladder.offload is not None:
        yield f"  {ladder.offload}; offered where host-memory is stated and holds it"
    if ladder.asked is not None:
        key = ladder.run.spell(ladder.asked)
        largest = f"{ladder.largest:,}" if ladder.largest else f"none: {key}: 1 does not fit either"
        yield f"  largest {key} that fits, everything else as it is: {largest}"


def _no_change(*judgements: Judgement) -> str:
    """That a run is expected to fit as it is, and by how much where it is tight."""
    tight = [one for one in judgements if one.verdict == "tight"]
    if not tight:
        return "  no change needed"
    worst = max(tight, key=lambda one: one.budget.high - one.capacity)
    spare, more = worst.capacity - worst.budget.expected, worst.budget.high - worst.capacity
    return (
        f"  expected to fit as it is, and tight: {gib(spare)} to spare in {worst.phase.title}, "
        f"at worst {gib(more)} too little"
    )


def _verdict(judgement: Judgement) -> str:
    """`backward: 180 GiB expected (145.1 to 215.9), 79.1 GiB available: does not fit`, with the place if no GPU."""
    budget = judgement.budget
    where = "" if judgement.place == "gpu" else f" ({judgement.place})"
    return (
        f"  {judgement.phase.name}{where}: {amount(budget, ' expected')}, "
        f"{gib(judgement.capacity)} available: {judgement.verdict}"
    )


def _rungs(rungs: Sequence[Alternative], style: Style) -> Iterator[str]:
    """Yield a line for each change; two, if one of those lines is longer than the terminal is wide."""
    rows = [(_setting(rung), _effect(rung)) for rung in rungs]
    width = min(max(len(setting) for setting, _ in rows), 77)
    lines = [f"{setting:<{width}}  {effect}" for setting, effect in rows]
    if style.width is None or max(map(len, lines)) <= style.width:
        yield from lines
        return
    for setting, effect in rows:
        yield setting
        yield f"       {effect}"


def _setting(rung: Alternative) -> str:
    return f"  {'*' if rung.chosen else ' '}{' ' if rung.safe else '!'} {', '.join(rung.settings)}"


def _effect(rung: Alternative) -> str:
    lost = "" if rung.move.gives_up == "nothing" else f"; {rung.move.gives_up}"
    return (
        f"-{gib(rung.saved):>10} ={gib(rung.after):>10}  "
        f"{_WHERE[rung.place]}{words.percent(rung.move.slowdown)} ({rung.move.basis}){lost}"
    )


_WHERE: Final[dict[Resource, str]] = {"gpu": "", "host": "of the host, ", "disk": "of the disk, "}


def _solution(solution: Solution, assumed: bool) -> Iterator[str]:
    safe = "safe if what is assumed holds" if assumed and solution.applicability == "safe" else solution.applicability
    yield f"  smallest change that fits ({safe}):"
    for setting in solution.settings:
        yield f"    {setting}"
    if set(solution.files) - {solution.run.main.document.path}:
        yield f"  in {', '.join(solution.files)}"
    outcomes = (solution.after.verdict, *(after.verdict for _, after in solution.elsewhere))
    reached = (f"{drop}, {outcome}" for drop, outcome in zip(solution.drops, outcomes))
    yield f"  {', '.join(reached)}, {words.percent(solution.slowdown)}"


def as_json(ladders: Sequence[Alternatives]) -> Iterator[str]:
    """The same for programs."""
    yield encoded(document(ladders))


def document(ladders: Sequence[Alternatives]) -> dict[str, Any]:
    """The same as plain values; sizes in bytes, slowdowns as factors on the time of a step."""
    return {"version": VERSION, "runs": [values(fit_of(ladder)) for ladder in ladders]}


def fit_of(ladder: Alternatives) -> RunFit:
    """Return the record of a ladder."""
    gpu = None if ladder.judgement is None else _room(ladder.judgement)
    return RunFit(
        path=plain(ladder.run.main.document.path),
        framework=ladder.run.framework.name,
        phase=None if gpu is None else gpu.phase,
        expected=None if gpu is None else gpu.expected,
        low=None if gpu is None else gpu.low,
        high=None if gpu is None else gpu.high,
        capacity=None if gpu is None else gpu.capacity,
        verdict=None if gpu is None else gpu.verdict,
        elsewhere=tuple(map(_room, ladder.elsewhere)),
        rungs=tuple(map(_rung, ladder.rungs)),
        solution=None if ladder.solution is None else _proposed(ladder.solution),
        holding=None if ladder.holding is None else _holding(ladder.holding),
        offload=None if ladder.offload is None else plain(ladder.offload),
        largest=ladder.largest,
        assumptions=tuple(map(plain, estimate.assumptions(ladder.run))),
    )


def _room(judgement: Judgement) -> Room:
    budget = judgement.budget
    return Room(
        place=judgement.place,
        phase=judgement.phase.name,
        expected=budget.expected,
        low=budget.low,
        high=budget.high,
        capacity=judgement.capacity,
        verdict=judgement.verdict,
    )


def _rung(rung: Alternative) -> records.Rung:
    return records.Rung(
        name=rung.move.name,
        settings=tuple(map(plain, rung.settings)),
        place=rung.place,
        saved=rung.saved,
        after=rung.after,
        slowdown=round(rung.move.slowdown, 3),
        basis=rung.move.basis,
        source=rung.move.source,
        gives_up=rung.move.gives_up,
        safe=rung.safe,
        chosen=rung.chosen,
    )


def _proposed(solution: Solution) -> records.Solution:
    return records.Solution(
        applicability=solution.applicability,
        settings=tuple(map(plain, solution.settings)),
        files=tuple(map(plain, solution.files)),
        expected=solution.after.budget.expected,
        low=solution.after.budget.low,
        high=solution.after.budget.high,
        verdict=solution.after.verdict,
        slowdown=round(solution.slowdown, 3),
        elsewhere=tuple(_room(after) for _, after in solution.elsewhere),
    )


def _holding(holding: HardwareNeed) -> records.Holding:
    return records.Holding(holding.need, holding.nodes, holding.gpus, holding.gpu, holding.settings, holding.beside)
