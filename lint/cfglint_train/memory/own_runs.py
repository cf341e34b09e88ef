"""A user's own measurements: their residuals, and the intervals of comparable runs that they move."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from math import ceil

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.hardware.catalogue import Hardware
from cfglint_train.memory.budget import STEP_PHASES, Budget, Estimate, Phase, compute_figure, compute_interval
from cfglint_train.memory.calibration import load_table
from cfglint_train.memory.comparable import OwnRuns, classify
from cfglint_train.memory.estimate import estimate
from cfglint_train.memory.phase_budget import find_flow_residual
from cfglint_train.memory.setup import Setup
from cfglint_train.models.architecture import Architecture
from cfglint_train.plan.fields import Plan

_NEARLY_FULL: Final = 0.95
"""Share of a GPU above which reserved memory says little: torch frees cached blocks before an allocation fails."""


class Measurement(Frozen):
    """The peak of a run, by one counter."""

    plan: Plan
    architecture: Architecture
    hardware: Hardware
    counter: str
    """allocated, reserved or driver."""
    size: float
    """Bytes at the peak; for a run that ran out of memory, the bytes that it held and asked for."""
    is_bound: bool = False
    """True if the run ran out of memory, so that its peak would have been higher."""


class OwnResidual(Frozen):
    """A measurement compared with its estimate."""

    kind: str
    """Class of the job (`classify_own`)."""
    error: float
    """Measurement / estimate - 1."""
    below: bool
    """True if the measurement lies below its published interval."""
    above: bool
    setup: Hashable
    """The job as far as GPU memory depends on it. Runs that differ in their number of epochs have the same set-up."""


def classify_own(setup: Setup) -> str:
    """Return the class of a user's own run: the class of jobs, and how well its layers are known.

    Runs of traced layers are no evidence about compiled or approximated ones.
    """
    return f"{classify(setup)}, {find_flow_residual(setup, load_table()).id}"


def compute_residual(measurement: Measurement) -> OwnResidual | None:
    """Compare a measurement with its estimate. Return None if it is no evidence about a training step.

    This is so if the estimate peaks in another phase, or if cached blocks nearly fill the GPU. Resuming is no phase of
    a measured run, because a row holds no path of a checkpoint. The capacity limits what a run can reach, not what it
    asks for when it runs out of memory. Raise ValueError if the estimate is incomplete.
    """
    capacity = measurement.hardware.gpu_bytes
    limit = None if measurement.is_bound else capacity
    is_cut = measurement.counter != "allocated" and capacity is not None and measurement.size >= _NEARLY_FULL * capacity
    result = estimate(measurement.plan, measurement.architecture, measurement.hardware).drop_gpu("resume")
    peak = result.find_peak("gpu")
    if result.missing or peak is None or peak.gpu is None:
        raise ValueError(f"{', '.join(result.missing)} is missing")
    if is_cut or peak.name not in STEP_PHASES:
        return None
    budgets = [phase.gpu for phase in result.phases if phase.gpu is not None]
    expected = max(compute_figure(budget, measurement.counter, limit) for budget in budgets)
    intervals = [compute_interval(budget, measurement.counter, limit) for budget in budgets]
    low, high = max(interval[0] for interval in intervals), max(interval[1] for interval in intervals)
    is_below = not measurement.is_bound and measurement.size < low
    return OwnResidual(
        classify_own(peak.gpu.setup),
        measurement.size / expected - 1,
        is_below,
        measurement.size > high,
        (measurement.architecture, peak.gpu.sizes),
    )


def summarise(compared: Iterable[tuple[Measurement, OwnResidual]]) -> dict[str, OwnRuns]:
    """Return what the measurements of one framework say about each class of jobs; their order does not matter."""
    by_kind: dict[str, list[tuple[Measurement, OwnResidual]]] = {}
    for measurement, residual in compared:
        by_kind.setdefault(residual.kind, []).append((measurement, residual))
    return {kind: _summarise_kind(members) for kind, members in by_kind.items()}


def _summarise_kind(members: list[tuple[Measurement, OwnResidual]]) -> OwnRuns:
    residuals = [residual for _, residual in members]
    measured = [residual for measurement, residual in members if not measurement.is_bound]
    return OwnRuns(
        low=min([0.0, *(residual.error for residual in measured)]),
        high=max([0.0, *(residual.error for residual in residuals)]),
        setups=len({residual.setup for residual in measured}),
        below=len({residual.setup for residual in residuals if residual.below}),
        above=len({residual.setup for residual in residuals if residual.above}),
    )


def apply_own_runs(result: Estimate, evidence: Mapping[str, OwnRuns]) -> Estimate:
    """Return the estimate with the intervals of its training step moved by comparable own runs.

    A run is measured at its highest phase. So the expected peak of the step gets both edges, and no phase of the step
    keeps a higher upper bound than a narrowed peak. Expected values stay.
    """
    steps = [phase for phase in result.phases if phase.name in STEP_PHASES and phase.gpu is not None]
    peak = max(steps, key=lambda phase: _get_gpu(phase).expected, default=None)
    own_runs = None if peak is None else evidence.get(classify_own(_get_gpu(peak).setup))
    if peak is None or own_runs is None:
        return result
    expected = _get_gpu(peak).expected
    published_low = max(_get_gpu(phase).low for phase in steps) / expected - 1
    published_high = max(_get_gpu(phase).high for phase in steps) / expected - 1
    low, high = own_runs.move_low(published_low), own_runs.move_high(published_high)
    if (low, high) == (published_low, published_high):
        return result
    own_runs = own_runs._replace(
        narrowed=own_runs.setups if low > published_low or high < published_high else 0,
        widened=own_runs.below * (low < published_low) + own_runs.above * (high > published_high),
    )
    lower, upper = int(expected * (1 + low)), ceil(expected * (1 + high))
    phases = []
    for phase in result.phases:
        budget = phase.gpu
        if budget is not None and phase in steps:
            bottom, top = budget.low, budget.high
            if high < published_high:
                top = min(top, upper)
            if phase is peak:
                bottom = max(bottom, lower) if low > published_low else bottom
                bottom = min(bottom, lower) if low < published_low else bottom
                top = max(top, upper) if high > published_high else top
            phase = phase._replace(gpu=budget._replace(low=bottom, high=top, own_runs=own_runs))
        phases.append(phase)
    return result._replace(phases=tuple(phases))


def _get_gpu(phase: Phase) -> Budget:
    assert phase.gpu is not None
    return phase.gpu
