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

MOST_LISTED: Final = 5
"""Runs that a finding lists by place; the others are counted."""


class Occurrence(Frozen):
    """What a rule says of one run."""

    turn: int
    finding: Finding


def job_of(run: Run | None) -> Job:
    """The name of a run, which processes can exchange."""
    return None if run is None else (run.main.document.path, run.main.root)


def merged(sightings: Mapping[Job, Occurrence], naming: Collection[Job]) -> Finding:
    """One finding for what a rule says of several runs at one place; `naming` are the jobs that name the file.

    Its fix is safe only where it is safe for each of them.
    """
    ordered = sorted(sightings.values(), key=lambda one: (SEVERITIES.index(one.finding.severity), one.turn))
    worst, *others = [one.finding for one in ordered]
    if len(naming) < 2:
        return worst
    runs = [of_run for other in others for of_run in other.related if of_run.message == OF_RUN]
    left = len(runs) - MOST_LISTED
    safe = len(sightings) == len(naming) and all(_is_safe(other) for other in others)
    return (worst if safe else _unsafe(worst))._replace(
        related=(*worst.related, *_distinct(runs[:MOST_LISTED])),
        notes=(*worst.notes, f"the same holds for {left} more runs") if left > 0 else worst.notes,
        runs=len(ordered),
    )


def changed_by(finding: Finding) -> frozenset[str]:
    """The files that the fix of a finding changes."""
    fix, run = finding.intent, finding.run
    if fix is None or run is None:
        return frozenset(edit.path for edit in finding.fix.edits) if finding.fix is not None else frozenset()
    owners = (run.owner(field) for field in fix.changes)
    return frozenset(
        config.document.path for config in (*(one[0] for one in owners if one), *(config for config, _ in fix.keys))
    )


def is_of_one_run(finding: Finding) -> bool:
    """Whether a fix is mere advice with values that the estimate of its own run chose: another may have no room."""
    fix = finding.intent or finding.fix
    return finding.severity == "info" and fix is not None and fix.measured


def sparing(finding: Finding, path: str, others: int) -> Finding:
    """The finding where its fix changes a file that `others` read too, which have no need of it.

    A fix is then unsafe; one of mere advice becomes its help.
    """
    fix = finding.intent or finding.fix
    if not others or fix is None:
        return finding
    if finding.severity != "info":
        return _unsafe(finding)
    runs = "another run" if others == 1 else f"{others} other runs"
    advice = f"{fix.message}, in a copy of {path}: {runs} of this lint read it"
    return finding._replace(intent=None, fix=None, help=finding.help or advice)


def _distinct(related: list[Related]) -> tuple[Related, ...]:
    return tuple({(one.place.document.path, one.place.span): one for one in related}.values())


def _is_safe(finding: Finding) -> bool:
    fix = finding.intent or finding.fix
    return fix is not None and fix.applicability == "safe"


def _unsafe(finding: Finding) -> Finding:
    """The finding with a fix that is applied only where unsafe ones are asked for."""
    intent, fix = finding.intent, finding.fix
    if intent is not None and intent.applicability == "safe":
        finding = finding._replace(intent=intent._replace(applicability="unsafe"))
    if fix is not None and fix.applicability == "safe":
        finding = finding._replace(fix=fix._replace(applicability="unsafe"))
    return finding
