"""Classes of measured jobs with which a job is compared, by strategy and kind of training.

The interval of an estimate uses the residuals of such jobs (`calibration/fit.py`). If a class has fewer
than three measured setups or only one framework, the next wider class is used: one GPU or several, then all.
The margin for booking GPUs is a residual too, of all counters; its wider class is the kind of training.
A user's own runs of the job's class and framework (`OwnRuns`) move these intervals.
"""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.calibration import Residual
from cfglint_train.memory.setup import Setup
from cfglint_train.plan.choices import FSDP

PREFIX = "published-"
BOOKED_PREFIX = "booked-"
ANY_CLASS = PREFIX + "any"
"""Class of all measurements, used if the narrower classes of a job contain too few."""

MIN_OWN_SETUPS: Final = 3
"""Fewer set-ups of a user's own do not narrow an interval, as in `calibration/fit.py`."""
_WEIGHT_OF_PUBLISHED: Final = 6
"""Number of own set-ups that weigh as much as the published interval.

Derived from published rows: a set-up of a framework is left out, and three or four others of its framework and class
are the own runs (`tests/memory/test_own_runs.py`). Their range alone, widened by 1 / set-ups as in
`calibration/fit.py`, leaves 18 to 22 % of the left-out figures above it. With this weight they are 4 to 7 %, as with
the published interval, which is 15 to 18 % wider.
"""


class OwnRuns(Frozen):
    """A user's own runs of one class and framework, as residuals (measurement / estimate - 1)."""

    low: float
    """Lowest residual, at most 0."""
    high: float
    """Highest residual, at least 0. A run that ran out of memory counts with the bytes that it asked for."""
    setups: int
    """Number of different set-ups that were measured."""
    below: int = 0
    """Number of set-ups measured below their published interval."""
    above: int = 0
    """Number of set-ups measured above their published interval, or that asked for more."""
    narrowed: int = 0
    """Number of set-ups that narrowed the interval of a budget; 0 if none did."""
    widened: int = 0
    """Number of set-ups that widened the interval of a budget; 0 if none did."""

    def move_low(self, published: float) -> float:
        """Return the lower edge for an estimate whose published edge is `published`, both as shares of the estimate."""
        return -self._move(-published, -self.low, self.below)

    def move_high(self, published: float) -> float:
        """Return the upper edge, as `move_low` returns the lower one."""
        return self._move(published, self.high, self.above)

    def _move(self, published: float, measured: float, outside: int) -> float:
        """Return the distance of an edge from the estimate.

        An own run beyond the edge of its published interval widens the edge until it contains the run. Otherwise the
        edge is the mean of the published edge and of the own one, widened by 1 / set-ups, weighted by their numbers.
        It is never farther away than the published one.
        """
        if outside:
            return max(published, measured)
        if self.setups < MIN_OWN_SETUPS:
            return published
        share = self.setups / (self.setups + _WEIGHT_OF_PUBLISHED)
        return min(published, share * measured * (1 + 1 / self.setups) + (1 - share) * published)


def classify(setup: Setup) -> str:
    """Return the class of a setup: single, ddp, fsdp or zero, with full, adapters or quantized."""
    strategy = "fsdp" if setup.ranks.strategy in FSDP else setup.ranks.strategy
    place = "single" if setup.ranks.world == 1 or strategy == "none" else strategy
    training = "quantized" if setup.mode.quantized else "adapters" if setup.weights.adapters else "full"
    return f"{PREFIX}{place}-{training}"


def list_classes(kind: str) -> tuple[str, str, str]:
    """Return a class and the wider ones, the narrowest first."""
    place = "single" if kind.startswith(f"{PREFIX}single") else "several"
    return kind, PREFIX + place, ANY_CLASS


def find_residual(setup: Setup, residuals: Mapping[str, Residual]) -> Residual:
    """Return the residual of the narrowest class of comparable jobs that has one."""
    return next(residuals[kind] for kind in list_classes(classify(setup)) if kind in residuals)


def list_booked_classes(kind: str) -> tuple[str, str, str]:
    """Return the class of a job's margin for booking and the wider ones, the narrowest first."""
    place, training = kind.removeprefix(PREFIX).split("-")
    return f"{BOOKED_PREFIX}{place}-{training}", BOOKED_PREFIX + training, BOOKED_PREFIX + "any"
