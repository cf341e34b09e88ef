"""JSON report, version 1, in a stable order: one object, or one object per line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from json import dumps

from cfglint_train import records
from cfglint_train.findings.finding import Finding, Remedy
from cfglint_train.foundation.redact import Redact, build_redaction
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.judging.result import CheckedFile, Result, UnsupportedFiles
from cfglint_train.plan import certainty as plan
from cfglint_train.records import Edit, Failure, Fix, Ground, NotChecked, RelatedPlace
from cfglint_train.reports.details import list_part_codes, list_related_places
from cfglint_train.reports.escape import escape_data
from cfglint_train.reports.fixes import mask_fix
from cfglint_train.reports.style import PLAIN, Style
from cfglint_train.repository.documents import SkippedFile

if TYPE_CHECKING:
    from cfglint_train.fixing.loop import Applied, FixOutcome, Refused

VERSION: Final = 1


def report(result: Result, style: Style = PLAIN) -> Iterator[str]:
    """Report everything as one JSON object, with one line per record."""
    yield f'{{"version": {VERSION},'
    yield from render_array("files", map(convert_record, list_files(result)), ",")
    yield from render_array("findings", (_add_url(finding, style) for finding in list_findings(result)), ",")
    yield from render_array("not_checked", map(convert_record, list_not_checked(result)), ",")
    yield f'"runs": {encode_compact(convert_record(result.run_counts))},'
    yield from render_array("unsupported", map(convert_record, list_unsupported(result)), ",")
    yield from render_array("errors", map(convert_record, list_failures(result)), "}")


def lines(result: Result, style: Style = PLAIN) -> Iterator[str]:
    """Yield every record as an object on its own line, with its kind in `type`."""
    for kind, listing in (
        ("file", map(convert_record, list_files(result))),
        ("finding", (_add_url(finding, style) for finding in list_findings(result))),
        ("not_checked", map(convert_record, list_not_checked(result))),
        ("runs", iter((convert_record(result.run_counts),))),
        ("unsupported", map(convert_record, list_unsupported(result))),
        ("error", map(convert_record, list_failures(result))),
    ):
        for record in listing:
            yield encode_compact({"type": kind, **record})


def render_file_list(result: Result) -> Iterator[str]:
    """Yield the checked files as a JSON list, one per line."""
    return render_list("[", map(convert_record, list_files(result)), "]")


def render_array(name: str, records: Iterable[Any], end: str) -> Iterator[str]:
    """Yield a member of an object whose value is a list, one record per line, followed by `end`."""
    return render_list(f'"{name}": [', records, f"]{end}")


def render_list(head: str, records: Iterable[Any], end: str) -> Iterator[str]:
    """Yield `head`, the records, one per line, and `end`."""
    pending = head
    separator = ""
    for record in records:
        yield pending + separator
        pending, separator = encode_compact(record), ","
    yield pending + end


def encode(value: Any) -> str:
    """Return a value as indented JSON that is safe to print; escaping does not change its meaning."""
    return _escape_commands(dumps(value, indent=2))


def encode_compact(value: Any) -> str:
    """Return a value as JSON on one line that is safe to print."""
    return _escape_commands(dumps(value))


def _escape_commands(text: str) -> str:
    """Escape `##[command]`, which GitHub's runner executes, and DEL, which terminals may interpret."""
    if "##" in text:
        text = re.sub(r"##([A-Za-z]*)\[", r"##\1\\u005b", text)
    return text.replace("\x7f", "\\u007f")


def convert_record(value: Any) -> Any:
    """Return a value with every record in it converted to a dict, and every tuple to a list."""
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)
        return list(map(convert_record, value)) if names is None else dict(zip(names, map(convert_record, value)))
    return value


def build_document(result: Result) -> dict[str, Any]:
    """Return the report as plain values."""
    return {
        "version": VERSION,
        "files": list(map(convert_record, list_files(result))),
        "findings": list(map(convert_record, list_findings(result))),
        "not_checked": list(map(convert_record, list_not_checked(result))),
        "runs": convert_record(result.run_counts),
        "unsupported": list(map(convert_record, list_unsupported(result))),
        "errors": list(map(convert_record, list_failures(result))),
    }


