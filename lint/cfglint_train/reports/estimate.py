"""The memory budget of a run, as a table or as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from cfglint_rules import registry
from cfglint_train import records
from cfglint_train.findings.verdicts import Judgement, describe_own_runs, format_interval
from cfglint_train.fitting import places
from cfglint_train.foundation.sizes import format_gib, format_parameters
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.wording import join_names
from cfglint_train.frameworks.lens import format_route
from cfglint_train.memory import comparable
from cfglint_train.memory.booking import find_booking
from cfglint_train.memory.budget import Budget, Phase, Verdict, compute_verdict, rank_budget
from cfglint_train.memory.calibration import Residual
from cfglint_train.memory.calibration import load_table as table_of_evidence
from cfglint_train.memory.explanation import explain
from cfglint_train.memory.plan_reader import MODEL
from cfglint_train.plan.certainty import RELEASE, Assumption
from cfglint_train.plan.names import Field
from cfglint_train.records import Component, Model, Moment, Room, RunEstimate, Setting
from cfglint_train.reports import answer, timeline
from cfglint_train.reports.escape import escape_data, escape_line_start, escape_text
from cfglint_train.reports.json import convert_record, encode
from cfglint_train.reports.style import PLAIN, Style
from cfglint_train.runs.assumptions import find_assumptions
from cfglint_train.runs.assumptions import list_assumptions as assumptions_of
from cfglint_train.runs.not_estimated import MIN_SIMILARITY
from cfglint_train.runs.run import GPU, Run
from cfglint_train.whatif.plan_file import StatedPlan

VERSION: Final = 1
_PLACES: Final = (("gpu", "one GPU"), ("host", "one host"), ("disk", "disk"))
_MAX_BAR: Final = 24
_MIN_BAR: Final = 8
"""Minimum width of a bar in columns (`_MAX_BAR` is the maximum); bars are omitted if there is less room."""
_NAME_WIDTH: Final = 16
_SIZE_WIDTH: Final = 17
"""Columns that a size and the spaces take up in a line."""
_UNLIMITED_WIDTH: Final = 1 << 16
"""Width for output without a line limit, such as a file."""
_NOTHING: Final = format_gib(0)
_Sizes = Budget | Moment
_COLORS: Final = {"fits": "32", "tight": "33", "probably does not fit": "31", "does not fit": "31"}
"""ANSI color of each verdict, matching the colors of severities."""
MEANT: Final = ", as meant"
"""End of the note about a misspelled key that counts as meant."""
ASSUMED_MARK: Final = " (assumed)"
"""Suffix of a value that no file states."""


def render_table(runs: Sequence[Run | StatedPlan], style: Style = PLAIN) -> Iterator[str]:
    """Yield the answer, then every run with its phases, the components of the highest peak, and the assumptions."""
    yield from wrap_lines(answer.answer_several(runs), style)
    for run in runs:
        yield from render_opening(run, style, alone=len(runs) == 1)
        shown = places.choose_worse(run)
        for place, name in _PLACES:
            yield from _render_resource(shown, place, name, style)
        yield from wrap_lines(_render_notes(shown), style)
        yield ""


def render_opening(run: Run | StatedPlan, style: Style = PLAIN, *, alone: bool = False) -> Iterator[str]:
    """Yield the answer and the description of a run.

    Only a run that is `alone` gets an answer that needs a search; for several runs, use `fit`.
    """
    shown = places.choose_worse(run)
    yield from wrap_lines([answer.answer_estimate(shown) if alone else answer.format_answer(shown)], style)
    yield from render_head(run, style)
    yield from wrap_lines(answer.compare_written(run), style)


def render_head(run: Run | StatedPlan, style: Style = PLAIN) -> Iterator[str]:
    """Yield the description of a run: file, model, job."""
    return wrap_lines(_describe_run(run), style)


def wrap_lines(lines: Iterable[str], style: Style) -> Iterator[str]:
    """Yield escaped lines, wrapped at the terminal's width; continuation lines are indented."""
    for line in map(escape_text, lines):
        if style.width is None or len(line) <= style.width:
            yield line
            continue
        from textwrap import wrap

        indent = len(line) - len(line.lstrip())
        column = line.find("  ", indent) + 2 if "  " in line[indent:] else indent + 2
        indentation = " " * (len(line) - len(line[column:].lstrip()) if column < style.width // 2 else indent + 2)
        yield from wrap(
            line, max(style.width, 40), subsequent_indent=indentation, break_long_words=False, break_on_hyphens=False
        )


def _describe_run(run: Run | StatedPlan) -> Iterator[str]:
    plan, model = run.plan, run.architecture
    if isinstance(run, Run):
        title = f"{run.framework.title} {run.releases.get(run.framework.name)}"
        yield f"{escape_line_start(run.main.document.path)}  ({title})"
    else:
        yield f"{escape_line_start(run.path)}  ({run.title})"
    if model is not None:
        name = escape_text(str(plan.model.id or model.id))
        yield (
            f"  model   {name}: {format_parameters(model.parameters)} parameters, {model.layers} layers, "
            f"{model.model_type}"
        )
    else:
        yield (
            f"  model   {escape_text(str(plan.model.id or 'not stated'))}: not in the "
            f"catalogue{_suggest_model(plan.model.id)}"
        )
    sharding = {None: "strategy not stated", "zero": f"ZeRO stage {plan.parallel.zero_stage}", "none": "one GPU"}.get(
        plan.parallel.strategy, str(plan.parallel.strategy)
    )
    nodes, local = (format_cluster_size(run, field) for field in _CLUSTER)
    method = [word for word in (plan.method.tuning, plan.method.stage) if word]
    yield f"  job     {nodes} x {local} GPUs, {sharding}, {' '.join(method) or 'method not stated'}"


def _suggest_model(model: str | None) -> str:
    """Return a suggestion for a misspelled model name, or an empty string."""
    from cfglint_train.models.lookup import suggest_ids

    suggestions = suggest_ids(model, 1, MIN_SIMILARITY) if model else []
    return f"; did you mean {suggestions[0]}?" if suggestions else ""


_CLUSTER: Final[tuple[Field, ...]] = ("launch.nodes", "launch.gpus_per_node")


def format_cluster_size(run: Run | StatedPlan, field: Field) -> str:
    """Return the number of nodes, or of GPUs per node, marked if it is assumed."""
    number = run.plan.get(field)
    return "?" if number is None else f"{number}{mark_assumed(run, field)}"


def mark_assumed(run: Run | StatedPlan, *facts: str) -> str:
    """Return `ASSUMED_MARK` if any of `facts` is assumed, or an empty string."""
    return ASSUMED_MARK if not list_assumed_facts(run).isdisjoint(facts) else ""


def list_assumed_facts(run: Run | StatedPlan) -> frozenset[str]:
    """Return the names of the facts that are assumed: `gpu`, `model`, `fork`, plan fields."""
    return frozenset(
        assumption.fact for assumption in (assumptions_of(run) if isinstance(run, Run) else run.assumptions)
    )


def _render_resource(run: Run | StatedPlan, resource: str, name: str, style: Style) -> Iterator[str]:
    phases = [phase for phase in run.estimate.phases if _is_visible(getattr(phase, resource))]
    if not phases:
        return
    capacity = run.hardware.get_capacity(resource)
    limit = f" of {format_gib(capacity)}" if capacity is not None else ""
    yield ""
    yield f"  {name}{limit}{mark_assumed(run, GPU) if resource == 'gpu' else ''}"
    moments = timeline.build_timeline(run) if resource == "gpu" else ()
    rows: list[tuple[str, _Sizes, Verdict | None, Mapping[str, int]]] = [
        (timeline.name_moment(moment), moment, moment.verdict, moment.kinds) for moment in moments
    ] or [
        (phase.name, budget, None if capacity is None else compute_verdict(budget, capacity), {})
        for phase in phases
        if (budget := getattr(phase, resource)) is not None
    ]
    margin = max(_NAME_WIDTH, *(len(name) + 1 for name, _, _, _ in rows))
    width = style.width or _UNLIMITED_WIDTH
    spans = [f" {span}" if (span := format_interval(sizes.low, sizes.high)) else "" for _, sizes, _, _ in rows]
    ends = max(len(span) + len(verdict or "") for span, (_, _, verdict, _) in zip(spans, rows))
    room = min(_MAX_BAR, width - margin - _SIZE_WIDTH - ends)
    top = max(capacity or 0, *(sizes.expected for _, sizes, _, _ in rows))
    for (name, sizes, verdict, kinds), span in zip(rows, spans):
        bar = ""
        if room >= _MIN_BAR and (kinds or capacity is not None):  # without both, a bar compares with nothing
            bar = _draw_bar(sizes.expected, kinds, capacity, top, room, style) + " "
        line = f"    {escape_text(name):<{margin}}{bar}{format_gib(sizes.expected):>10}{span}"
        if verdict and room < -1:
            yield line
            line = "    "
        yield f"{line}  {style.paint(verdict, _COLORS[verdict])}" if verdict else line
    if moments and room >= _MIN_BAR:
        yield from _render_legend(moments, capacity is not None and capacity < top, style)
    yield from wrap_lines(_render_components(run, phases, resource, capacity), style)


def _is_visible(budget: Budget | None) -> bool:
    """Return whether a budget rounds to more than 0.00 GiB."""
    return budget is not None and format_gib(budget.expected) != _NOTHING


def _render_components(
    run: Run | StatedPlan, phases: Sequence[Phase], resource: str, capacity: int | None
) -> Iterator[str]:
    """Yield the components of the highest peak and the source of its interval."""
    worst = max(phases, key=lambda phase: rank_budget(getattr(phase, resource), capacity))
    yield f"    in {worst.title}, {worst.event}:"
    for part in sorted(explain(getattr(worst, resource)), key=lambda part: -part.bytes):
        if format_gib(part.bytes) != _NOTHING:
            yield f"      {part.name:<28}{format_gib(part.bytes):>10}  {part.formula}"
    if resource == "gpu":
        budget: Budget = getattr(worst, resource)
        residual = comparable.find_residual(budget.setup, table_of_evidence().residuals)
        errors = f"({residual.id}: {residual.low:+.1%} to {residual.high:+.1%}){_describe_own_runs(budget)}"
        yield f"    interval: from the parts; at least the error of {_describe_evidence(run, residual)} {errors}"
        yield f"    {_describe_booking(run, phases)}"


def _describe_evidence(run: Run | StatedPlan, residual: Residual) -> str:
    """Return the number of measurements that a residual rests on, and of which frameworks; say if none is the run's."""
    others = [f"{name} {number}" for name, number in residual.frameworks]
    note = ""
    if isinstance(run, Run) and run.framework.name not in dict(residual.frameworks):
        note = f", none of {run.framework.title}"
    return f"{len(residual.evidence)} published measurements{note}: {join_names(others)}"


def _describe_own_runs(budget: Budget) -> str:
    """Return how the user's own runs move the interval, with the range of their errors, or an empty string."""
    if budget.own_runs is None:
        return ""
    return f"; {describe_own_runs(budget)} ({budget.own_runs.low:+.1%} to {budget.own_runs.high:+.1%})"


def _describe_booking(run: Run | StatedPlan, phases: Sequence[Phase]) -> str:
    booking = find_booking(phases)
    assert booking is not None
    size, margin = booking
    is_moved = margin.high != table_of_evidence().residuals[margin.id].high
    effects = {describe_own_runs(phase.gpu) for phase in phases if phase.gpu is not None} - {""}
    own_runs = f", {effects.pop()}" if is_moved else ""
    capacity = run.hardware.get_capacity("gpu")
    shortage = (
        "" if capacity is None or size <= capacity else f" ({format_gib(size - capacity)} more than this GPU has)"
    )
    return (
        f"book at least {format_gib(size)}{shortage}: the upper bound, or {margin.high:.0%} above the expected value "
        f"if that is more ({margin.id}: {_describe_evidence(run, margin)}{own_runs})"
    )


def _draw_bar(size: int, kinds: Mapping[str, int], capacity: int | None, top: int, width: int, style: Style) -> str:
    """Return a bar of a character per column: of each kind in its color or letter, with a line at the capacity."""
    full, empty, line = ("\u2588", "\u2591", "\u2502") if style.blocks else ("#", ".", "|")
    cells = [(empty, "")] * width
    for kind, start, count in timeline.divide_bar(kinds or {"": size}, top, width):
        row = timeline.KINDS.get(kind)
        cell = (full, "36") if row is None else (full, f"38;5;{row.code}") if style.color else (row.letter, "")
        cells[start : start + count] = [cell] * count
    if capacity is not None and capacity < top:
        cells[min(width - 1, round(width * capacity / top))] = (line, "")
    return "".join(
        style.paint("".join(character for character, _ in group), color) if color else "".join(next(zip(*group)))
        for color, group in ((color, list(cells_of_color)) for color, cells_of_color in groupby(cells, _get_color))
    )


def _get_color(cell: tuple[str, str]) -> str:
    return cell[1]


def _render_legend(moments: Sequence[Moment], has_line: bool, style: Style) -> Iterator[str]:
    """Yield the kinds of memory in the bars, each with its color or letter, wrapped at the terminal's width."""
    sample = "\u2588" if style.blocks else "#"
    entries = [
        (f"{sample if style.color else kind.letter} {name}", f"38;5;{kind.code}")
        for name in timeline.list_kinds(moments)
        for kind in (timeline.KINDS[name],)
    ]
    if has_line:
        entries.append((f"{chr(0x2502) if style.blocks else '|'} capacity", ""))
    line, length = "   ", 3
    for text, color in entries:
        if style.width is not None and length + len(text) + 2 > style.width:
            yield line
            line, length = "   ", 3
        line += f" {style.paint(text[0], color) if color else text[0]}{text[1:]} "
        length += len(text) + 2
    yield line.rstrip()


def _render_notes(run: Run | StatedPlan) -> Iterator[str]:
    notes = [f"  assumed: {note}" for note in list_assumption_notes(run)]
    notes += [f"  not counted: {note}" for note in list_not_counted(run)]
    if isinstance(run, Run):
        notes += [f"  {key.description}" for key in run.inputs.corrected_keys]
    if notes:
        yield ""
        yield from notes
    if run.estimate.missing:
        yield f"  not known: {', '.join(answer.describe_missing(run))}"
    gap = answer.find_gap(run) if isinstance(run, Run) else None
    if gap is not None:
        yield f"  memory not checked: {gap.message}; {gap.help}"


def list_not_counted(run: Run | StatedPlan) -> list[str]:
    """Return the misspelled keys that the estimate ignores, each with the likely intended key."""
    if not isinstance(run, Run):
        return []
    nearest = registry.load_module(registry.RULES["KEY001"]).list_nearest_keys
    corrected = {(key.document.path, key.written) for key in run.inputs.corrected_keys}
    return [
        f"`{occurrence.name}`; did you mean `{format_route(suggestion)}`?"
        for config in run.configs
        for occurrence, suggestion in nearest(config)
        if (config.document.path, occurrence.route) not in corrected
    ]


def list_assumption_notes(run: Run | StatedPlan) -> list[str]:
    """Return the notes of the assumptions, each with a way to state the fact."""
    return collect_notes(list_assumptions(run))


def collect_notes(items: Iterable[Assumption]) -> list[str]:
    """Return the notes of assumptions without duplicates."""
    return list(dict.fromkeys(assumption.note for assumption in items))


def list_assumptions(run: Run | StatedPlan) -> tuple[Assumption, ...]:
    """Return the assumptions that the numbers rest on."""
    if not isinstance(run, Run):
        return run.assumptions
    return tuple(
        assumption
        for assumption in find_assumptions(run, run.estimate.fields, GPU, MODEL)
        if _is_relevant(assumption, run)
    )


def _is_relevant(assumption: Assumption, run: Run) -> bool:
    """Return whether an estimate depends on an assumption.

    An assumed release does not matter if all other possible releases give the same numbers.
    """
    other_releases = assumption.others if assumption.fact.startswith(RELEASE) else ()
    return not other_releases or any(
        _collect_sizes(run.build_scenario({assumption.fact: release})) != _collect_sizes(run)
        for release in other_releases
    )


def _collect_sizes(run: Run) -> list[tuple[str, list[tuple[int, int, int] | None]]]:
    """Return the expected, low and high sizes of each phase's budgets in bytes."""
    return [
        (
            phase.name,
            [
                None if budget is None else (budget.expected, budget.low, budget.high)
                for budget in (phase.gpu, phase.host, phase.disk)
            ],
        )
        for phase in run.estimate.phases
    ]


def build_document(runs: Sequence[Run | StatedPlan]) -> dict[str, Any]:
    """Return the estimates as plain values; sizes are in bytes."""
    return {"version": VERSION, "runs": [convert_record(build_estimate(run)) for run in runs]}


def render_json(runs: Sequence[Run | StatedPlan]) -> Iterator[str]:
    """Yield the estimates as indented JSON."""
    yield encode(build_document(runs))


def build_estimate(run: Run | StatedPlan) -> RunEstimate:
    """Return the record of a run's estimate."""
    corrected = places.find_corrected(run)
    if corrected is None:  # misspelled keys, if any, change no size and count as meant
        run = places.choose_worse(run)
    model = run.architecture
    return RunEstimate(
        path=escape_data(run.main.document.path if isinstance(run, Run) else run.path),
        framework=run.framework.name if isinstance(run, Run) else None,
        release=run.releases.get(run.framework.name) if isinstance(run, Run) else None,
        model=None if model is None else Model(model.id, model.parameters),
        nodes=run.plan.launch.nodes,
        gpus_per_node=run.plan.launch.gpus_per_node,
        gpu=run.hardware.gpu,
        phases=tuple([_build_phase(run, phase) for phase in run.estimate.phases]),
        book=None if (booking := find_booking(run.estimate.phases)) is None else booking[0],
        missing=tuple(run.estimate.missing),
        not_checked=answer.find_gap(run),
        assumptions=(*list_assumption_notes(run), *_list_corrections(run)),
        assumed=tuple(sorted(list_assumed_facts(run))),
        not_counted=tuple(list_not_counted(run)),
        corrected=None if corrected is None else build_estimate(corrected),
        worst=None if (worst := places.find_worst(run)) is None else build_room(worst),
        timeline=timeline.build_timeline(run),
        settings=tuple(_list_settings(run)),
    )


def build_room(judgement: Judgement) -> Room:
    """Return the record of a verdict."""
    budget = judgement.budget
    return Room(
        place=judgement.resource,
        phase=judgement.phase.name,
        expected=budget.expected,
        low=budget.low,
        high=judgement.high,
        capacity=judgement.capacity,
        verdict=judgement.verdict,
        percent=timeline.compute_percent(budget.expected, judgement.capacity),
    )


_SETTINGS: Final[tuple[tuple[str, Field], ...]] = (
    ("nodes", "launch.nodes"),
    ("GPUs per node", "launch.gpus_per_node"),
    ("micro batch", "batch.micro"),
    ("accumulation", "batch.accumulation"),
    ("sequence length", "sequence.length"),
    ("sharding", "parallel.strategy"),
    ("ZeRO stage", "parallel.zero_stage"),
    ("optimizer", "optimizer.name"),
    ("checkpointing", "activations.checkpointing"),
)
_ORIGINS: Final = {
    "explicit": "from your file",
    "user": "from your settings",
    "default": "from defaults",
    "inferred": "derived",
    "assumed": "assumed",
}


def _list_settings(run: Run | StatedPlan) -> Iterator[Setting]:
    """Yield the GPU and the settings that decide the memory of most runs, each with its origin; skip unknown values."""
    if run.hardware.gpu is not None:
        yield Setting("GPU", "", run.hardware.gpu, _ORIGINS[run.hardware.gpu_origin.kind])
    assumed = list_assumed_facts(run)
    for name, field in _SETTINGS:
        value = run.plan.get(field)
        if value is None or (value == "none" and field == "parallel.strategy"):
            continue
        origin = run.get_origin(field) if isinstance(run, Run) else None
        kind = "assumed" if field in assumed else "explicit" if origin is None else origin.kind
        key = run.spell_key(field) if isinstance(run, Run) else field
        yield Setting(name, key, value if isinstance(value, (bool, int)) else escape_data(str(value)), _ORIGINS[kind])


def _list_corrections(run: Run | StatedPlan) -> Iterator[str]:
    """Yield the misspelled keys that count as the keys that they clearly stand for."""
    if isinstance(run, Run):
        yield from (f"{key.description}{MEANT}" for key in run.inputs.corrected_keys)


def _build_phase(run: Run | StatedPlan, phase: Phase) -> records.Phase:
    budgets = (_build_budget(getattr(phase, place), run.hardware.get_capacity(place)) for place, _ in _PLACES)
    return records.Phase(phase.name, phase.event, *budgets)


def _build_budget(budget: Budget | None, capacity: int | None) -> records.Budget | None:
    if budget is None:
        return None
    return records.Budget(
        expected=budget.expected,
        low=budget.low,
        high=budget.high,
        capacity=capacity,
        verdict=None if capacity is None else compute_verdict(budget, capacity),
        rests_on=_list_evidence(budget),
        own_runs=convert_own_runs(budget),
        components=tuple(
            [Component(part.name, part.bytes, part.formula, part.component.evidence) for part in explain(budget)]
        ),
        percent=timeline.compute_percent(budget.expected, capacity),
    )


def convert_own_runs(budget: Budget) -> records.OwnRuns | None:
    """Return the record of the user's own runs that moved an interval, or None if none did."""
    own_runs = budget.own_runs
    return None if own_runs is None else records.OwnRuns(own_runs.narrowed, own_runs.widened)


def _list_evidence(budget: Budget) -> tuple[str, ...]:
    """Return the published measurements whose residuals bound a GPU's interval; empty for hosts and disks."""
    if budget.place != "gpu":
        return ()
    return comparable.find_residual(budget.setup, table_of_evidence().residuals).evidence
