"""Alternative changes to a run, one per setting, with the memory they save and their cost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from cfglint_train.findings.verdicts import Judgement, judge
from cfglint_train.fitting import places, words
from cfglint_train.fitting.hardware_needed import HardwareNeed, find_hardware_for_all_phases
from cfglint_train.fitting.moves import OPTIMISATION, SAFE, Dimension, Move
from cfglint_train.fitting.offload import find_sufficient
from cfglint_train.fitting.smallest import (
    Bound,
    Problem,
    Solution,
    build_solution,
    find_smallest_for,
    is_length_assumed,
    merge_changes,
)
from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final, Literal
from cfglint_train.foundation.wording import suggest_name
from cfglint_train.memory.budget import VERDICTS, Resource, Verdict
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

Goal = Literal["default", "throughput", "smallest-edit", "memory"]
MaximizedSize = Literal["micro_batch", "sequence_length"]

MAXIMIZED_FIELDS: Final[dict[str, Field]] = {"micro_batch": "batch.micro", "sequence_length": "sequence.length"}
MAX_VALUE: Final = 1 << 24


class Alternative(Frozen):
    """A single change, evaluated on its own."""

    move: Move
    settings: tuple[str, ...]
    """Changed settings as text, such as `micro_batch_size: 16 -> 2`."""
    place: Resource
    """Place where the change saves memory: the GPU, or a host or disk that lacks room."""
    after: int
    """Highest expected peak at `place` with the change, in bytes."""
    saved: int
    verdict: Verdict
    """Verdict at `place` with the change."""
    chosen: bool
    """True if the change is part of the proposed solution."""
    loss: str
    """Reason why a change that is faster than the solution and expected to fit by itself was not chosen, or empty."""

    @property
    def is_safe(self) -> bool:
        """True if loss, data and resuming stay the same."""
        return self.move.tier <= SAFE


class Alternatives(Frozen):
    """The memory verdicts on a run, the changes that lower its peaks, and the proposed solution."""

    run: Run
    judgement: Judgement | None
    """Verdict on the GPUs; None if no training step was estimated."""
    host_and_disk: tuple[Judgement, ...] = ()
    """Verdicts on the host and the disk, if their size is stated."""
    alternatives: tuple[Alternative, ...] = ()
    """Alternatives, cheapest first."""
    solution: Solution | None = None
    """Proposed change; None if the run needs no change, or if no change helps."""
    hardware_need: HardwareNeed | None = None
    """Hardware on which the run would fit, if no change makes it fit on the present hardware."""
    offload: str | None = None
    """Effect of offloading the optimizer to the host, if the host's memory is not stated and no cheaper change
    is enough.
    """
    largest: int | None = None
    """Largest value of `maximized_field` whose upper bound fits (`--max`); 0 if not even that of 1 fits."""
    largest_expected: int | None = None
    """Largest value of `maximized_field` that is expected to fit; tight if it is above `largest`."""
    maximized_field: Field | None = None
    written: Run | None = None
    """The run as written, if the misspelled keys of `run` count as meant."""

    @property
    def lacks_room(self) -> bool:
        """True if the run is not expected to fit without changes."""
        return self.judgement is not None and any(map(places.is_lacking_room, (self.judgement, *self.host_and_disk)))

    @property
    def is_hopeless(self) -> bool:
        """True if the run is not expected to fit, and no change to its files makes it fit."""
        return self.lacks_room and (self.solution is None or not self.solution.is_enough)


def list_alternatives(
    run: Run, keep: Collection[str] = (), goal: Goal = "default", maximized: MaximizedSize | None = None
) -> Alternatives:
    """Return the alternatives for a run.

    `keep`: keys and fields that must not change. `goal`: "default" proposes the change of the lint,
    "throughput" the least slowdown, "smallest-edit" the fewest settings, "memory" the safe change with the lowest peak.
    `maximized`: the size for which to find the largest value that fits.
    """
    judgement = judge(run, "gpu", None) if run.estimate.has_step else None
    if judgement is None:
        return Alternatives(run, None)
    solution = _find_leanest(run, judgement, keep) if goal == "memory" else find_smallest_for(run, None, keep, goal)
    is_unsolved = solution is None or not solution.is_enough
    is_offered = places.is_lacking_room(judgement) and _is_costly(solution)
    advice = find_sufficient(run) if is_offered and run.hardware.get_capacity("host") is None else None
    return Alternatives(
        run,
        judgement,
        places.judge_host_and_disk(run),
        _build_alternatives(run, judgement, keep, solution),
        solution,
        _find_hardware(run, judgement, keep) if is_unsolved and not places.has_room(run) else None,
        advice.text if advice is not None else None,
        find_largest(run, MAXIMIZED_FIELDS[maximized]) if maximized is not None else None,
        find_largest(run, MAXIMIZED_FIELDS[maximized], places.has_room) if maximized is not None else None,
        MAXIMIZED_FIELDS[maximized] if maximized is not None else None,
    )


def _find_hardware(run: Run, judgement: Judgement, keep: Collection[str]) -> HardwareNeed | None:
    """Return the hardware that all phases need; only a larger host and disk if a change gives the GPUs room."""
    if not (places.is_lacking_room(judgement) and places.list_lacking(run)):
        return find_hardware_for_all_phases(run, keep)
    solution = find_smallest_for(run, [phase.name for phase in run.estimate.phases], keep)
    changes = merge_changes(solution.moves) if solution is not None and solution.is_enough else {}
    return find_hardware_for_all_phases(run, keep, changes)


def _is_costly(solution: Solution | None) -> bool:
    """Return whether the run fits only with a change to the optimization, or not at all."""
    return solution is None or any(move.tier == OPTIMISATION for move in solution.moves)


def check_keep(run: Run, keep: Collection[str]) -> None:
    """Raise `UsageError` for a key that is neither a setting of the run nor a field of the plan."""
    from cfglint_train.frameworks import framework as frameworks
    from cfglint_train.frameworks.lens import format_route
    from cfglint_train.plan.fields import FIELDS

    lenses = [lens for config in run.configs for lens in frameworks.load(config.framework).lenses]
    known_keys = {format_route(route) for lens in lenses for routes in lens.keys.values() for route in routes}
    known_keys |= {run.spell_key(field) for lens in lenses for field in lens.fields}
    for key in keep:
        if key not in known_keys and key not in FIELDS:
            hint = suggest_name(key, sorted({*known_keys, *FIELDS}))
            raise UsageError(f"--keep {key}: {run.main.document.path} has no such setting{hint and f'; {hint}'}")


def _build_alternatives(
    run: Run, before: Judgement, keep: Collection[str], solution: Solution | None
) -> tuple[Alternative, ...]:
    """Return at most one alternative per setting, if it saves memory and can be written.

    Prefer the move in the solution, then that of `_choose_move`.
    """
    problem = Problem(run, None, keep)
    lacking = places.list_lacking(run)
    places_to_relieve = (before, *lacking) if places.is_lacking_room(before) or not lacking else lacking
    picked = {move.name: move for move in (solution.moves if solution is not None else ())}
    alternatives = []
    for dimension in problem.dimensions:
        move = next((move for move in dimension.moves if picked.get(move.name) == move), None) or _choose_move(
            problem, dimension
        )
        changed = run.replace_fields(move.changes)
        chosen = picked.get(move.name) == move
        if not chosen and not (places.has_room_elsewhere(changed, run) and problem.can_write((move,))):
            continue
        relieved = _find_relief(changed, places_to_relieve)
        if relieved is None and chosen and (gpu := judge(changed, "gpu", None)) is not None:
            relieved = (before, gpu)
        if relieved is not None:
            old_peak, peak = (judgement.budget.expected for judgement in relieved)
            settings, place = words.format_settings(run, move.changes), relieved[0].resource
            loss = "" if chosen or solution is None else _explain_loss(move, changed, solution)
            verdict = relieved[1].verdict
            alternatives.append(Alternative(move, settings, place, peak, old_peak - peak, verdict, chosen, loss))
    return tuple(sorted(alternatives, key=lambda rung: (rung.move.tier, rung.move.slowdown, -rung.saved)))


def _explain_loss(move: Move, changed: Run, solution: Solution) -> str:
    """Return why a faster change with which the run is expected to fit was not chosen, or nothing.

    `changed`: the run with the change alone.
    """
    if move.slowdown >= solution.slowdown or not solution.is_enough or not places.has_room(changed):
        return ""
    gpu = judge(changed, "gpu", None)
    outcomes = places.judge_host_and_disk(changed) if gpu is None else (gpu, *places.judge_host_and_disk(changed))
    if max(map(_rank_verdict, outcomes)) > max(map(_rank_verdict, solution.outcomes)):
        return "only tight"
    highest = max(other.tier for other in solution.moves)
    if move.tier > highest:
        return "gives more up" if move.tier > SAFE else "replaces a stated setting"
    if is_length_assumed(changed) and any(field.startswith("batch.") for field in move.changes):
        return "samples may be shorter than assumed"
    return "a smaller margin" if gpu is not None and gpu.verdict == "tight" else ""


def _rank_verdict(judgement: Judgement) -> int:
    return VERDICTS.index(judgement.verdict)


def _find_relief(after: Run, before: Iterable[Judgement]) -> tuple[Judgement, Judgement] | None:
    """Return the verdicts before and after on the first place where the expected peak drops, or None."""
    for old in before:
        new = places.judge_place(after, old.resource)
        if new is not None and new.budget.expected < old.budget.expected:
            return old, new
    return None


def _choose_move(problem: Problem, dimension: Dimension) -> Move:
    """Return the first move with which the upper bound fits, else the first with which the run is expected to fit.

    If there is none, return the strongest move.
    """
    bounds: tuple[Bound, ...] = ("upper", "expected")
    fitting = (move for bound in bounds for move in dimension.moves if problem.can_fit((move,), bound))
    return next(fitting, dimension.moves[-1])


def _find_leanest(run: Run, before: Judgement, keep: Collection[str]) -> Solution | None:
    """Return the safe moves that lower the GPU peak most, or None if none lowers it.

    The search is greedy: for each setting in turn, it keeps the move with the lowest peak that does not overload the
    host or the disk.
    """
    chosen: tuple[Move, ...] = ()
    lowest, problem = before, Problem(run, None, keep)
    for dimension in problem.dimensions:
        for move in [move for move in dimension.moves if move.tier <= SAFE]:
            tried = (*(other for other in chosen if other not in dimension.moves), move)
            changed = run.replace_fields(merge_changes(tried))
            after = judge(changed, "gpu", None)
            lower = after is not None and after.budget.expected < lowest.budget.expected
            if after is not None and lower and places.has_room_elsewhere(changed, run) and problem.can_write(tried):
                lowest, chosen = after, tried
    return build_solution(run, chosen, before) if chosen else None


def find_largest(run: Run, field: Field, is_enough: Callable[[Run], bool] = places.fits) -> int:
    """Return the largest value of `field` for which `is_enough` holds (by default: the upper bound fits).

    Return 0 if even 1 is too large, and MAX_VALUE if no limit is found. Assumes that larger values need more memory.
    """
    fitting, too_much = 0, 1
    while too_much <= MAX_VALUE and is_enough(run.replace_fields({field: too_much})):
        fitting, too_much = too_much, too_much * 2
    while too_much - fitting > 1 and fitting < MAX_VALUE:
        middle = (fitting + too_much) // 2
        fitting, too_much = (middle, too_much) if is_enough(run.replace_fields({field: middle})) else (fitting, middle)
    return fitting
