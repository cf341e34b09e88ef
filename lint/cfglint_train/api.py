"""cfglint from Python: lint, fix, fit and estimate, over files or over texts.

    from cfglint_train import api

    checked = api.lint("configs", api.Options(gpu="H100", nodes=8))
    for finding in checked.findings:
        print(finding.path, finding.line, finding.code, finding.message)

The command line is made of these functions and adds nothing but argv, colours and exit codes. Nothing here executes,
imports or downloads what it reads, and only `accept`, and `fix`, `fit` and `ignore` with `write=True`, write.

What is stable: `Options`, the functions, the exceptions, and the records that `findings`, `files`, `errors`,
`skipped`, `runs`, `applied` and `refused` hold (they are what the JSON reports print). The `raw`
attributes are the engine's own objects, for reports; they change with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial

from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, ClassVar
from cfglint_train.request import DEFAULTS, OptionError, Options, PathLike, Text, load_fixed_settings
from cfglint_train.request import build_request as requested
from cfglint_train.settings.cluster_facts import FactError
from cfglint_train.settings.error import SettingsError
from cfglint_train.settings.settings import Settings

if TYPE_CHECKING:
    from typing import Self

    from cfglint_train.fitting.alternatives import Alternatives, Goal, MaximizedSize
    from cfglint_train.fixing.loop import Applied, FixOutcome, Refused
    from cfglint_train.judging.result import CheckedFile, Result, UnsupportedFiles
    from cfglint_train.records import (
        Budget,
        Component,
        Edit,
        Failure,
        Finding,
        Fix,
        Ground,
        Holding,
        Model,
        NotChecked,
        Phase,
        RelatedPlace,
        Room,
        RunEstimate,
        RunFit,
        Rung,
        Solution,
    )
    from cfglint_train.repository.documents import SkippedFile
    from cfglint_train.runs.run import Run

__all__ = [
    "DEFAULTS", "Applied", "Budget", "CheckedFile", "Component", "Edit", "EstimateResult", "FactError", "Failure",
    "Finding", "FitResult", "Fix", "FixResult", "Ground", "Holding", "LintResult", "Model", "NotChecked", "OptionError",
    "Options", "Phase", "Refused", "RelatedPlace", "Room", "RunEstimate", "RunFit", "Rung", "SettingsError",
    "SkippedFile", "Solution", "UnsupportedFiles", "UsageError", "accept", "estimate", "fit", "fix", "ignore", "lint",
    "rules", "settings",
]  # fmt: skip


_HOMES = {
    "Applied": "fixing.loop", "CheckedFile": "judging.result", "Refused": "fixing.loop",
    "SkippedFile": "repository.documents", "UnsupportedFiles": "judging.result",
}  # fmt: skip
"""The modules of the records that are not in `records`; a lint that only prints a report imports none for the API."""


def __getattr__(name: str) -> Any:
    if name in __all__:
        from importlib import import_module

        return getattr(import_module(f"cfglint_train.{_HOMES.get(name, 'records')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Record:
    """A result: compared and shown by its fields, which are made when first asked for, and changed in copies."""

    _fields: ClassVar[tuple[str, ...]]

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values of some fields; `raw` stays as it is. Raises TypeError for other names."""
        unknown = [name for name in changes if name not in self._fields]
        if unknown:
            names = ", ".join(self._fields)
            raise TypeError(f"{type(self).__name__} has no field {', '.join(unknown)}; its fields are {names}")
        from copy import copy

        result = copy(self)
        result.__dict__.update(changes)
        return result

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self._fields)

    __hash__ = None  # type: ignore[assignment]  # some fields are mappings

    def __repr__(self) -> str:
        """The sizes of its fields: their values would fill a screen."""
        fields = ((name, getattr(self, name)) for name in self._fields)
        sizes = (f"{name}={len(value) if hasattr(value, '__len__') else value!r}" for name, value in fields)
        return f"{type(self).__name__}({', '.join(sizes)})"


class _InputResult(_Record):
    """The result of reading files. The records are made when they are first asked for."""

    def __init__(self, raw: Result) -> None:
        self.raw = raw
        """The engine's own result, which `cfglint_train.reports` turn into text; `raw.runs` are the runs."""

    @cached_property
    def errors(self) -> tuple[Failure, ...]:
        """What kept cfglint from its work: files that cannot be read, facts without sense, rules that crashed."""
        from cfglint_train.reports import json

        return tuple(json.list_failures(self.raw))

    @cached_property
    def skipped(self) -> tuple[SkippedFile, ...]:
        """Files that are no configurations, each with the reason."""
        from cfglint_train.reports import json

        return tuple(json.list_skipped(self.raw))


