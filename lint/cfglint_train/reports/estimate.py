"""The memory budget of a run: a table for people, an object for programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cfglint_rules import registry
from cfglint_train import records
from cfglint_train.findings.verdicts import interval
from cfglint_train.foundation.sizes import gib, parameters
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.lens import spelled
from cfglint_train.memory import comparable
from cfglint_train.memory.budget import Budget, Phase, verdict
from cfglint_train.memory.calibration import table as table_of_evidence
from cfglint_train.memory.explanation import explain
from cfglint_train.memory.plan_reader import MODEL
from cfglint_train.plan.certainty import Assumption
from cfglint_train.plan.fields import named
from cfglint_train.plan.names import Field
from cfglint_train.records import Component, Model, NotChecked, RunEstimate
from cfglint_train.releases.other_releases import RELEASE
from cfglint_train.reports import answer
from cfglint_train.reports.escape import leading, plain, printable
from cfglint_train.reports.json import encoded, values
from cfglint_train.reports.style import PLAIN, Style
from cfglint_train.runs.assumptions import assumptions as assumptions_of
from cfglint_train.runs.assumptions import behind
from cfglint_train.runs.not_estimated import ALIKE, Unchecked, thing, unchecked
from cfglint_train.runs.run import GPU, Run
from cfglint_train.whatif.plan_file import Planned

VERSION: Final = 1
_PLACES: Final = (("gpu", "one GPU"), ("host", "one host"), ("disk", "disk"))
_BAR: Final = 24
_LEAST_BAR: Final = 8
"""Columns that a bar has at most, and at least; without room for it there is none."""
_BESIDE: Final = 33
"""Columns of a phase's name and size, and of the blanks in its line."""
_WIDE: Final = 1 << 16
"""The width of what has no edge."""
_NOTHING: Final = gib(0)
_COLORS: Final = {"fits": "32", "tight": "33", "probably does not fit": "31", "does not fit": "31"}
"""Verdict -> its style, as in the colours of severities."""
ASSUMED: Final = " (assumed)"
"""What follows a fact that no file states."""


def table(runs: Sequence[Run | Planned], style: Style = PLAIN) -> Iterator[str]:
    """Every run with its phases, their components, and what the numbers rest on."""
    yield from wrapped(answer.of_several(runs), style)
    for run in runs:
        yield from opening(run, style, alone=len(runs) == 1)
        for place, name in _PLACES:
            yield from _place(run, place, name, style)
        yield from wrapped(_foot(run), style)
        yield ""


def opening(run: Run | Planned, style: Style = PLAIN, *, alone: bool = False) -> Iterator[str]:
    """Yield the answer, and what the run is. With several runs, what takes a search is left to `fit`."""
    yield from wrapped([answer.of_estimate(run) if alone else answer.answer(run)], style)
    yield from head(run, style)


def head(run: Run | Planned, style: Style = PLAIN) -> Iterator[str]:
    """What the run is: file, model, job."""
    return wrapped(_head(run), style)


