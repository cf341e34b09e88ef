"""The JSON report, version 1, in a stable order: one object, or one object per line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from json import dumps

from cfglint_train import records
from cfglint_train.findings.finding import Finding, Remedy
from cfglint_train.foundation.redact import Redact, redaction
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.judging.result import CheckedFile, Result, UnsupportedFiles
from cfglint_train.plan import certainty as plan
from cfglint_train.records import Edit, Failure, Fix, Ground, NotChecked, RelatedPlace
from cfglint_train.reports.details import related
from cfglint_train.reports.escape import plain
from cfglint_train.reports.fixes import shown
from cfglint_train.reports.style import PLAIN, Style
from cfglint_train.repository.documents import SkippedFile

if TYPE_CHECKING:
    from cfglint_train.fixing.loop import Applied, Fixed, Refused

VERSION: Final = 1


def report(result: Result, style: Style = PLAIN) -> Iterator[str]:
    """The whole object, a line for every record."""
    yield f'{{"version": {VERSION},'
    yield from array("files", map(values, files(result)), ",")
    yield from array("findings", (_linked(one, style) for one in findings(result)), ",")
    yield from array("not_checked", map(values, not_checked(result)), ",")
    yield from array("unsupported", map(values, unsupported(result)), ",")
    yield from array("errors", map(values, failures(result)), "}")


def lines(result: Result, style: Style = PLAIN) -> Iterator[str]:
    """Every record of the object on a line of its own, its kind in `type`."""
    for kind, listing in (
        ("file", map(values, files(result))),
        ("finding", (_linked(one, style) for one in findings(result))),
        ("not_checked", map(values, not_checked(result))),
        ("unsupported", map(values, unsupported(result))),
        ("error", map(values, failures(result))),
    ):
        for record in listing:
            yield compact({"type": kind, **record})


def file_list(result: Result) -> Iterator[str]:
    """The configurations alone, each on a line of its own."""
    return listed("[", map(values, files(result)), "]")


def array(name: str, records: Iterable[Any], end: str) -> Iterator[str]:
    """An entry of an object whose value is a list: every record on a line of its own, `end` behind the last one."""
    return listed(f'"{name}": [', records, f"]{end}")


def listed(head: str, records: Iterable[Any], end: str) -> Iterator[str]:
    """Records between two texts, each on a line of its own."""
    pending = head
    separator = ""
    for record in records:
        yield pending + separator
        pending, separator = compact(record), ","
    yield pending + end


def encoded(value: Any) -> str:
    """JSON text for people. It is harmless wherever it is shown, and what it means stays the same."""
    return _disarmed(dumps(value, indent=2))


def compact(value: Any) -> str:
    """The same on one line."""
    return _disarmed(dumps(value))


def _disarmed(text: str) -> str:
    """GitHub's runner would execute a line with `##[command]` in it; terminals may heed DEL."""
    if "##" in text:
        text = re.sub(r"##([A-Za-z]*)\[", r"##\1\\u005b", text)
    return text.replace("\x7f", "\\u007f")


def values(value: Any) -> Any:
    """Return a record as plain values: an object of its fields."""
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)
        return list(map(values, value)) if names is None else dict(zip(names, map(values, value)))
    return value


def document(result: Result) -> dict[str, Any]:
    """The report as plain values."""
    return {
        "version": VERSION,
        "files": list(map(values, files(result))),
        "findings": list(map(values, findings(result))),
        "not_checked": list(map(values, not_checked(result))),
        "unsupported": list(map(values, unsupported(result))),
        "errors": list(map(values, failures(result))),
    }


def files(result: Result) -> Iterator[CheckedFile]:
    """Yield the configurations of a lint."""
    return (CheckedFile(plain(one.path), one.framework, one.role) for one in result.files)


def unsupported(result: Result) -> Iterator[UnsupportedFiles]:
    """Yield the files of a lint that look like those of tools that are not supported, by tool."""
    return (UnsupportedFiles(one.framework, tuple(map(plain, one.paths))) for one in result.unsupported)


def skipped(result: Result) -> Iterator[SkippedFile]:
    """Yield the files that a lint left out."""
    return (SkippedFile(plain(one.path), plain(one.reason), one.named, one.looks_like) for one in result.skipped)


def applied(fixed: Fixed) -> Iterator[Applied]:
    """Yield the fixes that were made."""
    redact = redaction(fixed.result.secrets)
    for one in fixed.applied:
        yield type(one)(plain(one.path), one.code, plain(redact(one.message)), tuple(map(plain, one.files)))


def refused(fixed: Fixed) -> Iterator[Refused]:
    """Yield the fixes that could not be made."""
    redact = redaction(fixed.result.secrets)
    return (type(one)(plain(one.path), one.code, plain(redact(one.reason))) for one in fixed.refused)


def failures(result: Result) -> Iterator[Failure]:
    """Yield what kept a lint from its work."""
    redact = redaction(result.secrets)
    for one in result.troubles:
        line, column = (None, None) if one.position is None else one.position
        yield Failure(plain(one.path), line, column, one.rule, plain(redact(one.message)))


def not_checked(result: Result) -> Iterator[NotChecked]:
    """Yield the runs of a lint whose memory could not be checked."""
    redact = redaction(result.secrets)
    for one in result.not_checked:
        help_ = plain(redact(one.help)) if one.help else None
        yield NotChecked(plain(one.path), one.start.line, plain(redact(one.message)), help_)


def findings(result: Result) -> Iterator[records.Finding]:
    """Yield the findings of a lint."""
    redact = redaction(result.secrets)
    return (_finding(one, redact) for one in result.findings)


def _finding(one: Finding, redact: Redact) -> records.Finding:
    return records.Finding(
        code=one.code,
        name=one.name,
        severity=one.severity,
        path=plain(one.path),
        line=one.start.line,
        column=one.start.column,
        end_line=one.end.line,
        end_column=one.end.column,
        message=plain(redact(one.message)),
        help=plain(redact(one.help)) if one.help else None,
        notes=tuple([plain(redact(note)) for note in one.notes if note]),
        related=tuple(
            [RelatedPlace(plain(at.path), *at.start, *at.end, plain(at.message)) for at in related(one, redact)]
        ),
        certainty=one.certainty,
        rests_on=tuple([_ground(ground, redact) for ground in one.rests_on]),
        fix=None if one.fix is None else _fix(one.fix, redact),
    )


def _linked(finding: records.Finding, style: Style) -> dict[str, Any]:
    """A finding with the address of its rule's page, where that is stated."""
    page = style.page(finding.code, finding.name)
    return values(finding) if page is None else {**values(finding), "url": page}


def _ground(ground: plan.Ground, redact: Redact) -> Ground:
    value = ground.value
    shown = value if value is None or isinstance(value, (bool, int, float)) else plain(redact(str(value)))
    return Ground(plain(ground.fact), shown, ground.grade, plain(redact(ground.note)))


def _fix(remedy: Remedy, redact: Redact) -> Fix:
    fix = shown(remedy, redact)
    edits = [Edit(plain(one.path), *one.start, *one.end, plain(one.edit.text)) for one in fix.edits]
    return Fix(fix.applicability, plain(fix.message), tuple(edits))