class LintResult(_InputResult):
    """What a lint found. Texts in the records hold no credentials."""

    _fields = ("findings", "files", "not_checked", "unsupported", "errors", "skipped")

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What the rules say, ordered by path, place and code."""
        from cfglint_train.reports import json

        return tuple(json.list_findings(self.raw))

    @cached_property
    def files(self) -> tuple[CheckedFile, ...]:
        """The configurations that were checked."""
        from cfglint_train.reports import json

        return tuple(json.list_files(self.raw))

    @cached_property
    def not_checked(self) -> tuple[NotChecked, ...]:
        """The runs whose memory could not be checked, each with the setting that is missing and the remedy."""
        from cfglint_train.reports import json

        return tuple(json.list_not_checked(self.raw))

    @cached_property
    def unsupported(self) -> tuple[UnsupportedFiles, ...]:
        """Files that look like those of tools that are not supported, by tool."""
        from cfglint_train.reports import json

        return tuple(json.list_unsupported(self.raw))


class FixResult(_Record):
    """What fixing did, or would do."""

    _fields = ("applied", "refused", "sources", "texts", "written", "lint")

    def __init__(self, raw: FixOutcome, written: bool, source_texts: Mapping[str, bytes]) -> None:
        self._source_texts = source_texts
        self.raw = raw
        """The fixer's own result, which `cfglint_train.fixing.loop` turns into text."""
        self.written = written
        """Whether the new contents are on the disk; files that could not be written are among `lint.errors`."""

    @cached_property
    def sources(self) -> Mapping[str, bytes]:
        """The new content of every file that differs."""
        return self.raw.sources

    @cached_property
    def texts(self) -> Mapping[str, bytes]:
        """The given sources as they are then, fixed or not."""
        return {path: self.raw.sources.get(path, text) for path, text in self._source_texts.items()}

    @cached_property
    def applied(self) -> tuple[Applied, ...]:
        """The fixes that were made, in order."""
        from cfglint_train.reports import json

        return tuple(json.list_applied(self.raw))

    @cached_property
    def refused(self) -> tuple[Refused, ...]:
        """The fixes that could not be made, each with the reason."""
        from cfglint_train.reports import json

        return tuple(json.list_refused(self.raw))

    @cached_property
    def lint(self) -> LintResult:
        """The lint of what the files are then, its fixes written out."""
        from cfglint_train.judging.remedies import attach_edits

        return LintResult(attach_edits(self.raw.result))

    def diff(self) -> tuple[str, ...]:
        """Unified diffs of all files, line by line, safe to print: credentials and control characters are masked."""
        from cfglint_train.reports import diff

        return diff.build_diff(self.raw).lines


class EstimateResult(_InputResult):
    """The memory budgets of the runs that were found."""

    _fields = ("runs", "errors", "skipped")

    @cached_property
    def runs(self) -> tuple[RunEstimate, ...]:
        """One estimate per run."""
        from cfglint_train.reports import estimate

        return tuple(map(estimate.build_estimate, self.raw.runs))


class FitResult(_InputResult):
    """The smallest changes with which the runs that were found fit."""

    _fields = ("runs", "needs_change", "hopeless", "sources", "refused", "errors", "skipped")

    def __init__(self, raw: Result, alternatives: tuple[Alternatives, ...], fixed: FixOutcome | None) -> None:
        self.raw = raw
        """The engine's own result of reading the files."""
        self.ladders = alternatives
        """The engine's own ladders, which `cfglint_train.reports.fit` shows."""
        self.fixed = fixed
        """What the changes make of the files; None where they were not asked for."""

    @cached_property
    def runs(self) -> tuple[RunFit, ...]:
        """One record per run."""
        from cfglint_train.reports import fit

        return tuple(map(fit.build_fit, self.ladders))

    @cached_property
    def needs_change(self) -> bool:
        """Whether some run is not expected to fit as it is."""
        return any(run.lacks_room for run in self.ladders)

    @cached_property
    def hopeless(self) -> tuple[str, ...]:
        """The files of the runs that no change makes fit."""
        return tuple(alternatives.run.main.document.path for alternatives in self.ladders if alternatives.is_hopeless)

    @cached_property
    def sources(self) -> Mapping[str, bytes]:
        """The new content of every file that differs."""
        return {} if self.fixed is None else self.fixed.sources

    @cached_property
    def refused(self) -> tuple[Refused, ...]:
        """The changes that could not be made, each with the reason."""
        from cfglint_train.reports import json

        return () if self.fixed is None else tuple(json.list_refused(self.fixed))

    def diff(self) -> tuple[str, ...]:
        """Unified diffs of all files, safe to print."""
        from cfglint_train.reports import diff

        return () if self.fixed is None else diff.build_diff(self.fixed).lines


def lint(
    paths: PathLike | Iterable[PathLike] | None = None,
    options: Options = DEFAULTS,
    sources: Mapping[str, Text] | None = None,
    *,
    digest: Callable[[Run], Any] | None = None,
) -> LintResult:
    """Check files and folders; nothing is written.

    `sources` are texts by the paths that they have, or would have: they lie over the disk, and companions that they
    name are found as if they stood there. Without `paths`, the sources are checked; without both, the working
    directory. Raises UsageError (OptionError, FactError, SettingsError) for options or settings that mean nothing;
    what is wrong with the files is in the result.

    `digest` is for reports: what it makes of every run, wherever that was assembled, is in `raw.digests`.
    """
    from cfglint_train.judging import dispatch

    request = requested(paths, options, sources)
    result = dispatch.lint(request.workspace, request.files, request.options._replace(jobs=options.jobs, digest=digest))
    if any(finding.intent is not None for finding in result.findings):
        from cfglint_train.judging.remedies import attach_edits

        result = attach_edits(result)
    return LintResult(result)


