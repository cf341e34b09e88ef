"""Lines below a finding's headline: notes, help, fix and related places."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import Position
from cfglint_train.findings.finding import Finding
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.redact import Redact
from cfglint_train.reports.fixes import mask_fix


class RelatedPlace(Frozen):
    """A secondary place of a finding."""

    path: str
    start: Position
    end: Position
    message: str


def list_details(finding: Finding, redact: Redact) -> Iterator[tuple[str, str]]:
    """Yield a label and a message for each note, the help and the fix, with credentials masked.

    The label of a fix with edits names its applicability; advice has no label.
    """
    for note in finding.notes:
        yield "note", redact(note)
    if finding.help:
        yield "help", redact(finding.help)
    if finding.fix is not None:
        fix = mask_fix(finding.fix, redact)
        yield (f"fix ({fix.applicability})" if fix.edits else "", fix.message)


def list_part_codes(finding: Finding) -> tuple[str, ...]:
    """Return the codes of the findings that are part of a finding, which formats with one code per finding list."""
    return tuple(dict.fromkeys(part.code for part in finding.parts if part.code != finding.code))


def format_details(finding: Finding, redact: Redact) -> Iterator[str]:
    """Yield the details as lines: `help: ...`."""
    return (f"{label}: {text}" if label else text for label, text in list_details(finding, redact))


def list_related_places(finding: Finding, redact: Redact) -> Iterator[RelatedPlace]:
    """Yield the related places of a finding, with credentials masked."""
    for related_place in finding.related:
        document, span = related_place.place.document, related_place.place.span
        start, end = document.locate(span.start), document.locate(span.end)
        yield RelatedPlace(document.path, start, end, redact(related_place.message))


def format_related_places(finding: Finding, redact: Redact) -> Iterator[str]:
    """Yield the related places as lines: `path:line:column: message`."""
    for place in list_related_places(finding, redact):
        yield f"{place.path}:{place.start.line}:{place.start.column}: {place.message}"
