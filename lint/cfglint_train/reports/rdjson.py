"""Reviewdog's diagnostic format, for pull request comments with fixes that one click applies.

Source: reviewdog `proto/rdf/reviewdog.proto`. Columns count UTF-8 bytes, ends are exclusive; a range without columns
means whole lines, including the last.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from cfglint_train.documents.document import Document, Position
from cfglint_train.documents.line_text import get_line_text
from cfglint_train.findings.finding import Finding
from cfglint_train.foundation.redact import Redact, build_redaction
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.judging.result import Result
from cfglint_train.reports import text
from cfglint_train.reports.details import format_details, format_related_places
from cfglint_train.reports.escape import escape_data
from cfglint_train.reports.fixes import build_hunks, mask_fix
from cfglint_train.reports.json import render_array
from cfglint_train.reports.places import collect_documents, compute_utf8_column, make_checkout_path
from cfglint_train.reports.style import PLAIN, Style

_SEVERITIES: Final = {"error": "ERROR", "warning": "WARNING", "info": "INFO"}


def report(result: Result, style: Style = PLAIN) -> Iterator[str]:
    """Report everything as one JSON object, with one line per diagnostic."""
    yield '{"source": {"name": "cfglint"},'
    yield from render_array("diagnostics", _build_diagnostics(result, style), "}")


def _build_diagnostics(result: Result, style: Style) -> Iterator[dict[str, Any]]:
    redact = build_redaction(result.secrets)
    documents_by_path = collect_documents(result)
    root = os.environ.get("GITHUB_WORKSPACE") or os.environ.get("CI_PROJECT_DIR")
    for finding in result.findings:
        document = None if finding.place is None else finding.place.document
        page = style.build_page_url(finding.code, finding.name)
        suggestions = list(_build_suggestions(finding, documents_by_path, redact))
        yield {
            "message": _format_message(finding, redact),
            "location": {
                "path": escape_data(make_checkout_path(finding.path, root)),
                "range": _build_range(document, finding.start, finding.end),
            },
            "severity": _SEVERITIES[finding.severity],
            "code": {"value": finding.code, **({} if page is None else {"url": page})},
            **({"suggestions": suggestions} if suggestions else {}),
        }
    for trouble in text.find_unreported_troubles(result):
        position = trouble.position
        place = {} if position is None else {"range": {"start": {"line": position.line, "column": position.column}}}
        yield {
            "message": escape_data(redact(text.format_trouble_message(trouble))),
            "location": {"path": escape_data(make_checkout_path(trouble.path, root)), **place},
            "severity": "ERROR",
            "code": {"value": "cfglint"},
        }


def _build_range(document: Document | None, start: Position, end: Position) -> dict[str, Any]:
    return {
        "start": {"line": start.line, "column": compute_utf8_column(document, start)},
        "end": {"line": end.line, "column": compute_utf8_column(document, end)},
    }


def _build_suggestions(
    finding: Finding, documents_by_path: Mapping[str, Document], redact: Redact
) -> Iterator[dict[str, Any]]:
    """Yield a safe fix if it is one hunk in the finding's own file, so that it cannot be applied in part."""
    if finding.fix is None:
        return
    fix = mask_fix(finding.fix, redact)
    fix_hunks = list(build_hunks(fix.edits, documents_by_path))
    if fix.applicability != "safe" or len(fix_hunks) != 1 or fix_hunks[0].path != finding.path:
        return
    if len({edit.path for edit in fix.edits}) > 1:
        return
    document, [hunk] = documents_by_path[finding.path], fix_hunks
    first, last = hunk.line, hunk.line + len(hunk.before) - 1
    text = "".join(hunk.after)
    if not hunk.before:
        # Reviewdog can only replace lines, so repeat the line after the insertion, or else the line before it.
        if first <= len(document.line_starts) and document.line_starts[first - 1] < len(document.source):
            last, text = first, text + get_line_text(document, first)
        else:
            first, last = first - 1, first - 1
            text = f"{get_line_text(document, first)}\n{text}"
    if redact(text) == text and first > 0:
        lines = {"start": {"line": first}, "end": {"line": last}}
        yield {"range": lines, "text": escape_data(text.removesuffix("\n").removesuffix("\r"))}


def _format_message(finding: Finding, redact: Redact) -> str:
    """Return the message with related places, notes and help.

    These are part of the message because not every release of reviewdog has fields for them.
    """
    lines = (redact(finding.message), *format_related_places(finding, redact), *format_details(finding, redact))
    return escape_data("\n".join(lines))
