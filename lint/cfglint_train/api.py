"""Python API: lint, fix, fit and estimate files or in-memory sources.

    from cfglint_train import api

    checked = api.lint("configs", api.Options(gpu="H100", nodes=8))
    for finding in checked.findings:
        print(finding.path, finding.line, finding.code, finding.message)

The command line calls these functions and adds only argument parsing, colors and exit codes. The API never executes or
imports the files that it reads, and downloads nothing. Files are written only by
`accept`, and by `fix`, `fit` and `ignore` with `write=True`.

Stable: `Options`, the functions, the exceptions, and the records in `findings`, `files`, `errors`, `skipped`, `runs`,
`applied` and `refused` (the JSON reports print the same records). The `raw` attributes are internal objects of the
engine, for reports; they may change in any release.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property, partial

from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, ClassVar
from cfglint_train.request import DEFAULTS, OptionError, Options, PathLike, Request, Text, load_fixed_settings
from cfglint_train.request import build_request as requested
from cfglint_train.settings.cluster_facts import FactError
from cfglint_train.settings.error import SettingsError
from cfglint_train.settings.settings import Settings

if TYPE_CHECKING:
    from typing import Self

    from cfglint_train.fitting.across import HardwareRow, RunAcross
    from cfglint_train.fitting.alternatives import Alternatives, Goal, MaximizedSize
    from cfglint_train.fixing.loop import Applied, FixOutcome, Refused
    from cfglint_train.hardware.offers import Offer
    from cfglint_train.judging.result import CheckedFile, Result, RunCounts, UnsupportedFiles
    from cfglint_train.records import (
        Budget,
        Comparison,
        Component,
        Edit,
        Failure,
        FieldChange,
        Finding,
        Fix,
        Ground,
        Holding,
        Model,
        Moment,
        NotChecked,
        OwnRuns,
        Peak,
        Phase,
        RelatedPlace,
        ReleaseChange,
        Room,
        RunChange,
        RunCost,
        RunEstimate,
        RunFacts,
        RunFit,
        Rung,
        Setting,
        SettingChange,
        Solution,
    )
    from cfglint_train.repository.documents import SkippedFile
    from cfglint_train.runs.run import Run

__all__ = [
    "DEFAULTS", "AcrossResult", "Applied", "Budget", "CheckedFile", "Comparison", "Component", "Edit",
    "EstimateResult", "FactError", "Failure", "FieldChange", "Finding", "FitResult", "Fix", "FixResult", "Ground",
    "HardwareRow", "Holding", "LintResult", "Model", "Moment", "NotChecked", "Offer", "OptionError", "Options",
    "OwnRuns", "Peak", "Phase", "Refused", "RelatedPlace", "ReleaseChange", "Room", "RunAcross", "RunChange",
    "RunCost", "RunCounts", "RunEstimate", "RunFacts", "RunFit", "Rung", "Setting", "SettingChange", "SettingsError",
    "SkippedFile", "Solution", "UnsupportedFiles", "UsageError", "accept", "compare", "estimate", "fit", "fit_across",
    "fix", "ignore", "lint", "rules", "settings",
]  # fmt: skip


_HOMES = {
    "Applied": "fixing.loop", "CheckedFile": "judging.result", "HardwareRow": "fitting.across",
    "Offer": "hardware.offers", "Refused": "fixing.loop", "RunAcross": "fitting.across",
    "RunCounts": "judging.result", "SkippedFile": "repository.documents", "UnsupportedFiles": "judging.result",
}  # fmt: skip
"""Modules of the records that are not in `records`; imported lazily because printing a text report needs none."""


def __getattr__(name: str) -> Any:
    """Return the record class `name`; its module is imported only when it is needed."""
    if name in __all__:
        from cfglint_train.foundation.modules import import_module

        return getattr(import_module(f"cfglint_train.{_HOMES.get(name, 'records')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Record:
    """Base class of the results: equality, `repr` and `replace` use the fields that `_fields` lists."""

    _fields: ClassVar[tuple[str, ...]]

    def replace(self, **changes: Any) -> Self:
        """Return a copy with the named fields replaced and the same `raw`. Raise TypeError for unknown names."""
        unknown = [name for name in changes if name not in self._fields]
        if unknown:
            names = ", ".join(self._fields)
            raise TypeError(f"{type(self).__name__} has no field {', '.join(unknown)}; its fields are {names}")
        from copy import copy

        result = copy(self)
        result.__dict__.update(changes)
        return result

    def __eq__(self, other: object) -> bool:
        """Return whether all fields are equal."""
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self._fields)

    __hash__ = None  # type: ignore[assignment]  # some fields are mappings

    def __repr__(self) -> str:
        """Return the class name with the size of each field, because the values would fill a screen."""
        fields = ((name, getattr(self, name)) for name in self._fields)
        sizes = (f"{name}={len(value) if hasattr(value, '__len__') else value!r}" for name, value in fields)
        return f"{type(self).__name__}({', '.join(sizes)})"


class _InputResult(_Record):
    """The result of reading files. Records are built on first access."""

    def __init__(self, raw: Result) -> None:
        """Wrap a result of the engine."""
        self.raw = raw
        """Internal result of the engine, which `cfglint_train.reports` renders; `raw.runs` holds the runs."""

    @cached_property
    def errors(self) -> tuple[Failure, ...]:
        """Problems that prevented a check: unreadable files, invalid facts, crashed rules."""
        from cfglint_train.reports import json

        return tuple(json.list_failures(self.raw))

    @cached_property
    def skipped(self) -> tuple[SkippedFile, ...]:
        """Files that are not configurations, each with the reason."""
        from cfglint_train.reports import json

        return tuple(json.list_skipped(self.raw))


class LintResult(_InputResult):
    """The result of `lint`. Credentials are masked in every string of the records."""

    _fields = ("findings", "files", "not_checked", "unsupported", "errors", "skipped")

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of the rules, ordered by path, position and code; one with the same cause lists its places."""
        from cfglint_train.reports import json
        from cfglint_train.reports.folding import fold_places

        return tuple(json.list_findings(fold_places(self.raw)))

    @cached_property
    def files(self) -> tuple[CheckedFile, ...]:
        """The configurations that were checked."""
        from cfglint_train.reports import json

        return tuple(json.list_files(self.raw))

    @cached_property
    def not_checked(self) -> tuple[NotChecked, ...]:
        """The runs whose memory could not be checked, each with the missing setting and the remedy."""
        from cfglint_train.reports import json

        return tuple(json.list_not_checked(self.raw))

    @cached_property
    def runs(self) -> RunCounts:
        """The numbers of runs that were checked, checked without their memory, and found but not read."""
        return self.raw.run_counts

    @cached_property
    def unsupported(self) -> tuple[UnsupportedFiles, ...]:
        """Files that appear to belong to unsupported tools, grouped by tool."""
        from cfglint_train.reports import json

        return tuple(json.list_unsupported(self.raw))


