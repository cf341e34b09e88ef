"""The least costly change with which a run fits, for the rules of memory and for `cfglint fit`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import combinations
from math import inf

from cfglint_train.documents.document import CannotEdit
from cfglint_train.findings.draft import edited
from cfglint_train.findings.finding import Applicability, Fix
from cfglint_train.findings.verdicts import ROLLOUT, STEP, Judgement, judge
from cfglint_train.fitting import places, words
from cfglint_train.fitting.moves import FILLS_IN, OPTIMISATION, REPLACES, SAFE, Dimension, Move, dimensions, refusals
from cfglint_train.fitting.search import Chosen, cheapest
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any
from cfglint_train.memory.budget import Budget, Phase, Resource
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

Places = Mapping[tuple[str, Resource], float]
"""(phase, place) -> the bytes that it may take."""


class Problem:
    """A run, the room that it has, and the moves that it could make. Each combination is estimated once.

    `surely`: the upper bound has to fit the GPU, not only what is expected.
    """

    def __init__(
        self, run: Run, phases: Collection[str] | None = STEP, keep: Collection[str] = (), surely: bool = False
    ) -> None:
        self.run = run
        self.phases = phases
        self.surely = surely
        self.room = _room(run, phases)
        over = {(phase.name, place) for phase in run.estimate.phases for place in self._lacking(phase)}
        self.dimensions = dimensions(run, over, keep)
        self._estimated: dict[frozenset[tuple[Field, Any]], tuple[Phase, ...]] = {}
        self._refused: list[Mapping[Field, Any]] = []
        """Changes that are refused together."""

    def fits(self, chosen: Chosen) -> bool:
        """Whether a combination fits."""
        changes = together(chosen)
        key = frozenset(changes.items())
        if key not in self._estimated:
            self._estimated[key] = self.run.changed(changes).estimate.phases
        phases = self._estimated[key]
        needed = {name for name, place in self.room if place == "gpu"}
        return needed <= {phase.name for phase in phases} and not any(map(self._lacking, phases))

    def writable(self, chosen: Chosen) -> bool:
        """Whether the run's files can state a combination, and nothing stops that run which does not stop this one. One
        that makes a comment false is shown, and not written.
        """
        moves = tuple(move for move in chosen if move is not None)
        if self.barred(moves):
            return False
        try:
            refused = bool(refusals(self.run, together(moves)))
        except CannotEdit:
            return False
        if refused:
            fewer = (some for count in (1, 2) for some in combinations(moves, count))
            self._refused.append(together(next((some for some in fewer if self._is_refused(some)), moves)))
        return not refused

    def barred(self, chosen: Chosen) -> bool:
        """Whether no combination with these moves is one: some of them are known to be refused, or one needs what
        another changes.
        """
        changes = together(chosen)
        for move in chosen:
            for field, values in (move.needs if move is not None else {}).items():
                if field in changes and changes[field] not in values:
                    return True
        return any(some.items() <= changes.items() for some in self._refused)

    def _is_refused(self, moves: tuple[Move, ...]) -> bool:
        try:
            return bool(refusals(self.run, together(moves)))
        except CannotEdit:
            return False

    def _lacking(self, phase: Phase) -> list[Resource]:
        """The places that lack room for a phase."""
        return [place for place in places.PLACES if not self._holds(phase, place)]

    def _holds(self, phase: Phase, place: Resource) -> bool:
        budget: Budget | None = getattr(phase, place)
        if budget is None:
            return (phase.name, place) not in self.room
        room = self.room.get((phase.name, place), self.run.hardware.capacity(place))
        need = budget.high if self.surely and place == "gpu" and phase.name in STEP else budget.expected
        return room is None or need <= room


def _room(run: Run, phases: Collection[str] | None) -> Places:
    """What each phase may take: the capacity, where it is asked for or fits now; what is not asked for and does not fit
    anyway may take what it takes now on the host and the disk, and anything on the GPU. The rollout is asked for with
    the step.
    """
    room: dict[tuple[str, Resource], float] = {}
    counted = places.phases(run)
    for phase in run.estimate.phases:
        for place in places.PLACES:
            budget: Budget | None = getattr(phase, place)
            capacity = run.hardware.capacity(place)
            if budget is None or capacity is None:
                continue
            asked = phase.name in counted if phases is None else place == "gpu" and phase.name in (*phases, ROLLOUT)
            now = inf if place == "gpu" else budget.expected
            room[phase.name, place] = capacity if asked or budget.expected <= capacity else now
    return room


def together(moves: Chosen) -> dict[Field, Any]:
    """The changes of several moves."""
    return {field: value for move in moves if move is not None for field, value in move.changes.items()}


class Solution(Frozen):
    """The least costly change with which a run fits."""

    run: Run
    moves: tuple[Move, ...]
    before: Judgement
    after: Judgement
    elsewhere: tuple[tuple[Judgement, Judgement], ...] = ()
    """The host and the disk before and after, where they are asked for and lack room before."""

    @property
    def fits(self) -> bool:
        """Every place that is asked for is expected to have room afterwards."""
        return not any(places.lacks(one) for one in (self.after, *(after for _, after in self.elsewhere)))

    @property
    def changes(self) -> dict[Field, Any]:
        """New values of plan fields."""
        return together(self.moves)

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the files that it changes, companions among them; none where it cannot be written."""
        try:
            return tuple(dict.fromkeys(document.path for document, _, _ in edited(self.run, self.fix)))
        except CannotEdit:
            return ()

    @property
    def slowdown(self) -> float:
        """The factor on the time of a step."""
        factor = 1.0
        for move in self.moves:
            factor *= move.slowdown
        return factor

    @property
    def applicability(self) -> Applicability:
        """safe: loss, data and resuming stay, and the run cannot work as it is or nothing stated is replaced."""
        tier = max(move.tier for move in self.moves)
        if not places.lacks(self.before) and not self.elsewhere:
            return "safe" if tier == FILLS_IN and self.slowdown <= 1 else "unsafe"
        return "safe" if tier <= SAFE else "unsafe"

    @property
    def settings(self) -> tuple[str, ...]:
        """`micro_batch_size: 16 -> 2`, one for each setting."""
        return words.settings(self.run, self.changes)

    @property
    def drops(self) -> tuple[str, ...]:
        """`180 -> 58.5 GiB` of the GPU, and `host: 600 -> 200 GiB` of each other place that lacks room before."""
        beside = (f"{before.place}: {words.drop(before, after)}" for before, after in self.elsewhere)
        return (words.drop(self.before, self.after), *beside)

    @property
    def fix(self) -> Fix:
        """All of it as one fix. Where it only switches something on, a length that is an upper limit may be assumed."""
        message = f"{', '.join(self.settings)} ({', '.join(self.drops)})"
        lost = dict.fromkeys(move.gives_up for move in self.moves if move.tier > SAFE)
        if lost:
            message += f"; gives up: {', '.join(lost)}"
        switches = not any(field.startswith(("batch.", "sequence.")) for field in self.changes)
        despite: frozenset[str] = frozenset(("sequence.length",)) if switches else frozenset()
        return Fix(self.applicability, message, self.changes, despite=despite, measured=not switches)


