"""GitLab code quality report: a list of issues in the subset of the Code Climate format that GitLab reads.

Source: docs.gitlab.com, "Code Quality", "Import code quality results": description, check_name, fingerprint, severity,
and a location with a path and the first line (or positions).
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from cfglint_train.findings.finding import Finding
from cfglint_train.foundation.redact import Redact, build_redaction
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.judging.result import Result
from cfglint_train.reports import text
from cfglint_train.reports.details import format_details, format_related_places
from cfglint_train.reports.escape import escape_data
from cfglint_train.reports.fingerprints import compute_fingerprints
from cfglint_train.reports.json import render_list
from cfglint_train.reports.places import make_checkout_path
from cfglint_train.reports.style import PLAIN, Style

_SEVERITIES: Final = {"error": "critical", "warning": "major", "info": "minor"}


def report(result: Result, style: Style = PLAIN) -> Iterator[str]:
    """Report the list of issues, one per line."""
    return render_list("[", _build_issues(result, style), "]")


def _build_issues(result: Result, style: Style) -> Iterator[dict[str, Any]]:
    redact = build_redaction(result.secrets)
    root = os.environ.get("CI_PROJECT_DIR")
    for finding, fingerprint, earlier in compute_fingerprints(result, root):
        yield {
            "description": escape_data(redact(finding.message)),
            "check_name": finding.code,
            **_build_content(finding, redact, style),
            # GitLab merges issues with the same fingerprint.
            "fingerprint": f"{fingerprint}{earlier:04x}",
            "severity": _SEVERITIES[finding.severity],
            "location": {
                "path": escape_data(make_checkout_path(finding.path, root)),
                "positions": {
                    "begin": {"line": finding.start.line, "column": finding.start.column},
                    "end": {"line": finding.end.line, "column": finding.end.column},
                },
            },
        }
    for number, trouble in enumerate(text.find_unreported_troubles(result)):
        yield {
            "description": escape_data(redact(text.format_trouble_message(trouble))) or "cfglint failed",
            "check_name": "cfglint",
            "fingerprint": (
                f"trouble-{number:04x}-{trouble.rule or ''}-{escape_data(make_checkout_path(trouble.path, root))}"
            ),
            "severity": "blocker",
            "location": {
                "path": escape_data(make_checkout_path(trouble.path, root)),
                "lines": {"begin": trouble.position.line if trouble.position is not None else 1},
            },
        }


def _build_content(finding: Finding, redact: Redact, style: Style) -> dict[str, Any]:
    """Return notes, help, related places and the rule's page in a Code Climate field that GitLab ignores."""
    pages = style.get_page_lines(finding.code, finding.name)
    lines = (*format_related_places(finding, redact), *format_details(finding, redact), *pages)
    body = escape_data("\n".join(lines))
    return {"content": {"body": body}} if body else {}