def list_files(result: Result) -> Iterator[CheckedFile]:
    """Return the checked files of a lint."""
    return (CheckedFile(escape_data(file.path), file.framework, file.role) for file in result.files)


def list_unsupported(result: Result) -> Iterator[UnsupportedFiles]:
    """Return the files of a lint that look like configurations of unsupported tools, by tool."""
    return (UnsupportedFiles(group.framework, tuple(map(escape_data, group.paths))) for group in result.unsupported)


def list_skipped(result: Result) -> Iterator[SkippedFile]:
    """Return the files that a lint skipped."""
    return (
        SkippedFile(escape_data(file.path), escape_data(file.reason), file.named, file.looks_like)
        for file in result.skipped
    )


def list_applied(fixed: FixOutcome) -> Iterator[Applied]:
    """Yield the applied fixes."""
    redact = build_redaction(fixed.result.secrets)
    for fix in fixed.applied:
        yield type(fix)(
            escape_data(fix.path), fix.code, escape_data(redact(fix.message)), tuple(map(escape_data, fix.files))
        )


def list_refused(fixed: FixOutcome) -> Iterator[Refused]:
    """Return the fixes that could not be applied."""
    redact = build_redaction(fixed.result.secrets)
    return (type(fix)(escape_data(fix.path), fix.code, escape_data(redact(fix.reason))) for fix in fixed.refused)


def list_failures(result: Result) -> Iterator[Failure]:
    """Yield the problems that kept cfglint from checking files or applying rules."""
    redact = build_redaction(result.secrets)
    for trouble in result.troubles:
        line, column = (None, None) if trouble.position is None else trouble.position
        yield Failure(escape_data(trouble.path), line, column, trouble.rule, escape_data(redact(trouble.message)))


def list_not_checked(result: Result) -> Iterator[NotChecked]:
    """Yield the runs of a lint whose memory could not be checked."""
    redact = build_redaction(result.secrets)
    for finding in result.not_checked:
        help_ = escape_data(redact(finding.help)) if finding.help else None
        yield NotChecked(escape_data(finding.path), finding.start.line, escape_data(redact(finding.message)), help_)


def list_findings(result: Result) -> Iterator[records.Finding]:
    """Return the findings of a lint."""
    redact = build_redaction(result.secrets)
    return (_build_finding(finding, redact) for finding in result.findings)


def _build_finding(finding: Finding, redact: Redact) -> records.Finding:
    return records.Finding(
        code=finding.code,
        name=finding.name,
        severity=finding.severity,
        path=escape_data(finding.path),
        line=finding.start.line,
        column=finding.start.column,
        end_line=finding.end.line,
        end_column=finding.end.column,
        message=escape_data(redact(finding.message)),
        help=escape_data(redact(finding.help)) if finding.help else None,
        notes=tuple([escape_data(redact(note)) for note in finding.notes if note]),
        related=tuple(
            [
                RelatedPlace(escape_data(place.path), *place.start, *place.end, escape_data(place.message))
                for place in list_related_places(finding, redact)
            ]
        ),
        certainty=finding.certainty,
        rests_on=tuple([_build_ground(ground, redact) for ground in finding.rests_on]),
        fix=None if finding.fix is None else _build_fix(finding.fix, redact),
        also=list_part_codes(finding),
    )


def _add_url(finding: records.Finding, style: Style) -> dict[str, Any]:
    """Return the fields of a finding, with the URL of its rule's page if one is configured."""
    page = style.build_page_url(finding.code, finding.name)
    return convert_record(finding) if page is None else {**convert_record(finding), "url": page}


def _build_ground(ground: plan.Ground, redact: Redact) -> Ground:
    value = ground.value
    printed = value if value is None or isinstance(value, (bool, int, float)) else escape_data(redact(str(value)))
    return Ground(escape_data(ground.fact), printed, ground.grade, escape_data(redact(ground.note)))


def _build_fix(remedy: Remedy, redact: Redact) -> Fix:
    fix = mask_fix(remedy, redact)
    edits = [Edit(escape_data(edit.path), *edit.start, *edit.end, escape_data(edit.edit.text)) for edit in fix.edits]
    return Fix(fix.applicability, escape_data(fix.message), tuple(edits))
