"""The error table of compared rows, as text, Markdown and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from cfglint_train.calibration.compare import PEAK, RUN, Comparison, compare
from cfglint_train.calibration.fit import counts, left_out
from cfglint_train.calibration.rows import PACKAGED, filed, read
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.memory.budget import VERDICTS
from cfglint_train.memory.comparable import PREFIX

VERSION: Final = 1


class Summary(Frozen):
    """Errors of some rows."""

    rows: int
    groups: int
    median: float
    """Over groups, of the medians of absolute errors within each."""
    p90: float
    """90th percentile of the absolute errors of rows."""
    worst: float
    """The error that is farthest from zero, signed."""
    other_median: float
    """The median by the smaller reading of figures whose unit is open; `median` where no unit is."""
    other_p90: float
    below: int
    """Rows whose prediction is below the measurement."""
    below_median: float
    """The median of those errors; 0 without one."""
    inside: int
    """Rows whose measurement is in the interval, by each reading."""
    by_one_unit: int
    """Rows of which one reading does."""
    width: float
    """The median width of the intervals, as a share of the estimate."""


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two in the middle."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1)]


def summary(rows: Iterable[Comparison]) -> Summary | None:
    """The errors of rows with figures; None without one."""
    found = [row for row in rows if row.error is not None]
    if not found:
        return None
    errors = [row.error or 0.0 for row in found]
    below = [error for error in errors if error < 0]
    return Summary(
        len(found),
        len({row.group for row in found}),
        *_middle(found, errors),
        max(errors, key=abs),
        *_middle(found, [row.other_error or 0.0 for row in found]),
        len(below),
        median(below) if below else 0.0,
        sum(row.inside is True for row in found),
        sum(row.by_one_unit for row in found),
        median([row.width or 0.0 for row in found]),
    )


def _middle(rows: Sequence[Comparison], errors: Sequence[float]) -> tuple[float, float]:
    """The median over groups, and the 90th percentile over rows."""
    groups: dict[str, list[float]] = {}
    for row, error in zip(rows, errors):
        groups.setdefault(row.group, []).append(abs(error))
    return median([median(values) for values in groups.values()]), percentile([abs(error) for error in errors], 0.9)


MEASURED: Final = "measured"
"""The grade of our harness's own rows, which stand apart from other people's."""


def one_gpu(row: Comparison) -> bool:
    """Whether the job has one GPU, or one that does not share anything."""
    return row.parallel in ("none", "")


class Outcomes(Frozen):
    """Verdicts on rows that say whether they fitted."""

    rows: int
    fits: int
    tight: int
    probably_does_not_fit: int
    does_not_fit: int


def outcomes(rows: Iterable[Comparison], seen: str) -> Outcomes:
    """Verdicts on the rows with one outcome (fits, oom)."""
    known = [row.verdict for row in rows if row.outcome == seen and row.verdict is not None]
    return Outcomes(len(known), *[known.count(verdict) for verdict in VERDICTS])


_COUNTERS: Final = ("allocated", "reserved", "driver", "unsaid")
LOADED: Final = "while the model is made"
PARTS: Final = "components (losses, kernels)"
ALL: Final = "all of these"
FITTED: Final = "rows that intervals are fitted to"
BOUNDS: Final = "bounds (not averaged above)"


def sections(rows: list[Comparison]) -> Iterator[tuple[str, Summary]]:
    """The lines of the table: by counter, grade and GPUs, then by method, parallelism and framework; and those of
    measured rows.
    """
    own = [row for row in rows if row.grade == MEASURED]
    for counter in _COUNTERS:
        for method in sorted({row.method for row in own}):
            found = summary(row for row in own if (row.counter, row.method) == (counter, method))
            if found is not None:
                yield f"{MEASURED}, {counter}, {method}", found
    values = [row for row in rows if row.error is not None and not row.bound and row.grade != MEASURED]
    runs = [row for row in values if row.scope in (PEAK, RUN)]
    for counter in (*_COUNTERS, *[f"{name}?" for name in _COUNTERS]):
        for grade in ("exact", "good", "rough"):
            for name, single in (("one GPU", True), ("many GPUs", False)):
                chosen = [row for row in runs if (row.counter, row.grade, one_gpu(row)) == (counter, grade, single)]
                found = summary(chosen)
                if found is not None:
                    yield f"{counter}, {grade}, {name}", found
    others = (
        (LOADED, [row for row in values if row.scope == "init"]),
        (PARTS, [row for row in values if row.scope == "component"]),
        (ALL, values),
        (FITTED, [row for row in runs if counts(row)]),
        (BOUNDS, [row for row in rows if row.bound and row.grade != MEASURED]),
    )
    for name, chosen in others:
        found = summary(chosen)
        if found is not None:
            yield name, found
    graded = [row for row in runs if row.grade in ("exact", "good")]
    for title, key in (("method", "method"), ("parallelism", "parallel"), ("framework", "framework"), ("kind", "kind")):
        for value in sorted({getattr(row, key) for row in graded}):
            found = summary(row for row in graded if getattr(row, key) == value)
            if found is not None:
                yield f"{title} {value}", found


def document(rows: list[Comparison], peers: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The report as plain values. Sizes are GiB, errors shares."""
    fits, oom = outcomes(rows, "fits"), outcomes(rows, "oom")
    skipped: dict[str, int] = {}
    for row in rows:
        if row.skipped:
            skipped[row.skipped] = skipped.get(row.skipped, 0) + 1
    return {
        "version": VERSION,
        "rows": [_row(row) for row in rows],
        "totals": {
            "rows": len(rows),
            "evaluated": sum(not row.skipped for row in rows),
            "skipped": dict(sorted(skipped.items(), key=lambda item: -item[1])),
            "errors": {name: found._asdict() for name, found in sections(rows)},
            "groups": dict(_groups(rows)),
            "outcomes": {"fits": fits._asdict(), "oom": oom._asdict()},
            "false_fit_rate": oom.fits / oom.rows if oom.rows else None,
            "false_oom_rate": fits.does_not_fit / fits.rows if fits.rows else None,
        },
        "peers": dict(peers) if peers is not None else None,
    }


