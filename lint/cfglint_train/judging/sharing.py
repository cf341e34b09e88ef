"""A companion that several runs share: one finding for all of them, with the grade of the worst."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cfglint_train.documents.document import Route
from cfglint_train.findings.finding import SEVERITIES, Finding, Related
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.judging.finding_builder import OF_RUN
from cfglint_train.runs.run import Run

Job = tuple[str, Route] | None
"""A run by the path and root of its main configuration; None: a finding about no run."""

MAX_LISTED_RUNS: Final = 5
"""Runs that a finding lists by place; the others are counted."""


class Occurrence(Frozen):
    """What a rule says of one run."""

    turn: int
    finding: Finding


def get_job(run: Run | None) -> Job:
    """The name of a run, which processes can exchange."""
    return None if run is None else (run.main.document.path, run.main.root)


def merge_occurrences(occurrences: Mapping[Job, Occurrence], jobs: Collection[Job]) -> Finding:
    """One finding for what a rule says of several runs at one place; `naming` are the jobs that name the file.

    Its fix is safe only where it is safe for each of them.
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
        notes=(*worst.notes, f"the same holds for {unlisted} more runs") if unlisted > 0 else worst.notes,
        run_count=len(ordered),
    )


def list_changed_files(finding: Finding) -> frozenset[str]:
    """The files that the fix of a finding changes."""
    fix, run = finding.intent, finding.run
    if fix is None or run is None:
        return frozenset(edit.path for edit in finding.fix.edits) if finding.fix is not None else frozenset()
    owners = (run.find_owner(field) for field in fix.changes)
    return frozenset(
        config.document.path
        for config in (*(owner[0] for owner in owners if owner), *(config for config, _ in fix.keys))
    )


def is_run_specific(finding: Finding) -> bool:
    """Whether a fix is mere advice with values that the estimate of its own run chose: another may have no room."""
    fix = finding.intent or finding.fix
    return finding.severity == "info" and fix is not None and fix.uses_estimate


def protect_other_runs(finding: Finding, path: str, other_count: int) -> Finding:
    """The finding where its fix changes a file that `others` read too, which have no need of it.

    A fix is then unsafe; one of mere advice becomes its help.
    """
    fix = finding.intent or finding.fix
    if not other_count or fix is None:
        return finding
    if finding.severity != "info":
        return _demote_to_unsafe(finding)
    runs = "another run" if other_count == 1 else f"{other_count} other runs"
    advice = f"{fix.message}, in a copy of {path}: {runs} of this lint read it"
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
    """The finding with a fix that is applied only where unsafe ones are asked for."""
    intent, fix = finding.intent, finding.fix
    if intent is not None and intent.applicability == "safe":
        finding = finding._replace(intent=intent._replace(applicability="unsafe"))
    if fix is not None and fix.applicability == "safe":
        finding = finding._replace(fix=fix._replace(applicability="unsafe"))
    return finding
