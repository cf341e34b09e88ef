"""The error table: estimates against published rows.

A published row is a measurement by others. Its counter (allocated, reserved, the driver's, or not stated) decides
which figure of the estimate it is compared with. Rows of one group share a set-up and are no independent samples, so an
error is the median within a group first, then over groups. Where a source leaves its unit open, a row has two readings,
and both are judged (`_readings`): its measurement is in the interval only if each of them does. Rows at 95 % of their
card or more, upper bounds of lengths and lower bounds of figures are evaluated and listed separately, not averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from cfglint_train.calibration import components, foreign, measurements
from cfglint_train.calibration.rows import Row, Unreadable
from cfglint_train.calibration.subject import Subject, UnmappedError, change_setup, subject
from cfglint_train.calibration.traced import plan_of
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.sizes import GIB
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.memory import comparable
from cfglint_train.memory.budget import VERDICTS, Budget, Phase, Verdict, verdict
from cfglint_train.memory.calibration import Residual, table
from cfglint_train.memory.estimate import higher, of_setup
from cfglint_train.memory.phase_budget import flow_residual
from cfglint_train.memory.plan_reader import MODEL
from cfglint_train.memory.reserve import of_lengths
from cfglint_train.memory.setup_builder import read as setup_of

# A figure that would be above its card if it were binary: no figure of that table is.
_NOT_BINARY: Final = "over_capacity_if_binary"
# Flags of rows whose figure, or the batch that their plan states, is a bound rather than a value.
_BOUNDS: Final = frozenset(("near_capacity", "seq_upper_bound_only", "mbs_unknown", "lower_bound_only", _NOT_BINARY))
PEAK: Final = "train_peak"
RUN: Final = "run_peak"
"""Of a run from its start, where a source reports that: its model is made, too."""
# The peak while the model is made, not while it trains.
_START: Final = "init"
# A row may hold anything; what it holds is not worth a crash.
_UNFIT: Final = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
# nvidia-smi's MiB, by the thousand.
_THOUSANDS: Final = 1000 / 1024


class Comparison(Frozen):
    """One row beside its estimate. Sizes are GiB."""

    id: str
    group: str
    grade: str
    scope: str
    """train_peak, init or component."""
    counter: str
    method: str
    parallel: str
    framework: str
    outcome: str
    """fits, oom, or empty."""
    bound: bool
    """The figure is a bound (the card's own size, an upper bound of the length)."""
    measured: float | None
    """In GiB; where the unit is open, the larger reading."""
    predicted: float | None
    low: float | None
    high: float | None
    verdict: str | None
    """fits, tight, probably does not fit, does not fit; None where the card is unknown."""
    phase: str
    """The phase and moment of the predicted peak."""
    skipped: str
    """Why the row could not be evaluated; empty where it was."""
    kind: str = ""
    """The class of comparable jobs whose residuals its interval has (`coefficients.json` names their rows)."""
    rests_on: tuple[str, ...] = ()
    """What the prediction and its interval rest on: coefficients (`coefficients.json`) and kinds of evidence rows."""
    smaller: float | None = None
    """The smaller reading of a figure whose unit is open."""

    @property
    def error(self) -> float | None:
        """Prediction over measurement, less one."""
        return self._error(self.measured)

    @property
    def other_error(self) -> float | None:
        """The same by the smaller reading; `error` where there is one reading."""
        return self._error(self.smaller or self.measured)

    def _error(self, measured: float | None) -> float | None:
        return None if measured is None or self.predicted is None else self.predicted / measured - 1

    @property
    def inside(self) -> bool | None:
        """Whether the measurement is in the interval, by each of its readings."""
        return self._inside(all)

    @property
    def by_one_unit(self) -> bool:
        """Whether one reading is in the interval and the other does not."""
        return self._inside(any) is True and self.inside is False

    def _inside(self, which: Callable[[Iterable[bool]], bool]) -> bool | None:
        if self.measured is None or self.low is None or self.high is None:
            return None
        low, high = self.low, self.high
        return which(low <= value <= high for value in (self.measured, self.smaller or self.measured))

    @property
    def width(self) -> float | None:
        """The interval's, as a share of the estimate."""
        if self.predicted is None or self.low is None or self.high is None:
            return None
        return (self.high - self.low) / self.predicted


def compare(rows: Iterable[Row | Unreadable], residuals: Mapping[str, Residual] | None = None) -> Iterator[Comparison]:
    """Every row beside its estimate, or with the reason why it has none. `residuals`: of comparable jobs, where they
    are not those of the table.
    """
    foreign.install()
    known = table().residuals if residuals is None else residuals
    rows = list(rows)
    decimal = _decimal(rows)
    for row in rows:
        if isinstance(row, Unreadable):
            yield _skipped(Row(f"line {row.line}", {}), row.reason)
            continue
        try:
            stated = measurements.as_published(row) if measurements.is_measured(row) else (row,)
        except _UNFIT as error:
            yield _not_understood(row, error)
            continue
        for one in stated:
            yield _one(one, known, decimal)


def _one(row: Row, known: Mapping[str, Residual], decimal: frozenset[str]) -> Comparison:
    try:
        found = _component(row) if row.text("peak_scope") == "component" else _compared(row, subject(row), known)
        larger, smaller = _readings(row, decimal)
        return found._replace(measured=larger, smaller=smaller)
    except UnmappedError as reason:
        return _skipped(row, str(reason))
    except _UNFIT as error:
        return _not_understood(row, error)


def _not_understood(row: Row, error: Exception) -> Comparison:
    return _skipped(row, f"not understood: {type(error).__name__}: {error}")


def _decimal(rows: Iterable[Row | Unreadable]) -> frozenset[str]:
    """The sources one of whose figures would be above its card if their unit were binary."""
    return frozenset(row.text("source") for row in rows if isinstance(row, Row) and _NOT_BINARY in row.words("flags"))


def _readings(row: Row, decimal: frozenset[str]) -> tuple[float | None, float | None]:
    """What a row's figure may mean: GiB, or 10^9 bytes where the source leaves it open. Where another figure of the
    same source rules GiB out, it is thousands of MiB or 10^9 bytes.
    """
    printed, smaller = row.size("measured_gib"), row.size("measured_gib_lo")
    if printed is None or smaller is None:
        return printed, None
    return printed * _THOUSANDS if row.text("source") in decimal else printed, smaller


def _outcome(row: Row) -> str:
    said = row.text("outcome").lower()
    return "oom" if said.startswith("oom") else "fits" if said.startswith(("fits", "training fits")) else ""


def _head(row: Row) -> dict[str, Any]:
    return {
        "id": row.id,
        "group": row.text("group") or row.id,
        "grade": row.text("quality") or "ungraded",
        "scope": row.text("peak_scope") or PEAK,
        "method": row.text("method"),
        "framework": row.text("framework"),
        "outcome": _outcome(row),
        "bound": bool(_BOUNDS.intersection(row.words("flags"))) or row.text("value_kind") == "lower_bound",
        "measured": row.size("measured_gib"),
    }


def _skipped(row: Row, reason: str) -> Comparison:
    empty: dict[str, Any] = {"predicted": None, "low": None, "high": None, "verdict": None, "phase": ""}
    return Comparison(**_head(row), **empty, counter="", parallel="", skipped=reason)


def _component(row: Row) -> Comparison:
    counter, low, expected, high = components.predicted(row)
    return Comparison(
        **_head(row), counter=counter, parallel="", predicted=expected / GIB, low=low / GIB, high=high / GIB,
        verdict=None, phase="", skipped="",
    )  # fmt: skip


def _compared(row: Row, found: Subject, residuals: Mapping[str, Residual]) -> Comparison:
    counted: tuple[str, ...] = ("forward", "backward", "optimizer step", "rollout")
    if "batch.eval_micro" in found.fields:
        counted = (*counted, "eval")
    if row.text("peak_scope") == _START:
        counted = ("load",)
    elif row.text("peak_scope") == RUN:
        counted = ("load", *counted)
    phases = [phase for phase in _phases(found, residuals) if phase.name in counted]
    phase = max(phases, key=lambda phase: _budget(phase).expected)
    counter = found.counter
    budgets = [_budget(phase) for phase in phases]
    capacity = found.capacity
    expected = max(figure(budget, counter, capacity) for budget in budgets)
    if counter.startswith("driver") and (capacity is None or expected < capacity):
        expected = min(expected + found.context, capacity or expected + found.context)
    low = max(interval(budget, counter, capacity)[0] for budget in budgets)
    high = max(interval(budget, counter, capacity)[1] for budget in budgets)
    setup = _budget(phase).subject
    kind, interval_of = comparable.name(setup), comparable.residual(setup, residuals).id
    return Comparison(
        **_head(row),
        counter=counter,
        parallel=found.fields["parallel.strategy"],
        predicted=expected / GIB,
        low=low / GIB,
        high=high / GIB,
        verdict=None if capacity is None else _worst([verdict(budget, capacity) for budget in budgets]),
        phase=f"{phase.name}: {phase.event}",
        skipped="",
        kind=kind,
        rests_on=_rests_on(_budget(phase), interval_of),
    )


def _rests_on(budget: Budget, interval: str) -> tuple[str, ...]:
    """The coefficients, residuals and kinds of rows behind a budget whose interval is that of `interval`'s jobs."""
    setup = budget.subject
    names = {name for component, _ in budget.sizes for name in component.evidence}
    names.update((interval, flow_residual(setup, table()).id), of_lengths(setup))
    return tuple(sorted(names))


def _worst(verdicts: list[Verdict]) -> Verdict:
    """A job fits where all its phases do."""
    return max(verdicts, key=VERDICTS.index)


def _budget(phase: Phase) -> Budget:
    assert phase.gpu is not None
    return phase.gpu


def _phases(found: Subject, residuals: Mapping[str, Residual]) -> list[Phase]:
    setup, reader = setup_of(plan_of(found.fields), found.architecture)
    if setup is None:
        raise UnmappedError(f"lacks {', '.join(reader.missing)}")
    if found.mode:
        setup = setup._replace(mode=setup.mode._replace(**found.mode))
    setup = change_setup(setup, found.setup)
    compared = comparable.residual(setup, residuals)
    result = of_setup(setup, reader, None, compared)
    if setup.ranks.pipeline > 1:
        first, _ = setup_of(plan_of(found.fields), found.architecture, ends=False)
        assert first is not None
        other = of_setup(change_setup(first._replace(mode=setup.mode), found.setup), reader, None, compared)
        result = higher(result, other)
    if result.missing and result.missing != (MODEL,):
        raise UnmappedError(f"lacks {', '.join(result.missing)}")
    phases = [phase for phase in result.phases if phase.gpu is not None]
    if result.missing and not _too_much(phases, found.capacity):
        raise UnmappedError(f"no formula for {found.architecture.model_type}")
    return phases


def _too_much(phases: list[Phase], capacity: int | None) -> bool:
    """Whether a phase that needs no formula of the model's layers is too much for the card already."""
    return capacity is not None and any(verdict(_budget(phase), capacity) == "does not fit" for phase in phases)


def figure(budget: Budget, counter: str, capacity: int | None) -> float:
    """The expected value of a counter, in bytes; what torch holds beyond what is
    allocated ends at the card: it is given back before an allocation fails.
    """
    if counter.startswith("allocated"):
        return budget.allocated
    total = budget.reserved + budget.cached
    if counter.startswith("driver"):
        total += budget.expected - budget.reserved
    return min(total, capacity) if capacity and budget.allocated <= capacity else total


def interval(budget: Budget, counter: str, capacity: int | None) -> tuple[float, float]:
    """The bounds of a counter, in bytes; of one that the source does not name those of the narrowest and the widest.

    Where the high one is beyond the card, torch may have given back whatever no tensor was in.
    """
    low, high = budget.bounds(counter)
    if capacity and high > capacity and not counter.startswith("allocated"):
        low -= budget.spans[-1]
    if counter.endswith("?"):
        low, high = budget.bounds("allocated")[0], max(high, budget.bounds("driver")[1])
    return low, min(high, capacity) if capacity and low <= capacity else high
