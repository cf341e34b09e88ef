"""Estimates: phases with a budget per place; a budget lists components, with an expected total and an interval."""

from __future__ import annotations

from collections.abc import Sequence

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Final, Literal
from cfglint_train.memory.component import Component

if TYPE_CHECKING:
    from cfglint_train.memory.comparable import OwnRuns
    from cfglint_train.memory.plan_reader import Missing
    from cfglint_train.memory.setup import Setup
    from cfglint_train.plan.fields import Plan
    from cfglint_train.plan.names import Field

Resource = Literal["gpu", "host", "disk"]

STEP_PHASES: Final = ("forward", "backward", "optimizer step")
"""Phases of a training step."""

GENERATION: Final = "generation"
SYNC: Final = "new weights for the engine"
"""Events of the rollout phase in which the engine is awake."""


class Budget(Frozen):
    """The peak on one GPU, on one host or on disk, in bytes.

    `expected` is the sum of the components. The true value should lie in `low`..`high`; the bounds come from
    the calibration's residuals of comparable rows.
    """

    place: Resource
    sizes: tuple[tuple[Component, int], ...]
    """Components and their bytes."""
    low: int
    high: int
    extra_fields: frozenset[Field] = frozenset()
    """Plan fields that this budget depends on, in addition to those of all numbers (`Estimate.read`)."""
    spans: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    """For a GPU: low and high bound of torch's allocated bytes, high bound of its reserved bytes, and the minimum of
    reserved minus allocated bytes at the low bound. The minimum is not 0 because other streams
    cannot use one stream's cached blocks until an allocation would fail, and some blocks of a step are never shared.
    """
    cached: int = 0
    """Bytes of blocks that torch may cache beyond the step's needs because later batches are too long for them.
    `expected` omits them because torch frees them before an allocation fails.
    """
    phase: str = ""
    """Name of the phase that the budget belongs to."""
    basis: tuple[Setup, Plan, int | None] | None = None
    """Setup, plan, and GPU capacity (None if unknown) that the budget was computed from. Between steps, setup and
    plan have no batch.
    """
    own_runs: OwnRuns | None = None
    """The user's own runs that moved `low` and `high`, or None if none did. `spans` are not moved."""

    @property
    def setup(self) -> Setup:
        """Setup that the budget was computed from."""
        assert self.basis is not None
        return self.basis[0]

    @property
    def expected(self) -> int:
        """Sum of the components."""
        return sum([size for _, size in self.sizes])

    @property
    def allocated(self) -> int:
        """Bytes that torch counts as allocated, without the allocator's reserve, the GPU context and managed memory."""
        return sum(size for component, size in self.sizes if component.counter == "allocated")

    @property
    def reserved(self) -> int:
        """Bytes that torch reserves on the GPU, without the GPU context and managed memory."""
        return sum(size for component, size in self.sizes if component.counter != "driver")

    def get_bounds(self, counter: str) -> tuple[float, float]:
        """Return the interval of one counter: allocated, reserved (with cached blocks), or else the whole GPU."""
        low, high, reserved, least = self.spans
        if counter.startswith("allocated"):
            return low, high
        if counter.startswith("reserved"):
            return low + least, reserved
        return self.low + least, max(self.high, reserved + self.expected - self.reserved)

    @property
    def largest(self) -> Component:
        """Component with the most bytes."""
        return max(self.sizes, key=lambda pair: pair[1])[0]


def compute_figure(budget: Budget, counter: str, capacity: int | None) -> float:
    """Return the expected value of a counter, in bytes.

    If the allocations fit, the total is capped at `capacity`, because torch frees cached blocks before an
    allocation fails.
    """
    if counter.startswith("allocated"):
        return budget.allocated
    total = budget.reserved + budget.cached
    if counter.startswith("driver"):
        total += budget.expected - budget.reserved
    return min(total, capacity) if capacity and budget.allocated <= capacity else total