def _row(row: Comparison) -> dict[str, Any]:
    fields = row._asdict()
    rounded = {
        name: round(value, 3) if isinstance(value, float) else value
        for name, value in fields.items()
        if name not in ("skipped", "rests_on")
    }
    error = row.error
    return {
        **rounded,
        "skipped": row.skipped or None,
        "error": None if error is None else round(error, 4),
        "inside": row.inside,
        "rests_on": list(row.rests_on),
    }


def _groups(rows: list[Comparison]) -> Iterator[tuple[str, dict[str, Any]]]:
    names = dict.fromkeys(row.group for row in rows if row.error is not None)
    for name in names:
        chosen = [row for row in rows if row.group == name and row.error is not None]
        found = summary(chosen)
        assert found is not None
        yield name, {"rows": found.rows, "median": round(found.median, 4), "worst": round(found.worst, 4)}


def lines(rows: list[Comparison], verbose: bool = False) -> Iterator[str]:
    """The report as text."""
    heads = (
        ("rows", 5),
        ("groups", 7),
        ("median", 16),
        ("p90", 16),
        ("worst", 9),
        ("below", 6),
        ("inside", 7),
        ("one unit", 9),
        ("width", 7),
    )
    yield "rows beside estimates (error = estimate / measurement - 1; medians within groups first)"
    yield "intervals of packaged rows: a row's own group is left out of `published-*` alone (what is allocated)"
    yield "in sample: expected values, coefficients of the allocator and of torch.compile"
    yield "where a unit is open, errors by either"
    yield " " * 40 + "".join(f"{name:>{width}s}" for name, width in heads)
    for name, found in sections(rows):
        yield (
            f"{name:<40s}{found.rows:>5d}{found.groups:>7d}{_either(found.median, found.other_median):>16s}"
            f"{_either(found.p90, found.other_p90):>16s}{found.worst:>9.1%}"
            f"{found.below:>6d}{found.inside:>7d}{found.by_one_unit:>9d}{found.width:>7.1%}"
        )
    below = [row for row in rows if row.error is not None and row.error < 0 and not row.bound]
    if below:
        errors = [row.error or 0.0 for row in below]
        yield ""
        yield f"under-estimates: {len(below)} rows, median {median(errors):.1%}, worst {min(errors):.1%}"
    yield ""
    yield "outcomes (whether a run fitted its GPU)"
    for seen in ("fits", "oom"):
        count = outcomes(rows, seen)
        told = ", ".join([f"{verdict} {number}" for verdict, number in zip(VERDICTS, count[1:])])
        yield f"{seen:<5s}{count.rows:>5d} rows: {told}"
    skipped: dict[str, list[str]] = {}
    for row in rows:
        if row.skipped:
            skipped.setdefault(row.skipped, []).append(row.id)
    if skipped:
        yield ""
        yield f"not evaluated: {sum(map(len, skipped.values()))} rows"
        for reason, names in sorted(skipped.items(), key=lambda item: -len(item[1])):
            yield f"{len(names):>5d}  {reason}"
            if verbose:
                yield from (f"       {name}" for name in names)
    if verbose:
        yield ""
        for row in sorted(rows, key=lambda row: (row.group, row.id)):
            if row.predicted is None or row.low is None or row.high is None:
                continue
            seen = "   -   " if row.measured is None else f"{row.measured:7.2f}"
            error = "      " if row.error is None else f"{row.error:+6.1%}"
            yield (
                f"{row.id:<40.40s} {row.grade:<7s} {row.counter:<9s} measured {seen} estimate {row.predicted:7.2f} "
                f"{error} ({row.low:.1f} to {row.high:.1f}) {row.outcome or '-':<4s} {row.verdict or '-'} [{row.phase}]"
            )


