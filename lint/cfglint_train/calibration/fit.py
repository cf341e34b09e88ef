"""Residual intervals, fitted to the errors of published rows by kind of job.

A row counts if it states torch's allocated counter at the peak of training, in an unambiguous unit, and is graded exact
or good. Rows that state the reserved counter are left out, because the allocator has its own coefficients. The rows of
one set-up form a group. All groups have the same weight, however many rows they have.

A kind with at least three groups from at least two frameworks has its own interval: the range of the residuals without
the outer tenth on each side, widened by 1 / number of groups to allow for set-ups that were not measured. Other kinds
use the interval of the next wider kind (`comparable.list_classes`), because rows of one framework are weak evidence for
the jobs of another. A tenth is the largest tail that keeps nine of ten rows inside when each group is left out in turn
(`compare_leave_one_out`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cfglint_train.calibration.compare import PEAK, Comparison, compare
from cfglint_train.calibration.rows import Row, Unreadable
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.calibration import Residual
from cfglint_train.memory.comparable import ANY_CLASS, list_classes

_MIN_GROUPS: Final = 3
_MIN_FRAMEWORKS: Final = 2
_TAIL: Final = 0.1


def is_fit_evidence(row: Comparison) -> bool:
    """Return whether a row is used to fit intervals."""
    allocated = row.counter == "allocated" and row.scope == PEAK and row.grade in ("exact", "good")
    return allocated and row.error is not None and row.smaller is None and not row.bound


def group_by_kind(rows: Iterable[Comparison]) -> dict[str, list[Comparison]]:
    """Return the rows that intervals are fitted to, by kind of job.

    A row is listed under its own kind and every wider kind. A kind is kept if its rows cover at least three groups and
    two frameworks; the kind of all rows is always kept.
    """
    rows_by_kind: dict[str, list[Comparison]] = {}
    for row in filter(is_fit_evidence, rows):
        for kind in list_classes(row.kind):
            rows_by_kind.setdefault(kind, []).append(row)
    return {kind: members for kind, members in rows_by_kind.items() if kind == ANY_CLASS or _is_diverse(members)}


def _is_diverse(rows: Sequence[Comparison]) -> bool:
    """Return whether rows cover enough set-ups and enough frameworks."""
    return len({row.group for row in rows}) >= _MIN_GROUPS and len({row.framework for row in rows}) >= _MIN_FRAMEWORKS


def fit_residuals(rows: Iterable[Comparison]) -> dict[str, Residual]:
    """Return the interval of the residual (measurement / estimate - 1) for each kind of job."""
    residuals = {}
    for kind, members in sorted(group_by_kind(rows).items()):
        groups: dict[str, int] = {}
        for row in members:
            groups[row.group] = groups.get(row.group, 0) + 1
        weighted_errors = sorted((1 / (1 + (row.error or 0.0)) - 1, 1 / groups[row.group]) for row in members)
        widening = 1 + 1 / len(groups)
        low, high = (
            min(_find_edge(weighted_errors), 0.0) * widening,
            max(_find_edge(weighted_errors[::-1]), 0.0) * widening,
        )
        residuals[kind] = Residual(kind, round(low, 3), round(high, 3), tuple(sorted(row.id for row in members)))
    return residuals


def _find_edge(weighted_values: Sequence[tuple[float, float]]) -> float:
    """Return the first value at which the cumulative weight exceeds the tail's share.

    `weighted_values` are pairs of value and weight, ordered from the outside in.
    """
    total, cumulated = sum(weight for _, weight in weighted_values), 0.0
    for value, weight in weighted_values:
        cumulated += weight
        if cumulated > _TAIL * total:
            return value
    return weighted_values[-1][0]


def compare_leave_one_out(rows: Sequence[Row | Unreadable]) -> Iterator[Comparison]:
    """Yield every row with the interval of a fit that leaves out the row's own group."""
    compared = list(compare(rows))
    groups = dict.fromkeys(row.group for row in compared if is_fit_evidence(row))
    residuals_without = {group: fit_residuals(row for row in compared if row.group != group) for group in groups}
    for row, comparison in zip(rows, compared):
        if comparison.group in residuals_without:
            # Keep the original reading of the figure: it depends on other rows of the same source.
            refitted = next(compare([row], residuals_without[comparison.group]))
            comparison = refitted._replace(measured=comparison.measured, smaller=comparison.smaller)
        yield comparison
