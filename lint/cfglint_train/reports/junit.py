"""JUnit XML: a suite per file, a failure per finding, and a passing case for each file without findings.

Elements and attributes follow the schema that Jenkins' xUnit plugin checks (junit-10.xsd).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cfglint_train.findings.finding import Finding
from cfglint_train.foundation.redact import Redact, build_redaction
from cfglint_train.judging.result import Result
from cfglint_train.reports import text
from cfglint_train.reports.details import format_details, format_related_places
from cfglint_train.reports.escape import escape_text
from cfglint_train.reports.style import PLAIN, Style


def report(result: Result, style: Style = PLAIN) -> Iterator[str]:
    """Report the whole document, with one line per case."""
    redact = build_redaction(result.secrets)
    findings: dict[str, list[Finding]] = {file.path: [] for file in result.files}
    for finding in result.findings:
        findings.setdefault(finding.path, []).append(finding)
    errors: dict[str, list[str]] = {}
    for trouble in text.find_unreported_troubles(result):
        message = text.format_trouble_message(trouble)
        place = "" if trouble.position is None else f"line {trouble.position.line}: "
        errors.setdefault(trouble.path, []).append(_escape_attribute(redact(f"{place}{message}")))
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    tests = sum(max(1, len(findings.get(path, ())) + len(errors.get(path, ()))) for path in findings.keys() | errors)
    failures, error_count = len(result.findings), sum(map(len, errors.values()))
    yield f'<testsuites name="cfglint" tests="{tests}" failures="{failures}" errors="{error_count}">'
    for path in sorted(findings.keys() | errors):
        yield from _render_suite(_escape_attribute(path), findings.get(path, []), errors.get(path, []), redact, style)
    yield "</testsuites>"


def _render_suite(name: str, findings: list[Finding], errors: list[str], redact: Redact, style: Style) -> Iterator[str]:
    tests = max(1, len(findings) + len(errors))
    counts = f'tests="{tests}" failures="{len(findings)}" errors="{len(errors)}" skipped="0"'
    yield f'<testsuite name="{name}" {counts}>'
    if not findings and not errors:
        yield f'<testcase name="cfglint" classname="{name}" />'
    for finding in findings:
        place = f"line {finding.start.line}, column {finding.start.column}"
        message = _escape_attribute(redact(finding.message))
        pages = style.get_page_lines(finding.code, finding.name)
        lines = (*format_related_places(finding, redact), *format_details(finding, redact), *pages)
        more = "".join(f"&#10;{_escape_attribute(line)}" for line in lines)
        yield (
            f'<testcase name="{finding.code} {finding.name} ({place})" classname="{name}">'
            f'<failure type="{finding.severity}" message="{message}">{name}, {place}: {message}{more}</failure>'
            "</testcase>"
        )
    for message in errors:
        yield f'<testcase name="cfglint" classname="{name}"><error message="{message}" /></testcase>'
    yield "</testsuite>"


_ENTITIES = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;", ord('"'): "&quot;", ord("'"): "&apos;"}


def _escape_attribute(value: str) -> str:
    """Escape a string for an attribute or element; characters that XML 1.0 forbids become visible escapes."""
    escaped = re.sub("[\ufffe\uffff]", lambda match: f"\\u{ord(match[0]):04x}", escape_text(value))
    return escaped.translate(_ENTITIES)