def compute_interval(budget: Budget, counter: str, capacity: int | None) -> tuple[float, float]:
    """Return the low and the high bound of a counter, in bytes.

    If the source does not name the counter, the interval runs from the low bound of allocated memory to the high bound
    of the driver's figure. If the high bound exceeds `capacity`, the low bound is lowered, because torch may have freed
    cached blocks.
    """
    low, high = budget.get_bounds(counter)
    if capacity and high > capacity and not counter.startswith("allocated"):
        low -= budget.spans[-1]
    if counter.endswith("?"):
        low, high = budget.get_bounds("allocated")[0], max(high, budget.get_bounds("driver")[1])
    return low, min(high, capacity) if capacity and low <= capacity else high


class Phase(Frozen):
    """A phase of the run, for the worst rank and the worst host."""

    name: str
    """load, forward, backward, optimizer step, eval, save, resume, rollout, or a model's role."""
    event: str
    """Moment of the peak within the phase, in words."""
    gpu: Budget | None = None
    host: Budget | None = None
    disk: Budget | None = None

    @property
    def title(self) -> str:
        """Name of the phase for use in a sentence: `the backward pass`."""
        return _TITLES.get(self.name, f"the {self.name}")


_TITLES: Final = {
    "load": "loading the model",
    "forward": "the forward pass",
    "backward": "the backward pass",
    "eval": "evaluation",
    "save": "saving a checkpoint",
    "resume": "resuming",
}


class Estimate(Frozen):
    """Peaks of all phases that could be computed, and the missing inputs of the others."""

    phases: tuple[Phase, ...]
    missing: tuple[Missing, ...] = ()
    """Unknown inputs that a phase needs: plan fields, or `plan_reader.MODEL`."""
    read: Sequence[Field] = ()
    """Plan fields that every number depends on."""
    assumed: tuple[Field, ...] = ()
    """Unstated plan fields for which a default was used, or that were treated as off."""

    @property
    def fields(self) -> frozenset[Field]:
        """Plan fields that the numbers depend on."""
        budgets = [budget for phase in self.phases for budget in (phase.gpu, phase.host, phase.disk)]
        return frozenset(self.read).union(*(budget.extra_fields for budget in budgets if budget is not None))

    @property
    def has_step(self) -> bool:
        """True if a training step was estimated, not only phases before or after it."""
        return self.find_phase("backward") is not None

    def find_peak(self, place: Resource) -> Phase | None:
        """Return the phase with the highest expected peak at a place, or None if no phase has a budget there."""
        candidates = [phase for phase in self.phases if getattr(phase, place) is not None]
        return max(candidates, key=lambda phase: getattr(phase, place).expected, default=None)

    def drop_gpu(self, name: str) -> Estimate:
        """Return the estimate without the GPU budget of a phase."""
        phases = (phase._replace(gpu=None) if phase.name == name else phase for phase in self.phases)
        return self._replace(phases=tuple([phase for phase in phases if phase.gpu or phase.host or phase.disk]))

    def find_phase(self, name: str) -> Phase | None:
        """Return the first phase named `name`, or None."""
        return next((phase for phase in self.phases if phase.name == name), None)


Verdict = Literal["fits", "tight", "probably does not fit", "does not fit"]
VERDICTS: Final[tuple[Verdict, ...]] = ("fits", "tight", "probably does not fit", "does not fit")
"""All verdicts, from the best to the worst."""


def compute_verdict(budget: Budget, capacity: int) -> Verdict:
    """Return the verdict on a budget.

    The first condition that holds decides:

    - fits: the upper bound is at most the capacity
    - does not fit: the lower bound is above the capacity
    - probably does not fit: the expected value is above the capacity
    - tight: the expected value is at most the capacity
    """
    if budget.high <= capacity:
        return "fits"
    if budget.low > capacity:
        return "does not fit"
    return "probably does not fit" if budget.expected > capacity else "tight"


def rank_budget(budget: Budget, capacity: int | None) -> tuple[int, int]:
    """Return a sort key of budgets: the verdict if the capacity is known, then the expected size."""
    return 0 if capacity is None else VERDICTS.index(compute_verdict(budget, capacity)), budget.expected
