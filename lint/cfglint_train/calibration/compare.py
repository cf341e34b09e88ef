"""Comparison of memory estimates with published rows.

A published row is a measurement by others. Its counter (allocated, reserved, driver or unstated) selects the
estimated figure to compare the row with. The rows of a group share a set-up and are not independent samples, so
the median error is computed within each group first, then over the groups. If the source's unit is ambiguous, the
row has two readings (`_read_figures`), and both must lie in the interval. Some rows are evaluated, but listed
separately and not averaged: figures at 95 % or more of the GPU's memory, rows that state only an upper bound of the
sequence length, and rows that state only a lower bound of the figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from cfglint_train.calibration import components, foreign, measurements
from cfglint_train.calibration.rows import Row, Unreadable
from cfglint_train.calibration.subject import Subject, UnmappedError, build_subject, change_setup
from cfglint_train.calibration.traced import build_plan
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.sizes import GIB
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.memory import comparable
from cfglint_train.memory.booking import compute_booking
from cfglint_train.memory.budget import (
    VERDICTS,
    Budget,
    Phase,
    Verdict,
    compute_figure,
    compute_interval,
    compute_verdict,
)
from cfglint_train.memory.calibration import Residual, load_table
from cfglint_train.memory.estimate import estimate_setup, merge_stages
from cfglint_train.memory.phase_budget import find_flow_residual
from cfglint_train.memory.plan_reader import MODEL
from cfglint_train.memory.reserve import list_length_coefficients
from cfglint_train.memory.setup_builder import read_setup as setup_of

# Flag of a figure that would exceed its GPU's memory if its unit were GiB; hence no figure of that source is in GiB.
_NOT_BINARY_FLAG: Final = "over_capacity_if_binary"
# Flags of rows whose figure or planned batch is a bound, not a value.
_BOUND_FLAGS: Final = frozenset(
    ("near_capacity", "seq_upper_bound_only", "mbs_unknown", "lower_bound_only", _NOT_BINARY_FLAG)
)
PEAK: Final = "train_peak"
RUN: Final = "run_peak"
"""Scope of a peak that the source measures from the start of the run, including model construction."""
# Scope of the peak during model construction, before training.
_LOAD_PEAK: Final = "init"
# Errors that a malformed row can cause; they must not crash the report.
_ROW_ERRORS: Final = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
# 1,000 MiB in GiB: some sources divide the MiB that nvidia-smi prints by 1,000.
_THOUSAND_MIB: Final = 1000 / 1024


class Comparison(Frozen):
    """A row and its estimate. Sizes are in GiB."""

    id: str
    group: str
    grade: str
    scope: str
    """train_peak, run_peak, init or component."""
    counter: str
    method: str
    parallel: str
    framework: str
    outcome: str
    """Outcome of the run that the row states: fits, oom, or ""."""
    bound: bool
    """True if the figure or the planned batch is only a bound, such as the GPU's capacity or a maximum length."""
    measured: float | None
    """Measurement in GiB; the larger reading if the unit is ambiguous."""
    predicted: float | None
    low: float | None
    high: float | None
    verdict: str | None
    """Verdict of the estimate: fits, tight, probably does not fit, does not fit; None if the GPU is unknown."""
    phase: str
    """Phase and moment of the predicted peak."""
    skipped: str
    """Reason why the row could not be evaluated, or ""."""
    kind: str = ""
    """Class of comparable jobs that the row belongs to (see `comparable.classify`)."""
    rests_on: tuple[str, ...] = ()
    """Evidence for the prediction and its interval: coefficients (`coefficients.json`) and kinds of rows."""
    booking: float | None = None
    """Memory to book for the job, in GiB."""
    smaller: float | None = None
    """Smaller reading in GiB if the unit of the figure is ambiguous; otherwise None."""
    held_out: bool = False
    """True if the row was predicted before it was known, and nothing is fitted to it."""

    @property
    def error(self) -> float | None:
        """Prediction / measurement - 1; None if one of them is missing."""
        return self._compute_error(self.measured)

    @property
    def other_error(self) -> float | None:
        """Error relative to the smaller reading; equal to `error` if there is only one reading."""
        return self._compute_error(self.smaller or self.measured)

    def _compute_error(self, measured: float | None) -> float | None:
        return None if measured is None or self.predicted is None else self.predicted / measured - 1

    @property
    def is_inside(self) -> bool | None:
        """True if every reading of the measurement lies in the interval; None if it cannot be checked."""
        return self._check_inside(all)

    @property
    def is_inside_by_one_unit(self) -> bool:
        """True if exactly one of two readings lies in the interval."""
        return self._check_inside(any) is True and self.is_inside is False

    @property
    def is_above(self) -> bool:
        """True if a reading of the measurement lies above the interval."""
        return self.measured is not None and self.high is not None and self.measured > self.high

    @property
    def is_below(self) -> bool:
        """True if a reading of the measurement lies below the interval."""
        smaller = self.smaller or self.measured
        return smaller is not None and self.low is not None and smaller < self.low

    def _check_inside(self, combine: Callable[[Iterable[bool]], bool]) -> bool | None:
        if self.measured is None or self.low is None or self.high is None:
            return None
        low, high = self.low, self.high
        return combine(low <= value <= high for value in (self.measured, self.smaller or self.measured))

    @property
    def width(self) -> float | None:
        """Width of the interval as a fraction of the estimate."""
        if self.predicted is None or self.low is None or self.high is None:
            return None
        return (self.high - self.low) / self.predicted