class FixResult(_Record):
    """The fixes that were applied or would be applied."""

    _fields = ("applied", "refused", "sources", "texts", "written", "lint")

    def __init__(self, raw: FixOutcome, written: bool, source_texts: Mapping[str, bytes]) -> None:
        """Wrap a result of the fixer; `source_texts` holds the sources that the caller passed, by path."""
        self._source_texts = source_texts
        self.raw = raw
        """Internal result of the fixer, which `cfglint_train.reports.diff` renders."""
        self.written = written
        """True if the new contents were written to disk, except for the files that `lint.errors` lists."""

    @cached_property
    def sources(self) -> Mapping[str, bytes]:
        """The new contents of all changed files, by path."""
        return self.raw.sources

    @cached_property
    def texts(self) -> Mapping[str, bytes]:
        """The sources that the caller passed, after fixing, by path; unchanged sources are included."""
        return {path: self.raw.sources.get(path, text) for path, text in self._source_texts.items()}

    @cached_property
    def applied(self) -> tuple[Applied, ...]:
        """The applied fixes, in order."""
        from cfglint_train.reports import json

        return tuple(json.list_applied(self.raw))

    @cached_property
    def refused(self) -> tuple[Refused, ...]:
        """The fixes that could not be applied, each with the reason."""
        from cfglint_train.reports import json

        return tuple(json.list_refused(self.raw))

    @cached_property
    def lint(self) -> LintResult:
        """The lint result of the fixed files."""
        from cfglint_train.judging.remedies import attach_edits

        return LintResult(attach_edits(self.raw.result))

    def diff(self) -> tuple[str, ...]:
        """Return unified diffs of all changed files as lines; credentials and control characters are masked."""
        from cfglint_train.reports import diff

        return diff.build_diff(self.raw).lines


class EstimateResult(_InputResult):
    """The memory budgets of the runs."""

    _fields = ("runs", "errors", "skipped")

    @cached_property
    def runs(self) -> tuple[RunEstimate, ...]:
        """The estimates, one per run."""
        from cfglint_train.reports import estimate

        return tuple(map(estimate.build_estimate, self.raw.runs))


