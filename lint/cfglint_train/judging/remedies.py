"""Fixes written out as edits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cfglint_train.documents.document import CannotEdit
from cfglint_train.findings import draft, read_back
from cfglint_train.findings.finding import Finding, Fix, Remedy
from cfglint_train.foundation.errors import describe_crash
from cfglint_train.judging.one_disease import get_change
from cfglint_train.judging.result import Result


def detach_findings(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings with their fixes as edits and without their runs, to send them to another process."""
    for finding in add_edits(findings):
        parts = tuple(detach_findings(finding.parts))
        yield finding._replace(intent=None, run=None, parts=parts, change=get_change(finding))


def attach_edits(result: Result) -> Result:
    """Return the result with every fix written out as edits."""
    return result._replace(findings=tuple(add_edits(result.findings)))


def add_edits(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings with their fixes written out as edits.

    A fix is only displayed if the edited file does not parse to the intended values. The resulting plan is checked when
    the fix is applied.
    """
    originals = list(findings)
    drafts = [None if finding.intent is None else _try_draft(finding, finding.intent) for finding in originals]
    parts = [
        (position, part) for position, drafted in enumerate(drafts) if isinstance(drafted, list) for part in drafted
    ]
    refusals = read_back.find_unreadable([part for _, part in parts])
    reasons = {parts[number][0]: reason for number, reason in refusals.items()}
    return [
        finding
        if finding.intent is None or drafted is None
        else finding._replace(
            fix=_build_remedy(finding.intent, reasons.get(position, drafted))._replace(
                uses_estimate=finding.intent.uses_estimate
            )
        )
        for position, (finding, drafted) in enumerate(zip(originals, drafts))
    ]


def _build_remedy(fix: Fix, drafted: draft.DraftedEdits | str) -> Remedy:
    if isinstance(drafted, str):
        return Remedy("display", fix.message, refused=drafted)
    return Remedy("display", fix.message) if fix.applicability == "display" else draft.build_remedy(fix, drafted)


def _try_draft(finding: Finding, fix: Fix) -> draft.DraftedEdits | str:
    """Return the edits of a fix, or the reason why it cannot be written."""
    if fix.applicability == "display":
        return []
    try:
        return draft.draft_fix(finding.run, fix)
    except CannotEdit as refusal:
        return str(refusal)
    except Exception as error:  # keep the finding if its fix fails
        return format_internal_error(error)


def format_internal_error(error: Exception) -> str:
    """Return the message for an error in cfglint itself."""
    return f"internal error (please report it): {describe_crash(error)}"
