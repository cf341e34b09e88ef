"""Report of compared rows: the error table as text, Markdown and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from cfglint_train.calibration.compare import PEAK, RUN, Comparison, compare
from cfglint_train.calibration.fit import compare_left_out, is_fit_evidence
from cfglint_train.calibration.rows import PUBLISHED_ROWS, read_measured, read_rows
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.memory.budget import VERDICTS
from cfglint_train.memory.comparable import PREFIX

VERSION: Final = 1


class Summary(Frozen):
    """Summary of the errors of a set of rows."""

    rows: int
    groups: int
    median: float
    """Median over the groups of each group's median absolute error."""
    p90: float
    """90th percentile of the absolute errors of the rows."""
    worst: float
    """Error that is farthest from zero, with its sign."""
    other_median: float
    """Median with the smaller reading wherever the unit is ambiguous; equal to `median` if no unit is ambiguous."""
    other_p90: float
    below: int
    """Number of rows whose prediction is below the measurement."""
    below_median: float
    """Median of the negative errors; 0 if there are none."""
    inside: int
    """Number of rows with every reading of the measurement in the interval."""
    by_one_unit: int
    """Number of rows with only one of two readings in the interval."""
    above: int
    """Number of rows with a reading above the interval."""
    width: float
    """Median width of the intervals as a fraction of the estimate."""


def compute_median(values: Sequence[float]) -> float:
    """Return the middle value, or the mean of the two middle values."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def compute_percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest of the values that is at least as large as this share of them."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1)]


def summarise_rows(rows: Iterable[Comparison]) -> Summary | None:
    """Return the errors of the rows that have a figure, or None if no row has one."""
    compared = [row for row in rows if row.error is not None]
    if not compared:
        return None
    errors = [row.error or 0.0 for row in compared]
    below = [error for error in errors if error < 0]
    return Summary(
        len(compared),
        len({row.group for row in compared}),
        *_compute_median_p90(compared, errors),
        max(errors, key=abs),
        *_compute_median_p90(compared, [row.other_error or 0.0 for row in compared]),
        len(below),
        compute_median(below) if below else 0.0,
        sum(row.is_inside is True for row in compared),
        sum(row.is_inside_by_one_unit for row in compared),
        sum(row.is_above for row in compared),
        compute_median([row.width or 0.0 for row in compared]),
    )


def _compute_median_p90(rows: Sequence[Comparison], errors: Sequence[float]) -> tuple[float, float]:
    """Return the median over groups and the 90th percentile over rows."""
    groups: dict[str, list[float]] = {}
    for row, error in zip(rows, errors):
        groups.setdefault(row.group, []).append(abs(error))
    return compute_median([compute_median(values) for values in groups.values()]), compute_percentile(
        [abs(error) for error in errors], 0.9
    )


MEASURED_GRADE: Final = "measured"
"""Grade of our harness's rows, which are reported separately from published ones."""


def is_single_gpu(row: Comparison) -> bool:
    """Return whether the job runs without parallelism."""
    return row.parallel in ("none", "")


class Outcomes(Frozen):
    """Counts of verdicts on rows that state whether the run fitted."""

    rows: int
    fits: int
    tight: int
    probably_does_not_fit: int
    does_not_fit: int


def count_outcomes(rows: Iterable[Comparison], outcome: str) -> Outcomes:
    """Count the verdicts on the rows with an outcome (`fits` or `oom`)."""
    verdicts = [row.verdict for row in rows if row.outcome == outcome and row.verdict is not None]
    return Outcomes(len(verdicts), *[verdicts.count(verdict) for verdict in VERDICTS])


_COUNTERS: Final = ("allocated", "reserved", "driver", "unsaid")
LOADED: Final = "while the model is made"
PARTS: Final = "components (losses, kernels)"
ALL: Final = "all of these"
FITTED: Final = "rows that intervals are fitted to"
BOUNDS: Final = "bounds (not averaged above)"