def compare(rows: Iterable[Row | Unreadable], residuals: Mapping[str, Residual] | None = None) -> Iterator[Comparison]:
    """Yield every row with its estimate, or with the reason why it has no estimate.

    `residuals` overrides the residuals of the coefficient table. A measured row yields one comparison per counter.
    """
    foreign.install()
    used_residuals = load_table().residuals if residuals is None else residuals
    rows = list(rows)
    decimal = _find_decimal_sources(rows)
    for row in rows:
        if isinstance(row, Unreadable):
            yield _build_skipped(Row(f"line {row.line}", {}), row.reason)
            continue
        try:
            published = measurements.convert_to_published(row) if measurements.is_measured(row) else (row,)
        except _ROW_ERRORS as error:
            yield _build_failed(row, error)
            continue
        for published_row in published:
            yield _compare_row(published_row, used_residuals, decimal)


def _compare_row(row: Row, residuals: Mapping[str, Residual], decimal: frozenset[str]) -> Comparison:
    try:
        comparison = (
            _compare_component(row)
            if row.get_text("peak_scope") == "component"
            else _compare_subject(row, build_subject(row), residuals)
        )
        larger, smaller = _read_figures(row, decimal)
        return comparison._replace(measured=larger, smaller=smaller)
    except UnmappedError as reason:
        return _build_skipped(row, str(reason))
    except _ROW_ERRORS as error:
        return _build_failed(row, error)


def _build_failed(row: Row, error: Exception) -> Comparison:
    return _build_skipped(row, f"not understood: {type(error).__name__}: {error}")


def _find_decimal_sources(rows: Iterable[Row | Unreadable]) -> frozenset[str]:
    """Return the sources with at least one figure that would exceed its GPU's memory if the unit were binary."""
    return frozenset(
        row.get_text("source") for row in rows if isinstance(row, Row) and _NOT_BINARY_FLAG in row.get_words("flags")
    )


def _read_figures(row: Row, decimal: frozenset[str]) -> tuple[float | None, float | None]:
    """Return the larger and the smaller reading of a row's figure, in GiB.

    The smaller reading is None unless the unit is ambiguous. The unit is then GiB or 10^9 bytes, or, if another
    figure of the same source rules out GiB, 1,000 MiB or 10^9 bytes.
    """
    printed, smaller = row.get_size("measured_gib"), row.get_size("measured_gib_lo")
    if printed is None or smaller is None:
        return printed, None
    return printed * _THOUSAND_MIB if row.get_text("source") in decimal else printed, smaller


def _parse_outcome(row: Row) -> str:
    outcome = row.get_text("outcome").lower()
    return "oom" if outcome.startswith("oom") else "fits" if outcome.startswith(("fits", "training fits")) else ""


def _build_head(row: Row) -> dict[str, Any]:
    return {
        "id": row.id,
        "group": row.get_text("group") or row.id,
        "grade": row.get_text("quality") or "ungraded",
        "scope": row.get_text("peak_scope") or PEAK,
        "method": row.get_text("method"),
        "framework": row.get_text("framework"),
        "outcome": _parse_outcome(row),
        "bound": bool(_BOUND_FLAGS.intersection(row.get_words("flags"))) or row.get_text("value_kind") == "lower_bound",
        "measured": row.get_size("measured_gib"),
        "held_out": row.get_text("split") == "holdout",
    }


def _build_skipped(row: Row, reason: str) -> Comparison:
    empty: dict[str, Any] = {"predicted": None, "low": None, "high": None, "verdict": None, "phase": ""}
    return Comparison(**_build_head(row), **empty, counter="", parallel="", skipped=reason)