def smallest(run: Run) -> Solution | None:
    """The least costly change with which the training step fits; None where it fits, or where nothing makes it fit.

    What nothing states is filled in as far as the whole interval fits, where that is enough; everything else is
    changed as far as the expected size fits, and no further. Nothing is looked for at a corner.
    """
    return None if run.is_corner else run.once(_smallest)


def _smallest(run: Run) -> Solution | None:
    return smallest_of(run, STEP)


def smallest_of(run: Run, phases: Collection[str] | None, keep: Collection[str] = ()) -> Solution | None:
    """The same for some phases (None: all, and the host and the disk, too); `keep`: keys and fields that stay."""
    before = judge(run, "gpu", phases)
    if before is None:
        return None
    problem = Problem(run, phases, keep, surely=True)
    nothing: Chosen = (None,) * len(problem.dimensions)
    if problem.fits(nothing):
        return None
    problem.surely = False
    every = problem.dimensions
    if problem.fits(nothing):  # what only may not fit is worth no smaller batch
        problem.surely = True
        problem.dimensions = [_giving_nothing_up(one, (), costly=phases is not None) for one in every]
        return solved(problem, before)
    problem.surely = True
    filled = solved(problem, before, FILLS_IN)
    problem.surely = False
    found = filled or solved(problem, before)
    if filled is not None or found is None or phases is not None:
        return found
    # What is free belongs to it: else it would be proposed for the changed run.
    problem.surely = True
    problem.dimensions = [_giving_nothing_up(one, found.moves, costly=False) for one in every]
    return solved(problem, before) or found


def _giving_nothing_up(dimension: Dimension, chosen: Collection[Move], costly: bool) -> Dimension:
    """Return the dimension with its chosen move and the stronger ones that give nothing up: not even a larger batch,
    nor time unless that may be `costly`.
    """
    moves = dimension.moves
    first = next((number for number, move in enumerate(moves) if move in chosen), -1)
    free = [
        move
        for move in moves[first + 1 :]
        if move.tier <= REPLACES and (costly or move.slowdown <= 1) and not dimension.field.startswith("batch.")
    ]
    return dimension._replace(moves=(*moves[first : first + 1], *free) if first >= 0 else tuple(free))


def solved(problem: Problem, before: Judgement, highest: int = OPTIMISATION) -> Solution | None:
    """The least costly combination of a problem's moves that fits."""
    chosen = cheapest(problem.dimensions, problem.fits, problem.writable, highest, problem.barred)
    moves = tuple(move for move in chosen or () if move is not None)
    if not moves:
        return None
    return solution_of(problem.run, moves, before, problem.phases)


def solution_of(
    run: Run, moves: tuple[Move, ...], before: Judgement, phases: Collection[str] | None = None
) -> Solution | None:
    """What some moves make of a run; `before` is the verdict on its GPUs."""
    changed = run.changed(together(moves))
    after = judge(changed, "gpu", phases)
    if after is None:
        return None
    lacking = places.lacking(run) if phases is None else ()
    pairs = tuple((one, found) for one in lacking if (found := places.judged(changed, one.place)) is not None)
    return Solution(run, moves, before, after, pairs)
