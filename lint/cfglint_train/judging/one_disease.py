"""One disease, one finding: drop findings that another finding covers, and merge those that the same fix settles.

Rules judge a run independently of each other. Several of them may state the same verdict, such as a training step that
does not fit, each with its own cause. If the same fix settles them, the user sees one finding with all causes.
"""

from __future__ import annotations

from collections.abc import Iterable

from cfglint_train.findings.finding import APPLICABILITIES, SEVERITIES, UNUSABLE_VALUE, Finding, Related, Severity
from cfglint_train.plan.origin import Place


def settle(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings on a run without those that others cover, and with those of one disease merged."""
    checked = list(findings)
    uncovered = [finding for finding in checked if not is_covered(finding.left_to, finding.severity, checked)]
    others = [finding for finding in uncovered if not finding.quantity]
    heads: list[Finding] = []
    for finding in sorted((finding for finding in uncovered if finding.quantity), key=_get_priority):
        position = next((number for number, head in enumerate(heads) if _is_settled_with(finding, head)), None)
        if position is None:
            heads.append(finding)
        else:
            part = finding._replace(intent=None, run=None)
            heads[position] = heads[position]._replace(parts=(*heads[position].parts, part))
    return _merge_unusable_values(
        [*others, *(_move_to_changed_place(finding) if finding.parts else finding for finding in heads)]
    )


def _merge_unusable_values(findings: list[Finding]) -> list[Finding]:
    """Return the findings with those on a value that stops the estimate as a part of the error at that value."""
    parts = [finding for finding in findings if finding.quantity == UNUSABLE_VALUE]
    for part in parts:
        for position, finding in enumerate(findings):
            if finding.severity == "error" and (finding.path, finding.start) == (part.path, part.start):
                findings[position] = finding._replace(parts=(*finding.parts, part._replace(intent=None, run=None)))
                findings.remove(part)
                break
    return findings


def is_covered(code: str, severity: Severity, others: Iterable[Finding]) -> bool:
    """Return whether the rule `code` has a finding that is at least as severe as a finding that is left to it."""
    rank = SEVERITIES.index(severity)
    return bool(code) and any(other.code == code and SEVERITIES.index(other.severity) <= rank for other in others)


def describe_parts(finding: Finding) -> Finding:
    """Return the finding with the causes and places of its parts in its notes and related places."""
    notes, related = dict.fromkeys(finding.notes), list(finding.related)
    for part in finding.parts:
        if part.quantity == UNUSABLE_VALUE or part.place is None or _is_same_place(part.place, finding.place):
            notes[f"{part.message} ({part.code})"] = None
        else:
            related.append(Related(part.place, f"{part.message} ({part.code})"))
        notes.update(dict.fromkeys(part.notes))
    return finding._replace(notes=tuple(notes), related=tuple(related))


def _get_priority(finding: Finding) -> tuple[int, int, str]:
    """Return a sort key that puts the finding that stays first."""
    fix = finding.intent
    rank = len(APPLICABILITIES) if fix is None else APPLICABILITIES.index(fix.applicability)
    return SEVERITIES.index(finding.severity), rank, finding.code


def _is_settled_with(finding: Finding, head: Finding) -> bool:
    """Return whether two findings rest on the same quantity, and the same fix settles both. Only text merges infos."""
    fix, head_fix = finding.intent, head.intent
    return (
        finding.quantity == head.quantity
        and finding.severity != "info"
        and fix is not None
        and head_fix is not None
        and (fix.changes, fix.keys) == (head_fix.changes, head_fix.keys)
    )


def _is_same_place(place: Place | None, other: Place | None) -> bool:
    return (
        place is not None
        and other is not None
        and (place.document.path, place.span) == (other.document.path, other.span)
    )


def _move_to_changed_place(finding: Finding) -> Finding:
    """Return the finding at the first place among its own and its parts' that its fix changes."""
    run, fix = finding.run, finding.intent
    if run is None or fix is None:
        return finding
    origins = [run.get_origin(field) for field in fix.changes]
    changed = [origin.place for origin in origins if origin is not None]
    for item in (finding, *finding.parts):
        if any(_is_same_place(item.place, place) for place in changed):
            return finding._replace(path=item.path, start=item.start, end=item.end, place=item.place)
    return finding
