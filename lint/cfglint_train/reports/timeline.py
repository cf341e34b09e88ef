"""The GPU memory of a run over time, by kind of memory: the one timeline of the HTML page, the terminal and JSON.

A kind has the same color everywhere. The colors are taken from the 256 of terminals. On white and on the dark page they
have a contrast of 3:1 or more, and neighbors in a bar differ under the common kinds of color blindness.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.memory.budget import STEP_PHASES, Budget, Phase, compute_verdict
from cfglint_train.memory.component import Component
from cfglint_train.memory.components import MASTER, OPTIMIZER, PAGED, RESTORED
from cfglint_train.memory.first_step import LAZY_SINCE, build_first_step_budget
from cfglint_train.records import Moment
from cfglint_train.runs.run import Run

if TYPE_CHECKING:
    from cfglint_train.whatif.plan_file import StatedPlan


class Kind(Frozen):
    """A kind of memory as a bar shows it."""

    letter: str
    """Character of a bar without colors."""
    code: int
    """Color among the 256 of a terminal."""
    color: str
    """The same color in a page."""


KINDS: Final[Mapping[str, Kind]] = {
    "weights": Kind("W", 26, "#005fd7"),
    "gradients": Kind("G", 166, "#d75f00"),
    "optimizer": Kind("O", 29, "#00875f"),
    "activations": Kind("A", 133, "#af5faf"),
    "logits": Kind("L", 160, "#d70000"),
    "buffers": Kind("B", 137, "#af875f"),
    "engine": Kind("E", 31, "#0087af"),
    "reserve": Kind("R", 244, "#808080"),
}
"""Kinds in the order of a bar."""

_KINDS: Final = {
    "state": "weights",
    "gradient": "gradients",
    "activation": "activations",
    "logits": "logits",
    "transient": "buffers",
    "engine": "engine",
    "runtime": "reserve",
}
"""Kind of memory of each kind of component."""
_OPTIMIZER: Final = (MASTER, OPTIMIZER, PAGED, RESTORED)

_STEPS: Final = {"load": "load", "rollout": "rollout", "eval": "evaluation", "save": "save", "resume": "resume"}
_BEFORE: Final = ("load", "rollout")


def build_timeline(run: Run | StatedPlan) -> tuple[Moment, ...]:
    """Return the bars of a run in order: loading, rollout, steps, evaluation, saving, resuming, other models.

    The first step has bars of its own if it needs less than the others.
    """
    capacity = run.hardware.get_capacity("gpu")
    phases = [phase for phase in run.estimate.phases if phase.gpu is not None]
    steps = [phase for phase in phases if phase.name in STEP_PHASES]
    is_eager = isinstance(run, Run) and run.releases.is_at_least(*LAZY_SINCE) is False
    first = [(phase, build_first_step_budget(phase.name, _require_gpu(phase), is_eager)) for phase in steps]
    is_distinct = any(budget is not phase.gpu and budget != phase.gpu for phase, budget in first)
    rows = [(_STEPS[phase.name], phase.name, _require_gpu(phase)) for phase in phases if phase.name in _BEFORE]
    rows += [("step 1", phase.name, budget) for phase, budget in first if is_distinct]
    rows += [("step 2" if is_distinct else "every step", phase.name, _require_gpu(phase)) for phase in steps]
    rows += [
        (_STEPS.get(phase.name, phase.name), phase.name, _require_gpu(phase))
        for phase in phases
        if phase.name not in (*_BEFORE, *STEP_PHASES)
    ]
    return tuple([_build_moment(step, name, budget, capacity) for step, name, budget in rows])


def _require_gpu(phase: Phase) -> Budget:
    assert phase.gpu is not None
    return phase.gpu


def _build_moment(step: str, phase: str, budget: Budget, capacity: int | None) -> Moment:
    return Moment(
        step=step,
        phase=phase,
        expected=budget.expected,
        low=budget.low,
        high=budget.high,
        percent=compute_percent(budget.expected, capacity),
        verdict=None if capacity is None else compute_verdict(budget, capacity),
        kinds=sum_kinds(budget.sizes),
    )


def compute_percent(size: int, capacity: int | None) -> int | None:
    """Return a size in percent of the capacity, rounded, or None without a capacity."""
    return round(100 * size / capacity) if capacity else None


def sum_kinds(sizes: Iterable[tuple[Component, int]]) -> dict[str, int]:
    """Return the bytes of each kind of memory that there is, in the order of a bar."""
    totals = dict.fromkeys(KINDS, 0)
    for component, size in sizes:
        totals["optimizer" if component in _OPTIMIZER else _KINDS[component.kind]] += size
    return {kind: size for kind, size in totals.items() if size}


def name_moment(moment: Moment) -> str:
    """Return the name of a bar: `load`, `step 1 forward`, `every step backward`."""
    if moment.phase not in STEP_PHASES:
        return moment.step
    return f"{moment.step} {'optimizer' if moment.phase == 'optimizer step' else moment.phase}"


def list_kinds(moments: Iterable[Moment]) -> list[str]:
    """Return the kinds of memory that occur in the bars, in their order."""
    present = {kind for moment in moments for kind in moment.kinds}
    return [kind for kind in KINDS if kind in present]


def divide_bar(kinds: Mapping[str, int], top: int, width: int) -> Iterator[tuple[str, int, int]]:
    """Yield each kind with its first place and its width in a bar of `width` places for `top` bytes.

    Ends are rounded, not widths, so that the bar is as long as its sum.
    """
    total = start = 0
    for kind, size in kinds.items():
        total += size
        end = round(width * total / top) if top else 0
        if end > start:
            yield kind, start, end - start
        start = end
