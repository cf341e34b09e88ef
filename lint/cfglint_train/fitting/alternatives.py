"""The ladder of changes of a run, one rung per setting: what each saves and costs, and which of them are chosen."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from cfglint_train.findings.verdicts import Judgement, judge
from cfglint_train.fitting import places, words
from cfglint_train.fitting.hardware_needed import HardwareNeed, holding_all, least
from cfglint_train.fitting.moves import OPTIMISATION, SAFE, Dimension, Move
from cfglint_train.fitting.offload import advised
from cfglint_train.fitting.smallest import Problem, Solution, smallest_of, solution_of, together
from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final, Literal
from cfglint_train.foundation.wording import did_you_mean
from cfglint_train.memory.budget import Resource
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

Goal = Literal["throughput", "memory"]
Most = Literal["micro_batch", "sequence_length"]

LARGEST: Final[dict[str, Field]] = {"micro_batch": "batch.micro", "sequence_length": "sequence.length"}
HIGHEST: Final = 1 << 24


class Alternative(Frozen):
    """One change by itself."""

    move: Move
    settings: tuple[str, ...]
    """`micro_batch_size: 16 -> 2`, one for each setting."""
    place: Resource
    """Where it saves memory: on the GPU, else where room is lacking."""
    after: int
    """The highest expected peak there with it, in bytes."""
    saved: int
    chosen: bool
    """It is part of the change that is proposed."""

    @property
    def safe(self) -> bool:
        """Loss, data and resuming stay as they are."""
        return self.move.tier <= SAFE


class Alternatives(Frozen):
    """What a run needs, the changes that lower that, and the one that is proposed."""

    run: Run
    judgement: Judgement | None
    """The verdict on its GPUs; None where the run is not estimated."""
    elsewhere: tuple[Judgement, ...] = ()
    """The verdicts on its hosts and its disk, where their size is stated."""
    rungs: tuple[Alternative, ...] = ()
    """From the cheapest on."""
    solution: Solution | None = None
    """None where it fits as it is, or where nothing makes it fit."""
    holding: HardwareNeed | None = None
    """What would hold it, where nothing makes it fit."""
    offload: str | None = None
    """What moving the optimizer to a host would do whose memory is not stated, where no smaller change is enough."""
    largest: int | None = None
    """What `--max` asks for; 0 where not even 1 fits."""
    asked: Field | None = None

    @property
    def lacks_room(self) -> bool:
        """It is not expected to fit as it is."""
        return self.judgement is not None and any(map(places.lacks, (self.judgement, *self.elsewhere)))

    @property
    def is_hopeless(self) -> bool:
        """It does not fit, and no change of its files makes it."""
        return self.lacks_room and (self.solution is None or not self.solution.fits)


def ladder(run: Run, keep: Collection[str] = (), goal: Goal = "throughput", most: Most | None = None) -> Alternatives:
    """The ladder of a run. `keep`: keys and fields that stay. `goal`: the least costly change that fits, or the safe
    change with the lowest peak. `most`: what is to be as large as fits.
    """
    judgement = judge(run, "gpu", None)
    if judgement is None:
        return Alternatives(run, None)
    solution = _leanest(run, judgement, keep) if goal == "memory" else smallest_of(run, None, keep)
    over = places.lacks(judgement)
    return Alternatives(
        run,
        judgement,
        places.elsewhere(run),
        _rungs(run, judgement, keep, solution),
        solution,
        holding_all(run, keep) if solution is None and not places.fits(run) else None,
        _offload(run) if over and _is_dear(solution) and run.hardware.capacity("host") is None else None,
        largest(run, LARGEST[most]) if most is not None else None,
        LARGEST[most] if most is not None else None,
    )


def _is_dear(solution: Solution | None) -> bool:
    """Whether nothing fits without a change of the optimisation."""
    return solution is None or any(move.tier == OPTIMISATION for move in solution.moves)


def _offload(run: Run) -> str | None:
    """What offloading would do by itself, else with the safe changes with which the step needs least; None where it
    does not fit either.
    """
    alone: Mapping[Field, Any] = {}
    for changes in (alone, least(run)):
        found = advised(run, changes)
        if found is not None and found.after.budget.expected <= found.after.capacity:
            return found.words
    return None


def check_keep(run: Run, keep: Collection[str]) -> None:
    """Raise UsageError for a key that is neither one of the run's settings nor a field of the plan."""
    from cfglint_train.frameworks import framework as frameworks
    from cfglint_train.frameworks.lens import spelled
    from cfglint_train.plan.fields import FIELDS

    lenses = [lens for config in run.configs for lens in frameworks.load(config.framework).lenses]
    known = {spelled(route) for lens in lenses for routes in lens.keys.values() for route in routes}
    known |= {run.spell(field) for lens in lenses for field in lens.fields}
    for key in keep:
        if key not in known and key not in FIELDS:
            hint = did_you_mean(key, sorted({*known, *FIELDS}))
            raise UsageError(f"--keep {key}: {run.main.document.path} has no such setting{hint and f'; {hint}'}")