class FitResult(_InputResult):
    """The smallest changes that make the runs fit."""

    _fields = ("runs", "needs_change", "hopeless", "sources", "refused", "errors", "skipped")

    def __init__(self, raw: Result, alternatives: tuple[Alternatives, ...], fixed: FixOutcome | None) -> None:
        """Wrap the alternatives of all runs; `fixed` is None if the changes were not requested."""
        self.raw = raw
        """Internal result of reading the files."""
        self.ladders = alternatives
        """Internal objects with the alternatives of each run, which `cfglint_train.reports.fit` renders."""
        self.fixed = fixed
        """The files after the changes; None if the changes were not requested."""

    @cached_property
    def runs(self) -> tuple[RunFit, ...]:
        """The fit records, one per run."""
        from cfglint_train.reports import fit

        return tuple(map(fit.build_fit, self.ladders))

    @cached_property
    def needs_change(self) -> bool:
        """True if at least one run is not expected to fit without changes."""
        return any(run.lacks_room for run in self.ladders)

    @cached_property
    def hopeless(self) -> tuple[str, ...]:
        """The paths of the runs that do not fit with any change."""
        return tuple(alternatives.run.main.document.path for alternatives in self.ladders if alternatives.is_hopeless)

    @cached_property
    def sources(self) -> Mapping[str, bytes]:
        """The new contents of all changed files, by path."""
        return {} if self.fixed is None else self.fixed.sources

    @cached_property
    def refused(self) -> tuple[Refused, ...]:
        """The changes that could not be made, each with the reason."""
        from cfglint_train.reports import json

        return () if self.fixed is None else tuple(json.list_refused(self.fixed))

    def diff(self) -> tuple[str, ...]:
        """Return unified diffs of all changed files as lines; credentials and control characters are masked."""
        from cfglint_train.reports import diff

        return () if self.fixed is None else diff.build_diff(self.fixed).lines


class AcrossResult(_InputResult):
    """Runs on several kinds of hardware."""

    _fields = ("runs", "errors", "skipped")

    def __init__(self, raw: Result, tables: tuple[RunAcross, ...], results: tuple[FitResult, ...]) -> None:
        """Wrap the rows of all runs, and the results of `fit` on each kind of hardware."""
        self.raw = raw
        """Internal result of reading the files."""
        self.tables = tables
        """Internal rows of each run, which `cfglint_train.reports.across` renders."""
        self.results = results

    @cached_property
    def runs(self) -> tuple[RunAcross, ...]:
        """The rows of each run."""
        from cfglint_train.reports import across

        return across.build_runs(self.tables)

    @cached_property
    def fits(self) -> bool:
        """True if every run fits on some of the hardware as it is."""
        return all(any(row.headroom is not None and not row.change for row in run.hardware) for run in self.tables)


def lint(
    paths: PathLike | Iterable[PathLike] | None = None,
    options: Options = DEFAULTS,
    sources: Mapping[str, Text] | None = None,
    *,
    digest: Callable[[Sequence[Run]], Sequence[Any]] | None = None,
) -> LintResult:
    """Check files and folders; write nothing.

    `sources` maps paths, which need not exist, to file contents, which take precedence over the files on disk. Other
    files can refer to these paths. Without `paths`, check the sources; without both, the working directory. Raise
    UsageError (OptionError, FactError, SettingsError) for invalid options or settings; problems with the files are part
    of the result.

    `digest` is for reports: it is called on the runs of a process, in the process that built them. Its results are in
    `raw.digests`.
    """
    request = requested(paths, options, sources)
    return lint_request(request._replace(options=request.options._replace(jobs=options.jobs, digest=digest)))


def lint_request(request: Request) -> LintResult:
    """Check the files of a request that is already translated."""
    from cfglint_train.judging import dispatch

    result = dispatch.lint(request.workspace, request.files, request.options)
    if any(finding.intent is not None for finding in result.findings):
        from cfglint_train.judging.remedies import attach_edits

        result = attach_edits(result)
    return LintResult(result)


def accept(
    paths: PathLike | Iterable[PathLike] | None = None, options: Options = DEFAULTS, *, baseline: PathLike
) -> LintResult:
    """Write the baseline and return the lint result with the findings that the baseline does not accept.

    A new baseline accepts all findings. An existing baseline loses the findings that no longer occur and follows
    renamed files, but no finding is added to it. Raise UsageError as `lint` does, and OSError if the file cannot be
    written.
    """
    from cfglint_train.foundation import atomic
    from cfglint_train.judging.baseline import accept_all, render_baseline

    path = os.fspath(baseline)
    new = not os.path.lexists(path)
    result = lint(paths, options.replace(baseline=None if new else path)).raw
    split = accept_all(result.findings, path, result.secrets) if new else result.accepted
    assert split is not None
    if new or split.missing or split.has_renames:
        atomic.write_output(path, render_baseline(split.entries))
    return LintResult(result._replace(findings=split.new, accepted=split))


