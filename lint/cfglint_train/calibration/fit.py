"""How far published rows were from their estimates, by kind of job: what intervals are made of.

Rows that state torch's allocated counter at the peak of training, in a unit that is clear, and are graded exact or
good count; the reserved counter has the allocator's own coefficients. A group is one set-up and weighs as much as any
other, however many rows it has. A kind with three groups and more, of two frameworks and more, has an interval of its
own: without the outermost tenths, and wider by one part in the number of groups, because the next set-up is none of
them. Others have that of the wider kind (`comparable.kinds`): rows of one framework say little of another's jobs. The
tenths are the most that leave nine rows of ten inside where each group is left out in turn (`left_out`).
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
    """Whether intervals are fitted to a row."""
    allocated = row.counter == "allocated" and row.scope == PEAK and row.grade in ("exact", "good")
    return allocated and row.error is not None and row.smaller is None and not row.bound


def group_by_kind(rows: Iterable[Comparison]) -> dict[str, list[Comparison]]:
    """The rows that count, by kind of job, wider kinds included: of several set-ups, and all of them."""
    rows_by_kind: dict[str, list[Comparison]] = {}
    for row in filter(is_fit_evidence, rows):
        for kind in list_classes(row.kind):
            rows_by_kind.setdefault(kind, []).append(row)
    return {kind: members for kind, members in rows_by_kind.items() if kind == ANY_CLASS or _is_diverse(members)}


def _is_diverse(rows: Sequence[Comparison]) -> bool:
    """Whether rows are of enough set-ups, and not of one framework's code alone."""
    return len({row.group for row in rows}) >= _MIN_GROUPS and len({row.framework for row in rows}) >= _MIN_FRAMEWORKS


def fit_residuals(rows: Iterable[Comparison]) -> dict[str, Residual]:
    """The residuals of each kind: truth / estimate - 1."""
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
    """The first value of which more than the tail lies before or at it. `seen`: values with their weights, in order."""
    total, cumulated = sum(weight for _, weight in weighted_values), 0.0
    for value, weight in weighted_values:
        cumulated += weight
        if cumulated > _TAIL * total:
            return value
    return weighted_values[-1][0]


def compare_leave_one_out(rows: Sequence[Row | Unreadable]) -> Iterator[Comparison]:
    """Every row with the interval that it has where its own group is left out of the fit."""
    compared = list(compare(rows))
    groups = dict.fromkeys(row.group for row in compared if is_fit_evidence(row))
    residuals_without = {group: fit_residuals(row for row in compared if row.group != group) for group in groups}
    for row, comparison in zip(rows, compared):
        if comparison.group in residuals_without:  # what a figure may mean, other rows of its source say
            refitted = next(compare([row], residuals_without[comparison.group]))
            comparison = refitted._replace(measured=comparison.measured, smaller=comparison.smaller)
        yield comparison