def summarise_sections(rows: list[Comparison]) -> Iterator[tuple[str, Summary]]:
    """Yield the lines of the error table as pairs of title and summary.

    Measured rows come first. Published rows follow by counter, grade and number of GPUs, then by method, parallelism,
    framework and kind of job.
    """
    measured_rows = [row for row in rows if row.grade == MEASURED_GRADE]
    for counter in _COUNTERS:
        for method in sorted({row.method for row in measured_rows}):
            section_summary = summarise_rows(
                row for row in measured_rows if (row.counter, row.method) == (counter, method)
            )
            if section_summary is not None:
                yield f"{MEASURED_GRADE}, {counter}, {method}", section_summary
    published_rows = [row for row in rows if row.error is not None and not row.bound and row.grade != MEASURED_GRADE]
    peak_rows = [row for row in published_rows if row.scope in (PEAK, RUN)]
    for counter in (*_COUNTERS, *[f"{name}?" for name in _COUNTERS]):
        for grade in ("exact", "good", "rough"):
            for name, is_single in (("one GPU", True), ("many GPUs", False)):
                chosen = [
                    row
                    for row in peak_rows
                    if (row.counter, row.grade, is_single_gpu(row)) == (counter, grade, is_single)
                ]
                section_summary = summarise_rows(chosen)
                if section_summary is not None:
                    yield f"{counter}, {grade}, {name}", section_summary
    totals = (
        (LOADED, [row for row in published_rows if row.scope == "init"]),
        (PARTS, [row for row in published_rows if row.scope == "component"]),
        (ALL, published_rows),
        (FITTED, [row for row in peak_rows if is_fit_evidence(row)]),
        (BOUNDS, [row for row in rows if row.bound and row.grade != MEASURED_GRADE]),
    )
    for name, chosen in totals:
        section_summary = summarise_rows(chosen)
        if section_summary is not None:
            yield name, section_summary
    reliable_rows = [row for row in peak_rows if row.grade in ("exact", "good")]
    for title, key in (("method", "method"), ("parallelism", "parallel"), ("framework", "framework"), ("kind", "kind")):
        for value in sorted({getattr(row, key) for row in reliable_rows}):
            section_summary = summarise_rows(row for row in reliable_rows if getattr(row, key) == value)
            if section_summary is not None:
                yield f"{title} {value}", section_summary