def fix(
    paths: PathLike | Iterable[PathLike] | None = None,
    options: Options = DEFAULTS,
    sources: Mapping[str, Text] | None = None,
    *,
    unsafe: bool | None = None,
    write: bool = False,
    within: Collection[str] | None = None,
) -> FixResult:
    """Apply fixes in passes until none is left; change files on disk only with `write`.

    `unsafe`: also apply unsafe fixes; None uses the setting of the working directory. `within`: apply only the fixes of
    findings in these files, as their `path` spells them; the other files only decide what is safe.
    `sources` and `paths` are as for `lint`; with sources, no other file changes, and nothing is written. Files that one
    fix changes together are written together or not at all. Raise UsageError as `lint` does.
    """
    from cfglint_train.fixing.loop import fix_all
    from cfglint_train.fixing.write import write_fixes

    request = requested(paths, options, sources)
    if unsafe is None:
        unsafe = settings(options).apply_unsafe
    fixed = fix_all(request.files, request.options, unsafe, request.sources, within)
    written = write and not request.sources
    if written:
        fixed = write_fixes(fixed, request.files, request.options)
    return FixResult(fixed, written, request.sources)


def ignore(
    paths: PathLike | Iterable[PathLike] | None = None,
    options: Options = DEFAULTS,
    sources: Mapping[str, Text] | None = None,
    *,
    only: Finding | None = None,
    write: bool = False,
) -> FixResult:
    """Add a comment that silences each finding, or `only` one; change files on disk only with `write`.

    `applied` lists the silenced findings, `refused` the findings that no comment can silence. `sources` and `paths` are
    as for `lint`; with sources, nothing is written. Raise UsageError as `lint` does.
    """
    from cfglint_train.fixing.ignoring import add_ignores
    from cfglint_train.fixing.write import write_fixes
    from cfglint_train.judging import dispatch

    request = requested(paths, options, sources)

    def is_chosen(finding: Any) -> bool:
        return only is None or (
            (finding.code, finding.path, finding.start) == (only.code, only.path, (only.line, only.column))
        )

    fixed = add_ignores(request.files, request.options, request.sources, is_chosen)
    written = write and not request.sources
    if written:
        fixed = write_fixes(fixed, request.files, request.options)
        if not fixed.sources.keys() <= set(request.files):  # requirement files are read from disk only
            fixed = fixed._replace(
                result=dispatch.lint(dispatch.open_workspace(request.options), request.files, request.options)
            )
    return FixResult(fixed, written, request.sources)


def estimate(
    paths: PathLike | Iterable[PathLike] | None = None,
    options: Options = DEFAULTS,
    sources: Mapping[str, Text] | None = None,
) -> EstimateResult:
    """Estimate the memory budget of every run in files and folders.

    Arguments and exceptions are those of `lint`.
    """
    from cfglint_train.judging import dispatch
    from cfglint_train.judging.selection import Selection
    from cfglint_train.judging.typo_correction import correct_typos

    request = requested(paths, options, sources)
    result = dispatch.lint(request.workspace, request.files, request.options._replace(select=()))
    selection = Selection(request.workspace.settings_for, request.options)
    for run in result.runs:
        run.corrected = correct_typos(run, selection)
    return EstimateResult(result)


