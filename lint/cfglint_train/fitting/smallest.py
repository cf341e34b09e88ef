"""Search for the least costly change that makes a run fit, for the memory rules and `cfglint fit`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import combinations
from math import inf

from cfglint_train.documents.document import CannotEdit
from cfglint_train.findings.draft import draft_without_comment_check
from cfglint_train.findings.finding import Applicability, Fix
from cfglint_train.findings.verdicts import ROLLOUT_PHASE, Judgement, judge
from cfglint_train.fitting import places, words
from cfglint_train.fitting.moves import (
    FILLS_IN,
    OPTIMISATION,
    REPLACES,
    SAFE,
    Dimension,
    Move,
    list_dimensions,
    list_refusals,
)
from cfglint_train.fitting.offload import find_sufficient
from cfglint_train.fitting.search import Combination, Goal, find_cheapest, rank_tier
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final, Literal
from cfglint_train.memory.booking import find_booking_margin
from cfglint_train.memory.budget import STEP_PHASES, Budget, Phase, Resource
from cfglint_train.memory.calibration import load_table
from cfglint_train.memory.plan_reader import MODEL
from cfglint_train.plan.certainty import Assumption
from cfglint_train.plan.names import Field
from cfglint_train.runs.assumptions import find_assumptions, find_fact_assumptions, find_mildest_facts, find_refuting
from cfglint_train.runs.run import GPU, Run

RoomByPhase = Mapping[tuple[str, Resource], float]
"""Bytes that a phase may use, by phase and place."""


Bound = Literal["expected", "margin", "upper"]


class Problem:
    """A run with the room of its phases and its possible moves. Each combination is estimated once.

    A `bound` is the value of the training step that must fit on the GPU: the expected one, the expected one with the
    margin of comparable jobs, or the upper bound.
    """

    def __init__(
        self,
        run: Run,
        phases: Collection[str] | None = STEP_PHASES,
        keep: Collection[str] = (),
        bound: Bound = "expected",
    ) -> None:
        """Compute the room of each phase, and list the moves that help phases without enough room for `bound`."""
        self.run = run
        self.phases = phases
        self.room = _compute_room(run, phases)
        lacking = {
            (phase.name, place) for phase in run.estimate.phases for place in self._list_lacking_places(phase, bound)
        }
        self._lacking = {name for name, place in lacking if place == "gpu"}
        self._estimated: dict[frozenset[tuple[Field, Any]], tuple[Phase, ...]] = {}
        self._refused: list[Mapping[Field, Any]] = []
        """Sets of changes that the framework rejects together."""
        # The search takes the last move of a dimension as the strongest, which one without an estimate is not.
        self.dimensions = [item for item in list_dimensions(run, lacking, keep) if self._is_estimated(item.moves[-1])]

    def can_fit(self, combination: Combination, bound: Bound = "expected") -> bool:
        """Return whether every phase has room at every place with a combination."""
        phases = self._estimate(combination)
        return self._has_needed(phases) and not any(self._list_lacking_places(phase, bound) for phase in phases)

    def _estimate(self, combination: Combination) -> tuple[Phase, ...]:
        changes = merge_changes(combination)
        key = frozenset(changes.items())
        if key not in self._estimated:
            self._estimated[key] = self.run.replace_fields(changes).estimate.phases
        return self._estimated[key]

    def _has_needed(self, phases: Collection[Phase]) -> bool:
        """Return whether every phase that must fit on the GPU is estimated."""
        return {name for name, place in self.room if place == "gpu"} <= {phase.name for phase in phases}

    def _is_estimated(self, move: Move) -> bool:
        return self._has_needed(self._estimate((move,)))

    def can_write(self, combination: Combination) -> bool:
        """Return whether the run's files can state a combination without making the run fail.

        Comments are not checked: a combination that makes a comment false may be shown, but is not written.
        """
        moves = tuple(move for move in combination if move is not None)
        if self.is_barred(moves):
            return False
        try:
            refused = bool(list_refusals(self.run, merge_changes(moves)))
        except CannotEdit:
            return False
        if refused:
            fewer = (subset for count in (1, 2) for subset in combinations(moves, count))
            self._refused.append(merge_changes(next((subset for subset in fewer if self._is_refused(subset)), moves)))
        return not refused

    def is_barred(self, combination: Combination) -> bool:
        """Return whether every combination with these moves is excluded.

        This is the case if some of the moves are known to be rejected together, or if a move needs a value that another
        move changes.
        """
        changes = merge_changes(combination)
        for move in combination:
            for field, values in (move.needs if move is not None else {}).items():
                if field in changes and changes[field] not in values:
                    return True
        return any(refused.items() <= changes.items() for refused in self._refused)

    def _is_refused(self, moves: tuple[Move, ...]) -> bool:
        try:
            return bool(list_refusals(self.run, merge_changes(moves)))
        except CannotEdit:
            return False

    def _list_lacking_places(self, phase: Phase, bound: Bound) -> list[Resource]:
        """Return the places that lack room for a phase."""
        return [place for place in places.PLACES if not self._is_within_room(phase, place, bound)]

    def _is_within_room(self, phase: Phase, place: Resource, bound: Bound) -> bool:
        budget: Budget | None = getattr(phase, place)
        if budget is None:
            return (phase.name, place) not in self.room
        room = self.room.get((phase.name, place), self.run.hardware.get_capacity(place))
        is_step = place == "gpu" and phase.name in STEP_PHASES
        return room is None or (_compute_need(budget, bound) if is_step else budget.expected) <= room

    def list_peaks(self, moves: tuple[Move, ...]) -> list[int]:
        """Return the expected GPU bytes, with some moves, of each phase that lacks room without them."""
        phases = self._estimate(moves)
        return [phase.gpu.expected for phase in phases if phase.gpu is not None and phase.name in self._lacking]


def _compute_need(budget: Budget, bound: Bound) -> float:
    if bound == "expected":
        return budget.expected
    if bound == "upper":
        return budget.high
    margin = find_booking_margin(budget.setup, load_table().residuals, budget.own_runs).high
    return min(budget.high, budget.expected * (1 + margin))


def _compute_room(run: Run, phases: Collection[str] | None) -> RoomByPhase:
    """Return the bytes that each phase may use.

    A phase that must fit, or fits already, may use the whole capacity. Any other phase may use as much as it uses now
    on the host and the disk, and any amount on the GPU. If `phases` is None, all phases must fit at every place;
    otherwise these phases and the rollout must fit on the GPU.
    """
    room: dict[tuple[str, Resource], float] = {}
    counted = places.list_phases(run)
    for phase in run.estimate.phases:
        for place in places.PLACES:
            budget: Budget | None = getattr(phase, place)
            capacity = run.hardware.get_capacity(place)
            if budget is None or capacity is None:
                continue
            is_required = (
                phase.name in counted if phases is None else place == "gpu" and phase.name in (*phases, ROLLOUT_PHASE)
            )
            unchanged = inf if place == "gpu" else budget.expected
            room[phase.name, place] = capacity if is_required or budget.expected <= capacity else unchanged
    return room


def merge_changes(moves: Combination) -> dict[Field, Any]:
    """Return the changes of all moves as one mapping; later moves win."""
    return {field: value for move in moves if move is not None for field, value in move.changes.items()}


class Solution(Frozen):
    """A proposed change to a run: its moves, with the verdicts before and after."""

    run: Run
    moves: tuple[Move, ...]
    before: Judgement
    after: Judgement
    host_and_disk: tuple[tuple[Judgement, Judgement], ...] = ()
    """Verdicts on the host and the disk before and after, for those that must fit and lacked room before."""

    @property
    def is_enough(self) -> bool:
        """True if the GPU, and the places in `host_and_disk`, are expected to have room afterwards."""
        return not any(map(places.is_lacking_room, self.outcomes))

    @property
    def outcomes(self) -> tuple[Judgement, ...]:
        """Verdicts afterwards on the GPU, and on the places in `host_and_disk`."""
        return (self.after, *(after for _, after in self.host_and_disk))

    @property
    def changes(self) -> dict[Field, Any]:
        """New values of plan fields."""
        return merge_changes(self.moves)

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of the changed files, including companions; empty if the change cannot be written."""
        try:
            return tuple(
                dict.fromkeys(document.path for document, _, _ in draft_without_comment_check(self.run, self.fix))
            )
        except CannotEdit:
            return ()

    @property
    def slowdown(self) -> float:
        """Factor on the duration of a step."""
        factor = 1.0
        for move in self.moves:
            factor *= move.slowdown
        return factor

    @property
    def applicability(self) -> Applicability:
        """Applicability of the fix.

        Safe if loss, data and resuming stay the same. If the run is expected to fit without the change, the change must
        also set only unstated settings and cost no time.
        """
        tier = max(move.tier for move in self.moves)
        if not places.is_lacking_room(self.before) and not self.host_and_disk:
            return "safe" if tier == FILLS_IN and self.slowdown <= 1 else "unsafe"
        return "safe" if tier <= SAFE else "unsafe"

    @property
    def rests_on_guesses(self) -> bool:
        """True if the change is safe, but only for assumed facts, so that `--fix` does not make it.

        Decides for a run what `judging/certainty.py` decides for the fix of a finding.
        """
        if self.applicability != "safe":
            return False
        fix, run = self.fix, self.run
        assumptions = find_fact_assumptions(run, run.estimate.fields, GPU, MODEL)
        lacking = [item.resource for item in (self.before, *places.list_lacking(run)) if places.is_lacking_room(item)]
        if lacking and not fix.uses_estimate:
            assumptions = _list_refuting(run, assumptions, lacking)
        return not {assumption.fact for assumption in assumptions} <= fix.tolerated_assumptions

    @property
    def graded_applicability(self) -> Applicability:
        """Applicability of the fix as the linter grades it: unsafe if it rests on guesses."""
        return "unsafe" if self.rests_on_guesses else self.applicability

    @property
    def settings(self) -> tuple[str, ...]:
        """Changed settings as text, such as `micro_batch_size: 16 -> 2`."""
        return words.format_settings(self.run, self.changes)

    @property
    def drops(self) -> tuple[str, ...]:
        """Peaks before and after: `180 -> 58.5 GiB` for the GPU, `host: 600 -> 200 GiB` for other places."""
        other_drops = (f"{before.resource}: {words.format_drop(before, after)}" for before, after in self.host_and_disk)
        return (words.format_drop(*self._find_peaks()), *other_drops)

    def _find_peaks(self) -> tuple[Judgement, Judgement]:
        """Return the verdicts on the GPU before and after: on all phases, unless another phase was the worst before."""
        before, after = judge(self.run, "gpu"), judge(self.run.replace_fields(self.changes), "gpu")
        if before is None or after is None or before.phase.name != self.before.phase.name:
            return self.before, self.after
        return before, after

    @property
    def fix(self) -> Fix:
        """The whole change as a fix.

        If it changes neither a batch nor a length, it may be applied although the sequence length is only assumed.
        """
        message = f"{', '.join(self.settings)} ({', '.join(self.drops)})"
        lost = dict.fromkeys(move.gives_up for move in self.moves if move.tier > SAFE)
        if lost:
            message += f"; gives up: {', '.join(lost)}"
        switches = not any(field.startswith(("batch.", "sequence.")) for field in self.changes)
        despite: frozenset[str] = frozenset(("sequence.length",)) if switches else frozenset()
        return Fix(self.applicability, message, self.changes, tolerated_assumptions=despite, uses_estimate=not switches)


