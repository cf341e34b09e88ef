"""Shared companions: merge the findings of several runs into one finding with the severity of the worst run."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cfglint_train.documents.document import Route
from cfglint_train.findings.finding import SEVERITIES, Finding, Related
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.judging.finding_builder import OF_RUN
from cfglint_train.runs.run import Run

Job = tuple[str, Route] | None
"""The path and root of a run's main config, which identify the run, or None for a finding without a run."""

MAX_LISTED_RUNS: Final = 5
"""Maximum number of other runs that a finding lists by place; the rest are only counted."""


class Occurrence(Frozen):
    """A finding in one run."""

    turn: int
    finding: Finding


def get_job(run: Run | None) -> Job:
    """Return the picklable identity of a run, or None without a run."""
    return None if run is None else (run.main.document.path, run.main.root)


def merge_occurrences(occurrences: Mapping[Job, Occurrence], jobs: Collection[Job]) -> Finding:
    """Merge the findings of several runs at one place; `jobs` are the runs that name the file.

    The fix stays safe only if every one of these runs has the finding with a safe fix.
    """
    ordered = sorted(
        occurrences.values(), key=lambda occurrence: (SEVERITIES.index(occurrence.finding.severity), occurrence.turn)
    )
    worst, *others = [occurrence.finding for occurrence in ordered]
    if len(jobs) < 2:
        return worst
    runs = [related_run for other in others for related_run in other.related if related_run.message == OF_RUN]
    unlisted = len(runs) - MAX_LISTED_RUNS
    is_safe = len(occurrences) == len(jobs) and all(_is_safe(other) for other in others)
    return (worst if is_safe else _demote_to_unsafe(worst))._replace(
        related=(*worst.related, *_deduplicate_related(runs[:MAX_LISTED_RUNS])),
        notes=(*worst.notes, f"the same applies to {unlisted} more runs") if unlisted > 0 else worst.notes,
        run_count=len(ordered),
    )


def list_changed_files(finding: Finding) -> frozenset[str]:
    """Return the files that the fix of a finding changes."""
    fix, run = finding.intent, finding.run
    if fix is None or run is None:
        return frozenset(edit.path for edit in finding.fix.edits) if finding.fix is not None else frozenset()
    owners = (run.find_owner(field) for field in fix.changes)
    return frozenset(
        config.document.path
        for config in (*(owner[0] for owner in owners if owner), *(config for config, _ in fix.keys))
    )


def is_run_specific(finding: Finding) -> bool:
    """Return whether a finding's fix is advice with values from its run's estimate, which may not suit other runs."""
    fix = finding.intent or finding.fix
    return finding.severity == "info" and fix is not None and fix.uses_estimate


def protect_other_runs(finding: Finding, path: str, other_count: int) -> Finding:
    """Return the finding with its fix demoted if `other_count` other runs read the file that it changes.

    The other runs do not need the fix, so it becomes unsafe; the fix of an info finding becomes its help text instead.
    """
    fix = finding.intent or finding.fix
    if not other_count or fix is None:
        return finding
    if finding.severity != "info":
        return _demote_to_unsafe(finding)
    users = "another run also uses it" if other_count == 1 else f"{other_count} other runs also use it"
    advice = f"{fix.message}, in a copy of {path}: {users}"
    return finding._replace(intent=None, fix=None, help=finding.help or advice)


def _deduplicate_related(related: list[Related]) -> tuple[Related, ...]:
    return tuple(
        {
            (related_place.place.document.path, related_place.place.span): related_place for related_place in related
        }.values()
    )


def _is_safe(finding: Finding) -> bool:
    fix = finding.intent or finding.fix
    return fix is not None and fix.applicability == "safe"


def _demote_to_unsafe(finding: Finding) -> Finding:
    """Return the finding with its safe fix made unsafe."""
    intent, fix = finding.intent, finding.fix
    if intent is not None and intent.applicability == "safe":
        finding = finding._replace(intent=intent._replace(applicability="unsafe"))
    if fix is not None and fix.applicability == "safe":
        finding = finding._replace(fix=fix._replace(applicability="unsafe"))
    return finding
