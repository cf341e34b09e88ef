"""Classes of measured jobs with which a job is compared, by strategy and kind of training.

The interval of an estimate uses the residuals of such jobs (`calibration/fit.py`). If a class has fewer
than three measured setups or only one framework, the next wider class is used: one GPU or several, then all.
The margin for booking GPUs is a residual too, of all counters; its wider class is the kind of training.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cfglint_train.memory.budget import Phase
from cfglint_train.memory.calibration import Residual, load_table
from cfglint_train.memory.setup import Setup
from cfglint_train.plan.choices import FSDP

PREFIX = "published-"
BOOKED_PREFIX = "booked-"
ANY_CLASS = PREFIX + "any"
"""Class of all measurements, used if the narrower classes of a job contain too few."""


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


def find_booking_margin(setup: Setup, residuals: Mapping[str, Residual]) -> Residual:
    """Return the margin for booking GPUs for jobs like this one."""
    return next(residuals[kind] for kind in list_booked_classes(classify(setup)) if kind in residuals)


def compute_booking(
    setup: Setup, expected: float, high: float, residuals: Mapping[str, Residual]
) -> tuple[int, Residual]:
    """Return the bytes to book, and the margin of comparable jobs.

    These are the upper bound `high`, or the `expected` bytes with the margin if that is more.
    """
    margin = find_booking_margin(setup, residuals)
    return int(max(high, expected * (1 + margin.high))), margin


def find_booking(phases: Iterable[Phase]) -> tuple[int, Residual] | None:
    """Return the bytes to book per GPU, for the phase that needs most, and its margin; None without a GPU budget."""
    budgets = [phase.gpu for phase in phases if phase.gpu is not None]
    residuals = load_table().residuals
    bookings = (compute_booking(item.setup, item.expected, item.high, residuals) for item in budgets)
    return max(bookings, key=lambda pair: pair[0], default=None)
