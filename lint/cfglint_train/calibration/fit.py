"""Residual intervals, fitted to the errors of published rows by kind of job.

A row counts if it states torch's allocated counter at the peak of training, in an unambiguous unit, and is graded exact
or good, unless it is held out. Rows that state the reserved counter are left out, because the allocator has its own
coefficients. The rows of one set-up form a group. All frameworks have the same weight, and all groups of a framework
share its weight equally, however many rows they have.

A kind with at least three groups from at least two frameworks has its own interval: the range of the residuals without
the outer twentieth on each side, widened by 1 / number of frameworks to allow for frameworks that were not measured.
Other kinds use the interval of the next wider kind (`comparable.list_classes`), because rows of one framework are weak
evidence for the jobs of another. A twentieth is the largest tail that keeps 95 % of all rows below the upper bound when
each framework is left out in turn (`compare_left_out`).

Kinds are not divided further by family of frameworks or age of releases. The interval's rows are of five frameworks,
none of which uses transformers' Trainer. For the margins, classes of frameworks with and without the Trainer were tried
before the wider kinds: with a framework left out, 40 to 43 of 286 figures lay above their margin, instead of 27.

The margin for booking a GPU is fitted alike, but to all counters, since a user books a card and not a counter.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from cfglint_train.calibration.compare import PEAK, Comparison, compare
from cfglint_train.calibration.rows import Row, Unreadable
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.calibration import Residual
from cfglint_train.memory.comparable import list_booked_classes, list_classes

_MIN_GROUPS: Final = 3
_MIN_FRAMEWORKS: Final = 2
_TAIL: Final = 0.05


def is_fit_evidence(row: Comparison) -> bool:
    """Return whether a row is used to fit intervals."""
    allocated = row.counter == "allocated" and row.scope == PEAK and row.grade in ("exact", "good")
    return allocated and row.error is not None and row.smaller is None and not row.bound and not row.held_out


def is_booking_evidence(row: Comparison) -> bool:
    """Return whether a row is used to fit the margins for booking: any counter of the peak of training."""
    counted = row.scope == PEAK and row.grade in ("exact", "good") and row.error is not None
    return counted and not row.bound and not row.held_out


def group_by_kind(
    rows: Iterable[Comparison], list_kinds: Callable[[str], tuple[str, ...]] = list_classes
) -> dict[str, list[Comparison]]:
    """Return rows by kind of job.

    A row is listed under its own kind and every wider kind (`list_kinds`). A kind is kept if its rows cover at least
    three groups and two frameworks; the widest kind, of all rows, is always kept.
    """
    rows_by_kind: dict[str, list[Comparison]] = {}
    for row in rows:
        for kind in list_kinds(row.kind):
            rows_by_kind.setdefault(kind, []).append(row)
    return {kind: members for kind, members in rows_by_kind.items() if kind.endswith("-any") or _is_diverse(members)}


def _is_diverse(rows: Sequence[Comparison]) -> bool:
    """Return whether rows cover enough set-ups and enough frameworks."""
    return len({row.group for row in rows}) >= _MIN_GROUPS and len(set(map(get_framework, rows))) >= _MIN_FRAMEWORKS


def get_framework(row: Comparison) -> str:
    """Return the framework of a row without its version or variant: `ms-swift` for `ms-swift 2.x`."""
    name = re.match(r"[\w-]+", row.framework)
    return name[0].lower() if name else ""


def fit_residuals(rows: Iterable[Comparison]) -> dict[str, Residual]:
    """Return the interval of the residual (measurement / estimate - 1) for each kind of job, and its booking margin."""
    rows = list(rows)
    by_kind = {
        **group_by_kind(filter(is_fit_evidence, rows)),
        **group_by_kind(filter(is_booking_evidence, rows), list_booked_classes),
    }
    return {kind: _fit_residual(kind, members) for kind, members in sorted(by_kind.items())}


def _fit_residual(kind: str, rows: Sequence[Comparison]) -> Residual:
    rows_of_group = Counter(row.group for row in rows)
    frameworks = {row.group: get_framework(row) for row in rows}
    groups_of_framework = Counter(frameworks.values())
    weighted_errors = sorted(
        (
            1 / (1 + (row.error or 0.0)) - 1,
            1 / (rows_of_group[row.group] * groups_of_framework[frameworks[row.group]]),
        )
        for row in rows
    )
    widening = 1 + 1 / len(groups_of_framework)
    low, high = (
        min(_find_edge(weighted_errors), 0.0) * widening,
        max(_find_edge(weighted_errors[::-1]), 0.0) * widening,
    )
    rows_of_framework = Counter(map(get_framework, rows))
    return Residual(
        kind,
        round(low, 3),
        round(high, 3),
        tuple(sorted(row.id for row in rows)),
        tuple(sorted(rows_of_framework.items(), key=lambda pair: (-pair[1], pair[0]))),
    )


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


def compare_left_out(rows: Sequence[Row | Unreadable]) -> Iterator[Comparison]:
    """Yield every row with the interval of a fit that leaves out all rows of the row's framework."""
    compared = list(compare(rows))
    frameworks = dict.fromkeys(get_framework(row) for row in compared)
    residuals_without = {
        framework: fit_residuals(row for row in compared if get_framework(row) != framework) for framework in frameworks
    }
    for row, comparison in zip(rows, compared):
        if not comparison.skipped:
            # Keep the original reading of the figure: it depends on other rows of the same source.
            refitted = next(compare([row], residuals_without[get_framework(comparison)]))
            comparison = refitted._replace(measured=comparison.measured, smaller=comparison.smaller)
        yield comparison