def accept(
    paths: PathLike | Iterable[PathLike] | None = None, options: Options = DEFAULTS, *, baseline: PathLike
) -> LintResult:
    """Write the baseline: all findings where there is none yet, else without the accepted findings that are gone.

    Returns the lint with what the baseline does not accept; it never accepts more than it did. Raises UsageError as
    `lint` does, and OSError where the file cannot be written.
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
) -> FixResult:
    """Apply the fixes, pass by pass, until none is left; on the disk only with `write`.

    `unsafe`: unsafe fixes too; None: what the settings of the working directory say. `sources` and `paths` are as for
    `lint`; where there are sources, no other file changes, and nothing is written. Files that a fix changed together
    are written together or not at all. Raises UsageError as `lint` does.
    """
    from cfglint_train.fixing.loop import fix_all
    from cfglint_train.fixing.write import write_fixes

    request = requested(paths, options, sources)
    if unsafe is None:
        unsafe = settings(options).apply_unsafe
    fixed = fix_all(request.files, request.options, unsafe, request.sources)
    written = write and not request.sources
    if written:
        fixed = write_fixes(fixed, request.files, request.options)
    return FixResult(fixed, written, request.sources)


def ignore(
    paths: PathLike | Iterable[PathLike] | None = None, options: Options = DEFAULTS, *, write: bool = False
) -> FixResult:
    """Put a comment that silences it at every finding; on the disk only with `write`.

    `applied` are the findings that are silenced, `refused` those that no comment can silence. Raises UsageError as
    `lint` does.
    """
    from cfglint_train.fixing.ignoring import add_ignores
    from cfglint_train.fixing.write import write_fixes
    from cfglint_train.judging import dispatch

    request = requested(paths, options, None)
    fixed = add_ignores(request.files, request.options)
    if write:
        fixed = write_fixes(fixed, request.files, request.options)
        if not fixed.sources.keys() <= set(request.files):  # requirement files are only read as they are on the disk
            fixed = fixed._replace(
                result=dispatch.lint(dispatch.open_workspace(request.options), request.files, request.options)
            )
    return FixResult(fixed, write, {})


def estimate(
    paths: PathLike | Iterable[PathLike] | None = None,
    options: Options = DEFAULTS,
    sources: Mapping[str, Text] | None = None,
) -> EstimateResult:
    """The memory budget of every run in files and folders. Arguments are those of `lint`, as is what it raises."""
    from cfglint_train.judging import dispatch

    request = requested(paths, options, sources)
    return EstimateResult(dispatch.lint(request.workspace, request.files, request.options._replace(select=())))


def fit(
    paths: PathLike | Iterable[PathLike] | None = None,
    options: Options = DEFAULTS,
    sources: Mapping[str, Text] | None = None,
    *,
    keep: Iterable[str] = (),
    goal: Goal = "throughput",
    most: MaximizedSize | None = None,
    change: bool = False,
    write: bool = False,
) -> FitResult:
    """The smallest change with which every run in files and folders fits its GPUs.

    `keep`: keys and plan fields that stay as they are. `goal`: the least slowdown that fits, or the lowest peak that
    costs nothing but time ("memory"). `most`: also find the largest "micro_batch" or "sequence_length" that fits.
    `change`: make the changes, in memory; `write`: on disk, too. Raises what `lint` raises.
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
    alternatives = tuple(list_alternatives(correct_typos(run, selection), kept_keys, goal, most) for run in result.runs)
    if not (change or write):
        return FitResult(result, alternatives, None)
    fixes = [
        (run_alternatives.run, run_alternatives.solution.fix)
        for run_alternatives in alternatives
        if run_alternatives.solution is not None
    ]
    prepare = partial(build_rewritable_run, selection=selection)
    fixed = make_fixes(request.workspace, request.files, lint_options, fixes, "fit", prepare)
    if write and not request.sources:
        fixed = write_fixes(fixed, request.files, lint_options)
    return FitResult(result, alternatives, fixed)


def settings(options: Options = DEFAULTS, path: PathLike | None = None) -> Settings:
    """The settings of a file (or folder, with a slash behind it), or those that the options name; without a path those
    of the working directory. Raises SettingsError.
    """
    from cfglint_train.judging.selection import build_settings_resolver

    target = os.path.join(os.getcwd(), "x") if path is None else os.fspath(path)
    return build_settings_resolver(load_fixed_settings(options), options.settings_files)(target)


def rules(options: Options = DEFAULTS, path: PathLike | None = None) -> frozenset[str]:
    """The codes of the rules that are on for a file. Arguments are those of `settings`. Raises UsageError."""
    from cfglint_train.judging import dispatch

    target = os.path.join(os.getcwd(), "x") if path is None else os.fspath(path)
    request = requested([], options, None)
    return frozenset(dispatch.list_enabled_rules(request.workspace, target, request.options))