def _rungs(run: Run, before: Judgement, keep: Collection[str], solution: Solution | None) -> tuple[Alternative, ...]:
    """One rung per setting: the move that is chosen, else the first with which the run fits, else the strongest."""
    problem = Problem(run, None, keep)
    lacking = places.lacking(run)
    short = (before, *lacking) if places.lacks(before) or not lacking else lacking
    picked = {move.name: move for move in (solution.moves if solution is not None else ())}
    found = []
    for dimension in problem.dimensions:
        move = next((move for move in dimension.moves if picked.get(move.name) == move), None) or _telling(
            problem, dimension
        )
        changed = run.changed(move.changes)
        chosen = picked.get(move.name) == move
        if not chosen and not (places.holds_elsewhere(changed, run) and problem.writable((move,))):
            continue
        relieved = _relieved(changed, short)
        if relieved is None and chosen and (gpu := judge(changed, "gpu", None)) is not None:
            relieved = (before, gpu)
        if relieved is not None:
            was, peak = (one.budget.expected for one in relieved)
            settings = words.settings(run, move.changes)
            found.append(Alternative(move, settings, relieved[0].place, peak, was - peak, chosen))
    return tuple(sorted(found, key=lambda rung: (rung.move.tier, rung.move.slowdown, -rung.saved)))


def _relieved(after: Run, before: Iterable[Judgement]) -> tuple[Judgement, Judgement] | None:
    """The first place where less is expected than before, with both verdicts."""
    for one in before:
        now = places.judged(after, one.place)
        if now is not None and now.budget.expected < one.budget.expected:
            return one, now
    return None


def _telling(problem: Problem, dimension: Dimension) -> Move:
    for move in dimension.moves:
        if problem.fits((move,)):
            return move
    return dimension.moves[-1]


def _leanest(run: Run, before: Judgement, keep: Collection[str]) -> Solution | None:
    """The safe moves that together need least memory: of each setting the one that lowers the peak most, and asks
    neither the host nor the disk for more than there is.
    """
    chosen: tuple[Move, ...] = ()
    lowest, problem = before, Problem(run, None, keep)
    for dimension in problem.dimensions:
        for move in [move for move in dimension.moves if move.tier <= SAFE]:
            tried = (*(one for one in chosen if one not in dimension.moves), move)
            changed = run.changed(together(tried))
            after = judge(changed, "gpu", None)
            lower = after is not None and after.budget.expected < lowest.budget.expected
            if after is not None and lower and places.holds_elsewhere(changed, run) and problem.writable(tried):
                lowest, chosen = after, tried
    return solution_of(run, chosen, before) if chosen else None


def largest(run: Run, field: Field, holds: Callable[[Run], bool] = places.fits) -> int:
    """Return the largest value of a size with which every phase is expected to fit, or with which something else
    holds; 0 if it does not with 1, HIGHEST if there is no limit.
    """
    enough, too_much = 0, 1
    while too_much <= HIGHEST and holds(run.changed({field: too_much})):
        enough, too_much = too_much, too_much * 2
    while too_much - enough > 1 and enough < HIGHEST:
        middle = (enough + too_much) // 2
        enough, too_much = (middle, too_much) if holds(run.changed({field: middle})) else (enough, middle)
    return enough