def _list_refuting(run: Run, assumptions: Sequence[Assumption], lacking: Sequence[Resource]) -> tuple[Assumption, ...]:
    """Return the assumptions with whose other values the run has room.

    An assumption without known other values always counts.
    """
    mildest_facts = find_mildest_facts(assumptions, lacking)
    milder = [assumption for assumption in assumptions if assumption.fact in mildest_facts]
    unbounded = (assumption for assumption in assumptions if not assumption.others)
    refuting = find_refuting(milder, mildest_facts, lambda facts: not places.has_room(run.build_scenario(facts)))
    return (*unbounded, *refuting)


def find_smallest(run: Run) -> Solution | None:
    """Return the least costly change with which the training step fits, or None.

    Fitting means that the upper bound fits, if safe moves reach that. Return None if the upper bound already fits, if
    no change makes the step fit, or if the run is a scenario.
    """
    return None if run.is_scenario else run.compute_once(_find_step_solution)


def _find_step_solution(run: Run) -> Solution | None:
    return find_smallest_for(run, STEP_PHASES)


def find_smallest_for(
    run: Run, phases: Collection[str] | None, keep: Collection[str] = (), goal: Goal = "default"
) -> Solution | None:
    """Return the least costly change with which `phases` fit (None: all phases, on the host and disk too), or None.

    `keep`: keys and fields that must not change. `goal`: how costs are compared.
    """
    before = judge(run, "gpu", phases)
    if before is None:
        return None
    problem = Problem(run, phases, keep, "upper")
    all_ = problem.dimensions
    nothing: Combination = (None,) * len(all_)
    if problem.can_fit(nothing, "upper"):
        return None
    if problem.can_fit(nothing) and goal != "default":
        return solve(problem, before, all_, "upper", SAFE, goal)
    if problem.can_fit(nothing):  # only the upper bound does not fit, which does not justify a smaller batch
        kept = [_keep_free_moves(dimension, costly=phases is not None) for dimension in all_]
        return solve(problem, before, kept, "upper", goal=goal)
    solution = solve(problem, before, all_, "upper", FILLS_IN, goal)
    if solution is not None:
        return solution
    free = _require_free_moves(problem)
    switches = [_drop_batches(free)] if goal == "default" and is_length_assumed(run) else []
    searches = [all_] if goal == "smallest-edit" else [*switches, free, all_]
    # The lint replaces no more than comparable jobs make necessary; with a stated goal, what fits comes first.
    bounds: tuple[Bound, ...] = ("margin", "expected") if goal == "default" else ("upper", "margin", "expected")
    for bound in bounds:
        for dimensions in searches:
            solution = solve(problem, before, dimensions, bound, SAFE, goal)
            if solution is not None:
                return solution
    solution = solve(problem, before, all_, "upper", goal=goal)
    for dimensions in (all_, free) if solution is None else ():
        # Beside moves that give something up, free ones must be of use.
        solution = solve(problem, before, dimensions, goal=goal) or solution
        if solution is not None and solution.after.verdict == "fits":
            break
    # Offloading keeps the samples whole; it is no move because the host's memory is unknown.
    is_host_known = run.hardware.get_capacity("host") is not None
    if _is_cut(solution) and not is_host_known and find_sufficient(run):
        return solve(problem, before, [dimension for dimension in all_ if dimension.field != _LENGTH], goal=goal)
    return solution