def fit(
    paths: PathLike | Iterable[PathLike] | None = None,
    options: Options = DEFAULTS,
    sources: Mapping[str, Text] | None = None,
    *,
    keep: Iterable[str] = (),
    goal: Goal = "default",
    most: MaximizedSize | None = None,
    change: bool = False,
    write: bool = False,
) -> FitResult:
    """Find the smallest change that makes every run in files and folders fit its GPUs.

    `keep`: keys and plan fields to leave unchanged. `goal`: "default" for the change that the lint proposes,
    "throughput" for the smallest slowdown that fits, "smallest-edit" for the fewest settings, "memory" for the safe
    change with the lowest peak. `most`: also find the largest "micro_batch" or "sequence_length"
    that fits. `change`: make the changes in memory; `write`: also on disk. Raise UsageError as `lint` does.
    """
    from cfglint_train.fitting.alternatives import check_keep, list_alternatives
    from cfglint_train.fixing.loop import make_fixes
    from cfglint_train.fixing.write import write_fixes
    from cfglint_train.judging import dispatch
    from cfglint_train.judging.selection import Selection
    from cfglint_train.judging.typo_correction import build_rewritable_run, correct_typos

    request = requested(paths, options, sources)
    lint_options = request.options._replace(select=())
    result = dispatch.lint(request.workspace, request.files, lint_options)
    kept_keys = tuple(keep)
    for run in result.runs:
        check_keep(run, kept_keys)
    selection = Selection(request.workspace.settings_for, request.options)
    for run in result.runs:
        run.corrected = correct_typos(run, selection)
    alternatives = tuple(
        list_alternatives(run.corrected, kept_keys, goal, most)._replace(written=run)
        for run in result.runs
        if run.corrected is not None
    )
    if not (change or write):
        return FitResult(result, alternatives, None)
    fixes = [
        (run_alternatives.run, run_alternatives.solution.fix)
        for run_alternatives in alternatives
        if run_alternatives.solution is not None and run_alternatives.solution.is_enough
    ]
    prepare = partial(build_rewritable_run, selection=selection)
    fixed = make_fixes(request.workspace, request.files, lint_options, fixes, "fit", prepare)
    if write and not request.sources:
        fixed = write_fixes(fixed, request.files, lint_options)
    return FitResult(result, alternatives, fixed)


def fit_across(
    hardware: str | Iterable[Offer],
    paths: PathLike | Iterable[PathLike] | None = None,
    options: Options = DEFAULTS,
    sources: Mapping[str, Text] | None = None,
    *,
    keep: Iterable[str] = (),
    goal: Goal = "default",
) -> AcrossResult:
    """Fit every run on several kinds of hardware, with the same `keep` and `goal` as `fit`.

    `hardware`: a list such as "H100x8,A100-80GBx8x2", the path of a CSV, JSON or TOML file with prices, or `Offer`s.
    It replaces the GPU, the nodes and the rates of `options`. Raise UsageError as `lint` does, and for wrong hardware.
    """
    from cfglint_train.fitting.across import RunAcross, compare_hardware
    from cfglint_train.hardware.offers import read_offers

    offers = read_offers(hardware) if isinstance(hardware, str) else tuple(hardware)
    if not offers:
        raise UsageError("fit_across needs at least one kind of hardware")
    kept_keys = tuple(keep)
    files = [paths] if isinstance(paths, (str, os.PathLike)) else None if paths is None else list(paths)
    results = []
    for offer in offers:
        nodes = 1 if offer.nodes is None and offer.gpus_per_node is not None else offer.nodes
        offered = options.replace(gpu=offer.gpu, gpu_memory=None, gpus_per_node=offer.gpus_per_node, nodes=nodes)
        results.append(fit(files, offered, sources, keep=kept_keys, goal=goal))
    by_run = [
        {(item.run.main.document.path, item.run.main.root): item for item in result.ladders} for result in results
    ]
    tables = tuple(
        RunAcross(run[0], compare_hardware(offers, [ladders[run] for ladders in by_run]))
        for run in by_run[0]
        if all(run in ladders for ladders in by_run)
    )
    return AcrossResult(results[0].raw, tables, tuple(results))


def compare(before: LintResult | None, after: LintResult | None, *, is_pair: bool = False) -> Comparison:
    """Compare the runs of two results of `lint` in the terms of the plan: peaks, speed, batch, fields, findings.

    Runs are matched by their file and place in it. `is_pair`: the results are those of two files, whose runs are
    matched in order, whatever the files are called. None stands for a side without files. The results must come from
    `lint` in one process (`jobs=1`).
    """
    from cfglint_train.reports import change

    sides = (None if result is None else result.raw for result in (before, after))
    return change.compare(*sides, is_pair=is_pair)


def settings(options: Options = DEFAULTS, path: PathLike | None = None) -> Settings:
    """Return the settings that apply to `path`, a file or a folder with a trailing slash.

    Without `path`, return those of the working directory. Settings files that the options name take precedence. Raise
    SettingsError if the settings are invalid.
    """
    from cfglint_train.judging.selection import build_settings_resolver

    target = os.path.join(os.getcwd(), "x") if path is None else os.fspath(path)
    return build_settings_resolver(load_fixed_settings(options), options.settings_files)(target)


def rules(options: Options = DEFAULTS, path: PathLike | None = None) -> frozenset[str]:
    """Return the codes of the rules that are enabled for a file.

    Arguments are those of `settings`. Raise UsageError as `lint` does.
    """
    from cfglint_train.judging import dispatch

    target = os.path.join(os.getcwd(), "x") if path is None else os.fspath(path)
    request = requested([], options, None)
    return frozenset(dispatch.list_enabled_rules(request.workspace, target, request.options))
