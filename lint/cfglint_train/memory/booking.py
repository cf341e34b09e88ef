"""Bytes to book per GPU: an upper bound with the margin that measured jobs of the same class needed (`comparable`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cfglint_train.memory.budget import Phase
from cfglint_train.memory.calibration import Residual, load_table
from cfglint_train.memory.comparable import OwnRuns, classify, list_booked_classes
from cfglint_train.memory.setup import Setup


def find_booking_margin(setup: Setup, residuals: Mapping[str, Residual], own_runs: OwnRuns | None = None) -> Residual:
    """Return the margin for booking GPUs for jobs like this one, which `own_runs` move."""
    margin = next(residuals[kind] for kind in list_booked_classes(classify(setup)) if kind in residuals)
    return margin if own_runs is None else margin._replace(high=own_runs.move_high(margin.high))


def compute_booking(
    setup: Setup, expected: float, high: float, residuals: Mapping[str, Residual], own_runs: OwnRuns | None = None
) -> tuple[int, Residual]:
    """Return the bytes to book, and the margin of comparable jobs.

    The bytes are the upper bound `high`, or the `expected` bytes with the margin if that is more.
    """
    margin = find_booking_margin(setup, residuals, own_runs)
    return int(max(high, expected * (1 + margin.high))), margin


def find_booking(phases: Iterable[Phase]) -> tuple[int, Residual] | None:
    """Return the bytes to book per GPU, for the phase that needs most, and its margin; None without a GPU budget."""
    budgets = [phase.gpu for phase in phases if phase.gpu is not None]
    residuals = load_table().residuals
    bookings = (compute_booking(item.setup, item.expected, item.high, residuals, item.own_runs) for item in budgets)
    return max(bookings, key=lambda pair: pair[0], default=None)
