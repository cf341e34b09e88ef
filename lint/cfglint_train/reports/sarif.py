"""SARIF 2.1.0 report, as read by GitHub code scanning and editors.

Columns count UTF-16 code units. Paths are relative to the checkout, as GitHub expects. The report lists the rules that
have findings, with their documentation.

With a baseline, every reported result is `new`. Accepted (`unchanged`) and gone (`absent`) results are omitted: code
scanning reads neither `baselineState` nor `suppressions`, so it would open an alert for each of them. It closes
an alert if the result is missing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from cfglint_rules import registry
from cfglint_train.documents.document import Document, Position
from cfglint_train.findings.finding import FileEdit, Finding
from cfglint_train.foundation.redact import Redact, build_redaction
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.judging.result import Result, Trouble
from cfglint_train.reports import text
from cfglint_train.reports.details import list_details, list_part_codes, list_related_places
from cfglint_train.reports.escape import escape_data
from cfglint_train.reports.fingerprints import compute_fingerprints
from cfglint_train.reports.fixes import mask_fix
from cfglint_train.reports.json import encode_compact, render_array
from cfglint_train.reports.line_hash import compute_line_hashes
from cfglint_train.reports.places import collect_documents, compute_utf16_column, format_uri, make_checkout_path
from cfglint_train.reports.style import PLAIN, Style
from cfglint_train.version import VERSION

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_MESSAGE_LABELS: Final = ("note", "help", "")
_LEVELS: Final = {"error": "error", "warning": "warning", "info": "note"}


def report(result: Result, style: Style = PLAIN) -> Iterator[str]:
    """Report everything as a log of one run, with one line per rule and per result."""
    codes = sorted({finding.code for finding in result.findings})
    yield f'{{"$schema": "{SCHEMA}", "version": "2.1.0", "runs": [{{"columnKind": "utf16CodeUnits",'
    yield f'"tool": {{"driver": {{"name": "cfglint", "version": "{VERSION}", "semanticVersion": "{VERSION}",'
    yield from render_array("rules", (_build_rule(code, style) for code in codes), "}},")
    yield f'"invocations": [{encode_compact(_build_invocation(result))}],'
    yield from render_array("results", _build_results(result, codes), "}]}")


def _build_rule(code: str, style: Style) -> dict[str, Any]:
    rule = registry.RULES[code]
    head, _, body = (registry.load_module(rule).__doc__ or "").strip().partition("\n")
    short = head.removeprefix(f"{code} {rule.name}: ")
    page = style.build_page_url(code, rule.name)
    return {
        "id": code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": short},
        "fullDescription": {"text": short},
        "help": {"text": body.strip(), "markdown": body.strip()},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"tags": [code[:3], rule.name]},
        **({} if page is None else {"helpUri": page}),
    }


def _build_results(result: Result, codes: list[str]) -> Iterator[dict[str, Any]]:
    redact = build_redaction(result.secrets)
    documents_by_path = collect_documents(result)
    root = os.environ.get("GITHUB_WORKSPACE")
    hashes = _hash_lines(result)
    for finding, fingerprint, earlier in compute_fingerprints(result, root):
        prints = {"cfglint/v1": f"{fingerprint}:{earlier + 1}"}
        line_hash = hashes.get(finding.path, {}).get(finding.start.line)
        if line_hash is not None:
            prints["primaryLocationLineHash"] = line_hash
        entry: dict[str, Any] = {
            "ruleId": finding.code,
            "ruleIndex": codes.index(finding.code),
            "level": _LEVELS[finding.severity],
            "message": {"text": _format_message(finding, redact)},
            "locations": [_build_location(finding.path, _get_document(finding), finding.start, finding.end, root)],
            "partialFingerprints": prints,
            **({} if result.accepted is None else {"baselineState": "new"}),
            "properties": {
                "certainty": finding.certainty,
                "restsOn": [f"{ground.fact} ({ground.grade})" for ground in finding.rests_on],
                **({"also": list(also)} if (also := list_part_codes(finding)) else {}),
            },
        }
        related_locations = [
            {
                "id": number,
                "message": {"text": escape_data(place.message)},
                **_build_location(place.path, documents_by_path.get(place.path), place.start, place.end, root),
            }
            for number, place in enumerate(list_related_places(finding, redact), 1)
        ]
        if related_locations:
            entry["relatedLocations"] = related_locations
        if finding.fix is not None:
            fix = mask_fix(finding.fix, redact)
            if fix.edits:
                message = f"{fix.message} ({fix.applicability})"
                changes = [
                    _build_change(path, edits, documents_by_path, root)
                    for path, edits in _group_by_path(fix.edits).items()
                ]
                entry["fixes"] = [{"description": {"text": escape_data(message)}, "artifactChanges": changes}]
        yield entry


def _format_message(finding: Finding, redact: Redact) -> str:
    """Return the headline, followed by the parts that SARIF has no field for: notes, help, and fixes without edits."""
    lines = [
        f"{label}: {line}" if label else line
        for label, line in list_details(finding, redact)
        if label in _MESSAGE_LABELS
    ]
    return escape_data("\n".join((redact(finding.message), *lines)))


def _hash_lines(result: Result) -> Mapping[str, Mapping[int, str]]:
    """Return the hashes by which GitHub recognizes the lines of findings, by path and line number."""
    line_numbers: dict[str, set[int]] = {}
    sources: dict[str, bytes] = {}
    for finding in result.findings:
        if finding.place is not None:
            line_numbers.setdefault(finding.path, set()).add(finding.start.line)
            sources[finding.path] = finding.place.document.source
    return {
        path: compute_line_hashes(sources[path].decode("utf-8", "replace"), lines)
        for path, lines in line_numbers.items()
    }


def _get_document(finding: Finding) -> Document | None:
    return None if finding.place is None else finding.place.document


def _build_location(
    path: str, document: Document | None, start: Position, end: Position, root: str | None
) -> dict[str, Any]:
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": format_uri(make_checkout_path(path, root))},
            "region": _build_region(document, start, end),
        }
    }


def _build_region(document: Document | None, start: Position, end: Position) -> dict[str, int]:
    return {
        "startLine": start.line,
        "startColumn": compute_utf16_column(document, start),
        "endLine": end.line,
        "endColumn": compute_utf16_column(document, end),
    }


def _group_by_path(edits: tuple[FileEdit, ...]) -> dict[str, list[FileEdit]]:
    groups: dict[str, list[FileEdit]] = {}
    for edit in edits:
        groups.setdefault(edit.path, []).append(edit)
    return groups


def _build_change(
    path: str, edits: list[FileEdit], documents_by_path: Mapping[str, Document], root: str | None
) -> dict[str, Any]:
    return {
        "artifactLocation": {"uri": format_uri(make_checkout_path(path, root))},
        "replacements": [
            {
                "deletedRegion": _build_region(documents_by_path.get(path), edit.start, edit.end),
                "insertedContent": {"text": escape_data(edit.edit.text)},
            }
            for edit in edits
        ],
    }


def _build_invocation(result: Result) -> dict[str, Any]:
    """Return the outcome of the lint itself, with the problems that no finding reports."""
    redact = build_redaction(result.secrets)
    root = os.environ.get("GITHUB_WORKSPACE")

    def build_notification(trouble: Trouble) -> dict[str, Any]:
        place: dict[str, Any] = {"artifactLocation": {"uri": format_uri(make_checkout_path(trouble.path, root))}}
        if trouble.position is not None:
            place["region"] = {"startLine": trouble.position.line}
        return {
            "level": "error",
            "message": {"text": escape_data(redact(text.format_trouble_message(trouble)))},
            "locations": [{"physicalLocation": place}],
        }

    notices = [build_notification(trouble) for trouble in text.find_unreported_troubles(result)]
    notifications = {"toolExecutionNotifications": notices} if notices else {}
    return {"executionSuccessful": not result.troubles, **notifications}
