"""Lint of the repository before a change, to find out which findings the change adds."""

from __future__ import annotations

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Any
from cfglint_train.front.git_changes import ChangedFiles

if TYPE_CHECKING:
    from cfglint_train.api import LintResult, Options
    from cfglint_train.findings.finding import Finding
    from cfglint_train.foundation.budget import Budget
    from cfglint_train.judging.result import Result, Trouble
    from cfglint_train.records import Comparison
    from cfglint_train.runs.run import Run


class BaseResult(Frozen):
    """Findings, troubles and runs of the commit before a change, as comparable keys."""

    findings: frozenset[tuple[Any, ...]]
    troubles: frozenset[tuple[Any, ...]]
    runs: tuple[tuple[Any, ...], ...]
    comparison: Comparison | None = None
    """Comparison of the runs before and after the change, if it was requested."""

    def has_finding(self, finding: Finding) -> bool:
        """Return whether the same finding existed before the change."""
        return _build_finding_key(finding) in self.findings

    def has_trouble(self, trouble: Trouble) -> bool:
        """Return whether the same trouble existed before the change."""
        return _build_trouble_key(trouble) in self.troubles

    def has_run(self, run: Run) -> bool:
        """Return whether the same run, with the same plan, model, hardware and releases, existed before the change."""
        return _build_run_key(run) in self.runs


def lint_base(
    changes: ChangedFiles, paths: list[str], options: Options, budget: Budget, after: LintResult | None = None
) -> BaseResult:
    """Lint the commit before a change, and compare its runs with those of `after`.

    Raise GitError if the commit cannot be restored, or linted within the budget.
    """
    from cfglint_train.front.base_tree import lint_commit

    before = lint_commit(changes.repository, changes.base, paths, options, budget, is_clean=True)
    comparison = None
    if after is not None:
        from cfglint_train import api

        comparison = api.compare(before, after)
    if before is None:
        return BaseResult(frozenset(), frozenset(), (), comparison)
    return _build_base_result(before.raw)._replace(comparison=comparison)


def _build_base_result(result: Result) -> BaseResult:
    return BaseResult(
        frozenset(map(_build_finding_key, result.findings)),
        frozenset(map(_build_trouble_key, result.troubles)),
        tuple(map(_build_run_key, result.runs)),
    )


def _build_finding_key(finding: Finding) -> tuple[Any, ...]:
    """Return the reported contents of a finding, with its position, which moves only if its own file changes."""
    item = finding
    related = tuple(related.message for related in item.related)
    return item.code, item.severity, item.certainty, item.path, item.start, item.message, item.help, item.notes, related


def _build_trouble_key(trouble: Trouble) -> tuple[Any, ...]:
    return trouble.path, trouble.message, trouble.position, trouble.rule


def _build_run_key(run: Run) -> tuple[Any, ...]:
    """Return the facts that the findings of a run can depend on, without source locations."""
    hardware = run.hardware
    sizes = hardware.gpu, hardware.gpu_bytes, hardware.gpu_others, hardware.host_bytes, hardware.disk_bytes
    releases = {name: (release.version, release.origin.kind) for name, release in run.releases.by_package.items()}
    return run.main.document.path, run.main.root, run.plan, run.architecture, sizes, releases