def wrapped(lines: Iterable[str], style: Style) -> Iterator[str]:
    """Lines that no terminal misreads, broken at its edge, the rest below the text."""
    for line in map(printable, lines):
        if style.width is None or len(line) <= style.width:
            yield line
            continue
        from textwrap import wrap

        indent = len(line) - len(line.lstrip())
        column = line.find("  ", indent) + 2 if "  " in line[indent:] else indent + 2
        below = " " * (len(line) - len(line[column:].lstrip()) if column < style.width // 2 else indent + 2)
        yield from wrap(
            line, max(style.width, 40), subsequent_indent=below, break_long_words=False, break_on_hyphens=False
        )


def _head(run: Run | Planned) -> Iterator[str]:
    plan, model = run.plan, run.architecture
    if isinstance(run, Run):
        title = f"{run.framework.title} {run.releases.get(run.framework.name)}"
        yield f"{leading(run.main.document.path)}  ({title})"
    else:
        yield f"{leading(run.path)}  ({run.title})"
    if model is not None:
        name = printable(str(plan.model.id or model.id))
        yield f"  model   {name}: {parameters(model.parameters)} parameters, {model.layers} layers, {model.model_type}"
    else:
        yield f"  model   {printable(str(plan.model.id or 'not stated'))}: not in the catalogue{_near(plan.model.id)}"
    spread = {None: "strategy not stated", "zero": f"ZeRO stage {plan.parallel.zero_stage}", "none": "one GPU"}.get(
        plan.parallel.strategy, str(plan.parallel.strategy)
    )
    nodes, local = (cluster(run, field) for field in _CLUSTER)
    method = [word for word in (plan.method.tuning, plan.method.stage) if word]
    yield f"  job     {nodes} x {local} GPUs, {spread}, {' '.join(method) or 'method not stated'}"


def _near(model: str | None) -> str:
    """Return which known model a misspelt name may be."""
    from cfglint_train.models.lookup import near

    found = near(model, 1, ALIKE) if model else []
    return f"; did you mean {found[0]}?" if found else ""


_CLUSTER: Final[tuple[Field, ...]] = ("launch.nodes", "launch.gpus_per_node")


def cluster(run: Run | Planned, field: Field) -> str:
    """The number of nodes, or of GPUs on each, marked where it is assumed."""
    number = run.plan.get(field)
    return "?" if number is None else f"{number}{mark(run, field)}"


def mark(run: Run | Planned, *facts: str) -> str:
    """ASSUMED where one of some facts of a run is stated by no file; else nothing."""
    return ASSUMED if not assumed_facts(run).isdisjoint(facts) else ""


def assumed_facts(run: Run | Planned) -> frozenset[str]:
    """The names of the facts that are assumed: `gpu`, `model`, `fork`, plan fields."""
    return frozenset(one.fact for one in (assumptions_of(run) if isinstance(run, Run) else run.assumptions))


def _place(run: Run | Planned, place: str, name: str, style: Style) -> Iterator[str]:
    phases = [phase for phase in run.estimate.phases if _is_shown(getattr(phase, place))]
    if not phases:
        return
    capacity = run.hardware.capacity(place)
    limit = f" of {gib(capacity)}" if capacity is not None else ""
    yield ""
    yield f"  {name}{limit}{mark(run, GPU) if place == 'gpu' else ''}"
    rows = []
    for phase in phases:
        budget: Budget = getattr(phase, place)
        said = "" if capacity is None else verdict(budget, capacity)
        rows.append((phase.name, budget.expected, f" {interval(budget)}" if interval(budget) else "", said))
    width = style.width or _WIDE
    room = min(_BAR, width - _BESIDE - max(len(span) + len(said) for _, _, span, said in rows))
    top = max(capacity or 0, *(size for _, size, _, _ in rows))
    for name, size, span, said in rows:
        color = _COLORS.get(said, "36")
        bar = style.paint(_bar(size, top, room, style), color) + " " if room >= _LEAST_BAR else ""
        line = f"    {printable(name):<16}{bar}{gib(size):>10}{span}"
        if said and room < -1:
            yield line
            line = "    "
        yield f"{line}  {style.paint(said, color)}" if said else line
    yield from wrapped(_parts(phases, place), style)


def _is_shown(budget: Budget | None) -> bool:
    """Whether there is something to show: no row is 0.00 GiB."""
    return budget is not None and gib(budget.expected) != _NOTHING


def _parts(phases: Sequence[Phase], place: str) -> Iterator[str]:
    """What the highest peak is made of, and where its interval comes from."""
    worst = max(phases, key=lambda phase: getattr(phase, place).expected)
    yield f"    in {worst.title}, {worst.event}:"
    for part in sorted(explain(getattr(worst, place)), key=lambda part: -part.bytes):
        if gib(part.bytes) != _NOTHING:
            yield f"      {part.name:<28}{gib(part.bytes):>10}  {part.formula}"
    if place == "gpu":
        alike = comparable.residual(getattr(worst, place).subject, table_of_evidence().residuals)
        rows = f"{len(alike.evidence)} published rows ({alike.id}: {alike.low:+.1%} to {alike.high:+.1%})"
        yield f"    interval: that of its parts, or that of {rows} if wider"


def _bar(size: int, top: int, width: int, style: Style) -> str:
    """A bar of blocks where the terminal has them, else of signs."""
    filled = round(width * size / top) if top else 0
    full, empty = ("\u2588", "\u2591") if style.blocks else ("#", ".")
    return full * filled + empty * (width - filled)


def _foot(run: Run | Planned) -> Iterator[str]:
    notes = [f"  assumed: {note}" for note in assumptions(run)]
    notes += [f"  not counted: {note}" for note in not_counted(run)]
    if isinstance(run, Run):
        notes += [f"  {one.words}" for one in run.parts.meant]
    if notes:
        yield ""
        yield from notes
    if run.estimate.missing:
        yield f"  not known: {', '.join(missing(run))}"
    found = unchecked(run) if isinstance(run, Run) else None
    if found is not None:
        yield f"  memory not checked: {printable(found.why)}; {printable(found.remedy)}"


def not_counted(run: Run | Planned) -> list[str]:
    """The misspelt keys of a run that its estimate leaves out, each with what it may be meant to be."""
    if not isinstance(run, Run):
        return []
    nearest = registry.module(registry.RULES["KEY001"]).nearest
    counted = {(one.document.path, one.written) for one in run.parts.meant}
    return [
        f"`{sighting.name}`; did you mean `{spelled(near)}`?"
        for config in run.configs
        for sighting, near in nearest(config)
        if (config.document.path, sighting.route) not in counted
    ]


def assumptions(run: Run | Planned) -> list[str]:
    """The assumptions, each with the way to state the fact."""
    return notes(assumed(run))


def notes(found: Iterable[Assumption]) -> list[str]:
    """What some assumptions say, each text once."""
    return list(dict.fromkeys(one.note for one in found))


def assumed(run: Run | Planned) -> tuple[Assumption, ...]:
    """The assumptions that the figures rest on."""
    if not isinstance(run, Run):
        return run.assumptions
    return tuple(one for one in behind(run, run.estimate.fields, GPU, MODEL) if _counts(one, run))


def _counts(one: Assumption, run: Run) -> bool:
    """Whether an estimate rests on it: not on a default of another release that leaves it as it is."""
    others = one.others if one.fact.startswith(RELEASE) else ()
    return not others or any(_figures(run.under({one.fact: other})) != _figures(run) for other in others)


def _figures(run: Run) -> list[tuple[str, list[tuple[int, int, int] | None]]]:
    """The sizes of each phase's budgets."""
    return [
        (
            phase.name,
            [None if one is None else (one.expected, one.low, one.high) for one in (phase.gpu, phase.host, phase.disk)],
        )
        for phase in run.estimate.phases
    ]


def missing(run: Run | Planned) -> Iterator[str]:
    """What a phase could not be computed without, in words."""
    for field in run.estimate.missing:
        if field != MODEL:
            key, words = run.spell(field), thing(named(field))
            yield f"{words} ({key})" if words and (key != field or isinstance(run, Planned)) else words or key
        elif run.architecture is not None:
            kind = printable(run.architecture.model_type)
            yield f"the activations of {printable(run.architecture.id)} (no formula for all of a {kind} model)"
        else:
            yield f"the shape of {printable(str(run.plan.model.id))}" if run.plan.model.id else "the model"


def document(runs: Sequence[Run | Planned]) -> dict[str, Any]:
    """The same as plain values; sizes in bytes."""
    return {"version": VERSION, "runs": [values(estimate_of(run)) for run in runs]}


def as_json(runs: Sequence[Run | Planned]) -> Iterator[str]:
    """The object, indented."""
    yield encoded(document(runs))


def estimate_of(run: Run | Planned) -> RunEstimate:
    """Return the record of a run's estimate."""
    model = run.architecture
    return RunEstimate(
        path=plain(run.main.document.path if isinstance(run, Run) else run.path),
        framework=run.framework.name if isinstance(run, Run) else None,
        release=run.releases.get(run.framework.name) if isinstance(run, Run) else None,
        model=None if model is None else Model(model.id, model.parameters),
        nodes=run.plan.launch.nodes,
        gpus_per_node=run.plan.launch.gpus_per_node,
        gpu=run.hardware.gpu,
        phases=tuple([_phase(run, phase) for phase in run.estimate.phases]),
        missing=tuple(run.estimate.missing),
        not_checked=_not_checked(unchecked(run) if isinstance(run, Run) else None),
        assumptions=tuple(assumptions(run)),
        assumed=tuple(sorted(assumed_facts(run))),
        not_counted=tuple(not_counted(run)),
    )


def _not_checked(found: Unchecked | None) -> NotChecked | None:
    """Where a setting is missing without which no training step can be estimated, and what would settle it."""
    if found is None:
        return None
    path, line = found.place.document.path, found.place.document.position(found.place.span.start).line
    return NotChecked(plain(path), line, plain(found.why), plain(found.remedy))


def _phase(run: Run | Planned, phase: Phase) -> records.Phase:
    budgets = (_budget(getattr(phase, place), run.hardware.capacity(place)) for place, _ in _PLACES)
    return records.Phase(phase.name, phase.event, *budgets)


def _budget(budget: Budget | None, capacity: int | None) -> records.Budget | None:
    if budget is None:
        return None
    return records.Budget(
        expected=budget.expected,
        low=budget.low,
        high=budget.high,
        capacity=capacity,
        verdict=None if capacity is None else verdict(budget, capacity),
        rests_on=_rests_on(budget),
        components=tuple(
            [Component(part.name, part.bytes, part.formula, part.component.evidence) for part in explain(budget)]
        ),
    )


def _rests_on(budget: Budget) -> tuple[str, ...]:
    """The published rows whose residuals bound a GPU's interval; none for a host and a disk."""
    if budget.place != "gpu":
        return ()
    return comparable.residual(budget.subject, table_of_evidence().residuals).evidence