def build_report(rows: list[Comparison], peers: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the report as JSON values. Sizes are in GiB; errors are fractions."""
    fits, oom = count_outcomes(rows, "fits"), count_outcomes(rows, "oom")
    skipped: dict[str, int] = {}
    for row in rows:
        if row.skipped:
            skipped[row.skipped] = skipped.get(row.skipped, 0) + 1
    return {
        "version": VERSION,
        "rows": [_build_row(row) for row in rows],
        "totals": {
            "rows": len(rows),
            "evaluated": sum(not row.skipped for row in rows),
            "skipped": dict(sorted(skipped.items(), key=lambda item: -item[1])),
            "errors": {name: summary._asdict() for name, summary in summarise_sections(rows)},
            "groups": dict(_summarise_groups(rows)),
            "outcomes": {"fits": fits._asdict(), "oom": oom._asdict()},
            "false_fit_rate": oom.fits / oom.rows if oom.rows else None,
            "false_oom_rate": fits.does_not_fit / fits.rows if fits.rows else None,
        },
        "peers": dict(peers) if peers is not None else None,
    }


def _build_row(row: Comparison) -> dict[str, Any]:
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
        "inside": row.is_inside,
        "rests_on": list(row.rests_on),
    }


def _summarise_groups(rows: list[Comparison]) -> Iterator[tuple[str, dict[str, Any]]]:
    names = dict.fromkeys(row.group for row in rows if row.error is not None)
    for name in names:
        chosen = [row for row in rows if row.group == name and row.error is not None]
        group_summary = summarise_rows(chosen)
        assert group_summary is not None
        yield (
            name,
            {
                "rows": group_summary.rows,
                "median": round(group_summary.median, 4),
                "worst": round(group_summary.worst, 4),
            },
        )


def render_text(rows: list[Comparison], verbose: bool = False) -> Iterator[str]:
    """Yield the report as lines of text."""
    columns = (
        ("rows", 5),
        ("groups", 7),
        ("median", 16),
        ("p90", 16),
        ("worst", 9),
        ("below", 6),
        ("inside", 7),
        ("one unit", 9),
        ("above", 6),
        ("width", 7),
    )
    yield "estimates compared with measurements (error = estimate / measurement - 1; medians are taken over groups)"
    yield "intervals: only the margins `published-*` and `booked-*` are fitted without the row's framework"
    yield "in-sample: expected values, and the coefficients of the allocator and torch.compile"
    yield "two errors in a cell: the unit of the measurement is ambiguous"
    yield " " * 40 + "".join(f"{name:>{width}s}" for name, width in columns)
    for name, summary in summarise_sections(rows):
        yield (
            f"{name:<40s}{summary.rows:>5d}{summary.groups:>7d}"
            f"{_format_either(summary.median, summary.other_median):>16s}"
            f"{_format_either(summary.p90, summary.other_p90):>16s}{summary.worst:>9.1%}"
            f"{summary.below:>6d}{summary.inside:>7d}{summary.by_one_unit:>9d}{summary.above:>6d}{summary.width:>7.1%}"
        )
    below = [row for row in rows if row.error is not None and row.error < 0 and not row.bound]
    if below:
        errors = [row.error or 0.0 for row in below]
        yield ""
        yield f"under-estimates: {len(below)} rows, median {compute_median(errors):.1%}, worst {min(errors):.1%}"
    unseen = [row for row in rows if row.booking is not None and row.error is not None and not row.bound]
    unseen = [row for row in unseen if row.grade != MEASURED_GRADE]
    if unseen:
        above = sum(row.is_above for row in unseen)
        beyond = sum((row.measured or 0.0) > (row.booking or 0.0) for row in unseen)
        yield ""
        yield f"published figures above the interval: {above} of {len(unseen)}; above the memory to book: {beyond}"
    yield ""
    yield "outcomes (whether the run fitted its GPU)"
    for label in ("fits", "oom"):
        count = count_outcomes(rows, label)
        verdict_counts = ", ".join([f"{verdict} {number}" for verdict, number in zip(VERDICTS, count[1:])])
        yield f"{label:<5s}{count.rows:>5d} rows: {verdict_counts}"
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
            label = "   -   " if row.measured is None else f"{row.measured:7.2f}"
            error = "      " if row.error is None else f"{row.error:+6.1%}"
            yield (
                f"{row.id:<40.40s} {row.grade:<7s} {row.counter:<9s} measured {label} estimate {row.predicted:7.2f} "
                f"{error} ({row.low:.1f} to {row.high:.1f}) {row.outcome or '-':<4s} {row.verdict or '-'} [{row.phase}]"
            )


def _format_either(error: float, other_error: float) -> str:
    """Return the error as a percentage, or both errors if the percentages differ."""
    shown, smaller = f"{error:.1%}", f"{other_error:.1%}"
    return shown if shown == smaller else f"{shown} or {smaller}"


def render_markdown(rows: list[Comparison]) -> Iterator[str]:
    """Yield the Markdown tables of the documentation: overall errors, errors by kind of job, and measured rows."""
    tables = (
        ("counter, grade, place", "", (*_COUNTERS, LOADED, PARTS, ALL, FITTED, BOUNDS)),
        ("kind of job, exact and good rows", f"kind {PREFIX}", ()),
        ("our own rows: counter, method", f"{MEASURED_GRADE}, ", ()),
    )
    summaries = list(summarise_sections(rows))
    for title, prefix, names in tables:
        yield f"| {title} | rows (groups) | median | 90th percentile | in the interval | above it | its width |"
        yield "|---|---|---|---|---|---|---|"
        for name, summary in summaries:
            if name in names or name.split(",")[0].rstrip("?") in names or (prefix and name.startswith(prefix)):
                errors = (
                    f"{_format_either(summary.median, summary.other_median)} | "
                    f"{_format_either(summary.p90, summary.other_p90)}"
                )
                inside = f"{summary.inside}" + (f", {summary.by_one_unit} by one unit" if summary.by_one_unit else "")
                row_label = f"{name.removeprefix(prefix)} | {summary.rows} ({summary.groups})"
                yield f"| {row_label} | {errors} | {inside} | {summary.above} | {summary.width:.0%} |".replace(
                    "%", " %"
                )
        yield ""


def compare_published() -> list[Comparison]:
    """Return the published rows of the repository with their estimates.

    The `published-*` and `booked-*` residuals are fitted without the rows of a row's framework. All other coefficients
    are the ones that every estimate uses.
    """
    return list(compare_left_out(list(read_rows(PUBLISHED_ROWS))))


def compare_measured() -> list[Comparison]:
    """Return our harness's rows with their estimates.

    No `published-*` residual is fitted to them, but the allocator's coefficients (`apart`, `split`) are.
    """
    return list(compare(read_measured()))