def _either(error: float, other: float) -> str:
    """An error, by both units where one is open."""
    shown, smaller = f"{error:.1%}", f"{other:.1%}"
    return shown if shown == smaller else f"{shown} or {smaller}"


def markdown(rows: list[Comparison]) -> Iterator[str]:
    """The first part of the table and the lines of each kind of job, as they are in the documentation."""
    tables = (
        ("counter, grade, place", "", (*_COUNTERS, LOADED, PARTS, ALL, FITTED, BOUNDS)),
        ("kind of job, exact and good rows", f"kind {PREFIX}", ()),
        ("our own rows: counter, method", f"{MEASURED}, ", ()),
    )
    found = list(sections(rows))
    for title, prefix, names in tables:
        yield f"| {title} | rows (groups) | median | 90th percentile | in the interval | its width |"
        yield "|---|---|---|---|---|---|"
        for name, line in found:
            if name in names or name.split(",")[0].rstrip("?") in names or (prefix and name.startswith(prefix)):
                errors = f"{_either(line.median, line.other_median)} | {_either(line.p90, line.other_p90)}"
                inside = f"{line.inside}" + (f", {line.by_one_unit} by one unit" if line.by_one_unit else "")
                rows_of_it = f"{name.removeprefix(prefix)} | {line.rows} ({line.groups})"
                yield f"| {rows_of_it} | {errors} | {inside} | {line.width:.0%} |".replace("%", " %")
        yield ""


def packaged() -> list[Comparison]:
    """The packaged rows beside their estimates. The `published-*` residuals are fitted without a row's own group, all
    other coefficients are those of every estimate.
    """
    return list(left_out(list(read(PACKAGED))))


def measured() -> list[Comparison]:
    """Our harness's rows beside their estimates. No `published-*` residual is fitted to them; the allocator's
    coefficients (`apart`, `split`) are.
    """
    return list(compare(filed()))
