"""Annotations as GitHub workflow commands, then every finding as a plain line in the log.

The runner keeps the first ten errors, the first ten warnings and the first ten notices of a step
(`ExecutionContext.cs`). So cfglint emits the most severe findings first, at most nine of each kind, and one notice with
the number of findings omitted. GitHub respects columns only if the annotation covers a single line.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from cfglint_train.documents.document import Position
from cfglint_train.findings.finding import SEVERITIES, Finding
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.redact import Redact, build_redaction
from cfglint_train.foundation.typed import Final
from cfglint_train.judging.result import Result
from cfglint_train.reports import text
from cfglint_train.reports.details import format_details, format_related_places
from cfglint_train.reports.escape import escape_command_message, escape_command_property
from cfglint_train.reports.places import make_checkout_path
from cfglint_train.reports.style import PLAIN, Style

_LEVELS: Final = {"error": "error", "warning": "warning", "info": "notice"}
_MAX_PER_LEVEL: Final = 9
_MESSAGE_LIMIT: Final = 4096


class Annotation(Frozen):
    """The contents of a workflow command."""

    path: str
    title: str
    message: str
    start: Position | None
    end: Position | None


def report(result: Result, style: Style = PLAIN) -> Iterator[str]:
    """Report the annotations, then the list of all findings."""
    yield from render_commands(result, "the log of this step", style=style)
    yield from text.concise(result)


def render_commands(
    result: Result, where: str, changed: Callable[[Finding], bool] | None = None, style: Style = PLAIN
) -> Iterator[str]:
    """Yield a command for up to nine findings of each severity, those on changed lines first.

    `changed` returns whether a finding is on a changed line. `where` names the place that lists all findings.
    """
    redact = build_redaction(result.secrets)
    omitted = 0
    for severity in SEVERITIES:
        findings = [finding for finding in result.findings if finding.severity == severity]
        if changed is not None:
            findings.sort(key=lambda finding: not changed(finding))
        annotations = [_build_annotation(finding, redact, style) for finding in findings]
        if severity == "error":
            annotations = [*_annotate_troubles(result, redact), *annotations]
        for annotation in annotations[:_MAX_PER_LEVEL]:
            yield _render_command(_LEVELS[severity], annotation)
        omitted += max(0, len(annotations) - _MAX_PER_LEVEL)
    if omitted:
        yield f"::notice title=cfglint::{omitted} more: see {escape_command_message(where)}"


def _build_annotation(finding: Finding, redact: Redact, style: Style) -> Annotation:
    pages = style.get_page_lines(finding.code, finding.name)
    lines = [redact(finding.message), *format_related_places(finding, redact), *format_details(finding, redact), *pages]
    title = f"{finding.code} {finding.name}"
    return Annotation(finding.path, title, "\n".join(lines), finding.start, finding.end)


def _annotate_troubles(result: Result, redact: Redact) -> Iterator[Annotation]:
    """Yield an annotation for each problem that no finding reports."""
    for trouble in text.find_unreported_troubles(result):
        yield Annotation(
            trouble.path, "cfglint", redact(text.format_trouble_message(trouble)), trouble.position, trouble.position
        )


def _render_command(level: str, annotation: Annotation) -> str:
    start, end = annotation.start, annotation.end
    path = make_checkout_path(annotation.path, os.environ.get("GITHUB_WORKSPACE"))
    properties = [f"file={escape_command_property(path)}", f"title={escape_command_property(annotation.title)}"]
    if start is not None and end is not None:
        properties += [f"line={start.line}", f"endLine={end.line}"]
        if start.line == end.line:
            properties += [f"endColumn={end.column}", f"col={start.column}"]
    message = annotation.message
    if len(message) > _MESSAGE_LIMIT:
        message = message[: _MESSAGE_LIMIT - 3] + "..."
    return f"::{level} {','.join(properties)}::{escape_command_message(message)}"