_LENGTH: Final[Field] = "sequence.length"


def is_length_assumed(run: Run) -> bool:
    """Return whether the length of the samples is only assumed. A fix without smaller batches is safe all the same."""
    return any(item.fact == _LENGTH for item in find_assumptions(run, {_LENGTH}))


def _drop_batches(dimensions: list[Dimension]) -> list[Dimension]:
    return [dimension for dimension in dimensions if not dimension.field.startswith("batch.")]


def _require_free_moves(problem: Problem) -> list[Dimension]:
    """Return the dimensions of a problem, and require moves that lower a peak, cost no time and give nothing up."""
    peaks = problem.list_peaks(())
    return [
        dimension._replace(required=True)
        if all(rank_tier(move) == FILLS_IN and move.slowdown <= 1 for move in dimension.moves)
        and max(problem.list_peaks((dimension.moves[0],)), default=0) < max(peaks, default=0)
        else dimension
        for dimension in problem.dimensions
    ]


def _is_cut(solution: Solution | None) -> bool:
    """Return whether a solution cuts training samples."""
    return solution is not None and _LENGTH in solution.changes


def _keep_free_moves(dimension: Dimension, costly: bool) -> Dimension:
    """Return the dimension with only the moves that give nothing up and do not change a batch.

    They do not slow the run down unless `costly` is true.
    """
    free = [
        move
        for move in dimension.moves
        if move.tier <= REPLACES and (costly or move.slowdown <= 1) and not dimension.field.startswith("batch.")
    ]
    return dimension._replace(moves=tuple(free))


def solve(
    problem: Problem,
    before: Judgement,
    dimensions: list[Dimension],
    bound: Bound = "expected",
    highest: int = OPTIMISATION,
    goal: Goal = "default",
) -> Solution | None:
    """Return the least costly combination of moves with which `bound` fits, with tiers up to `highest`, or None."""
    can_fit = partial(problem.can_fit, bound=bound)
    chosen = find_cheapest(dimensions, can_fit, problem.can_write, highest, problem.is_barred, goal)
    moves = tuple(move for move in chosen or () if move is not None)
    if not moves:
        return None
    return build_solution(problem.run, moves, before, problem.phases)


def build_solution(
    run: Run, moves: tuple[Move, ...], before: Judgement, phases: Collection[str] | None = None
) -> Solution | None:
    """Return the solution that makes `moves`, or None if the changed run cannot be estimated.

    `before`: the verdict on the GPUs of the unchanged run.
    """
    changed = run.replace_fields(merge_changes(moves))
    after = judge(changed, "gpu", phases)
    if after is None:
        return None
    lacking = places.list_lacking(run) if phases is None else ()
    pairs = tuple((old, new) for old in lacking if (new := places.judge_place(changed, old.resource)) is not None)
    return Solution(run, moves, before, after, pairs)