def _compare_component(row: Row) -> Comparison:
    counter, low, expected, high = components.estimate_component(row)
    return Comparison(
        **_build_head(row), counter=counter, parallel="", predicted=expected / GIB, low=low / GIB, high=high / GIB,
        verdict=None, phase="", skipped="",
    )  # fmt: skip


def _compare_subject(row: Row, case: Subject, residuals: Mapping[str, Residual]) -> Comparison:
    phase_names: tuple[str, ...] = ("forward", "backward", "optimizer step", "rollout")
    if "batch.eval_micro" in case.fields:
        phase_names = (*phase_names, "eval")
    if row.get_text("peak_scope") == _LOAD_PEAK:
        phase_names = ("load",)
    elif row.get_text("peak_scope") == RUN:
        phase_names = ("load", *phase_names)
    phases = [phase for phase in _estimate_phases(case, residuals) if phase.name in phase_names]
    phase = max(phases, key=lambda phase: _get_budget(phase).expected)
    counter = case.counter
    budgets = [_get_budget(phase) for phase in phases]
    capacity = case.capacity
    expected = max(compute_figure(budget, counter, capacity) for budget in budgets)
    if counter.startswith("driver") and (capacity is None or expected < capacity):
        expected = min(expected + case.context, capacity or expected + case.context)
    low = max(compute_interval(budget, counter, capacity)[0] for budget in budgets)
    high = max(compute_interval(budget, counter, capacity)[1] for budget in budgets)
    setup = _get_budget(phase).setup
    kind, interval_of = comparable.classify(setup), comparable.find_residual(setup, residuals).id
    return Comparison(
        **_build_head(row),
        counter=counter,
        parallel=case.fields["parallel.strategy"],
        predicted=expected / GIB,
        low=low / GIB,
        high=high / GIB,
        verdict=None
        if capacity is None
        else _find_worst_verdict([compute_verdict(budget, capacity) for budget in budgets]),
        phase=f"{phase.name}: {phase.event}",
        skipped="",
        kind=kind,
        booking=compute_booking(setup, expected, high, residuals)[0] / GIB,
        rests_on=_collect_evidence(_get_budget(phase), interval_of),
    )


def _collect_evidence(budget: Budget, interval: str) -> tuple[str, ...]:
    """Return the coefficients, residuals and kinds of rows behind a budget, sorted.

    `interval` is the id of the residual from which the interval is computed.
    """
    setup = budget.setup
    names = {name for component, _ in budget.sizes for name in component.evidence}
    names.update((interval, find_flow_residual(setup, load_table()).id), list_length_coefficients(setup))
    return tuple(sorted(names))


def _find_worst_verdict(verdicts: list[Verdict]) -> Verdict:
    """Return the worst verdict, because a job fits only if all its phases fit."""
    return max(verdicts, key=VERDICTS.index)


def _get_budget(phase: Phase) -> Budget:
    assert phase.gpu is not None
    return phase.gpu


def _estimate_phases(case: Subject, residuals: Mapping[str, Residual]) -> list[Phase]:
    setup, reader = setup_of(build_plan(case.fields), case.architecture)
    if setup is None:
        raise UnmappedError(f"lacks {', '.join(reader.missing)}")
    if case.mode:
        setup = setup._replace(mode=setup.mode._replace(**case.mode))
    setup = change_setup(setup, case.setup)
    residual = comparable.find_residual(setup, residuals)
    result = estimate_setup(setup, reader, None, residual)
    if setup.ranks.pipeline > 1:
        first_stage, _ = setup_of(build_plan(case.fields), case.architecture, last_stage=False)
        assert first_stage is not None
        first_result = estimate_setup(
            change_setup(first_stage._replace(mode=setup.mode), case.setup), reader, None, residual
        )
        result = merge_stages(result, first_result)
    if result.missing and result.missing != (MODEL,):
        raise UnmappedError(f"lacks {', '.join(result.missing)}")
    phases = [phase for phase in result.phases if phase.gpu is not None]
    if result.missing and not _is_over_capacity(phases, case.capacity):
        raise UnmappedError(f"no formula for {case.architecture.model_type}")
    return phases


def _is_over_capacity(phases: list[Phase], capacity: int | None) -> bool:
    """Return whether a phase exceeds the GPU's memory even though its estimate omits the model's layers."""
    return capacity is not None and any(
        compute_verdict(_get_budget(phase), capacity) == "does not fit" for phase in phases
    )
