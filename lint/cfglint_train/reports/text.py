"""Reports for people: one block per finding with its source line, one line per finding, or those lines by file."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from cfglint_train.documents.document import Document, Position
from cfglint_train.findings.finding import Finding
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.redact import Redact, redaction
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.wording import counted, some
from cfglint_train.judging.result import Result, Trouble
from cfglint_train.plan.certainty import LOWERED
from cfglint_train.reports.details import details
from cfglint_train.reports.escape import leading, printable, source_line
from cfglint_train.reports.style import PLAIN, Style

_COLORS: Final = {"error": "31;1", "warning": "33;1", "info": "36;1"}
_RELATED: Final = "34;1"
"""The colour of the marks of further places; those of the finding have its severity's."""
_FRAME_WIDTH: Final = 160
_GUTTER: Final = 13
"""Columns of a frame beside the source: the line number, and dots where the line goes on."""
_BEFORE: Final = 60
"""Of a long line, how much is shown before the marked columns."""


def full(result: Result, style: Style = PLAIN) -> Iterator[str]:
    """Every finding with its source frame, then a summary."""
    redact = redaction(result.secrets)
    if not style.quiet:
        yield from _answer(result, style)
    for finding in result.findings:
        yield from _block(finding, style, redact)
        yield ""
    yield from troubles(result, style)
    if not style.quiet:
        yield from summary(result)
        if result.findings:
            yield "Run `cfglint rule CODE` for an explanation."


def _answer(result: Result, style: Style) -> Iterator[str]:
    """Yield whether the run fits, if there is one, and an empty line in front of findings."""
    if len(result.runs) == 1:
        from cfglint_train.reports.answer import of_lint

        line = of_lint(result)
        if line is not None:
            yield from wrapped("", line, style, 2)
            yield from [""] if result.findings or result.troubles else []


def concise(result: Result, style: Style = PLAIN) -> Iterator[str]:
    """Every finding on one line, then a summary."""
    redact = redaction(result.secrets)
    for finding in result.findings:
        yield f"{_head(finding, style)}{_mark(finding)} {printable(redact(finding.message))}"
    yield from troubles(result)
    if not style.quiet:
        yield from summary(result)


def grouped(result: Result, style: Style = PLAIN) -> Iterator[str]:
    """The findings of each file below its name, places and codes in columns, then a summary."""
    redact = redaction(result.secrets)
    for path, group in groupby(result.findings, key=lambda finding: finding.path):
        found = list(group)
        places = [f"{finding.start.line}:{finding.start.column}" for finding in found]
        width = max(map(len, places))
        yield style.paint(leading(path), "1")
        for place, finding in zip(places, found):
            severity = style.paint(f"{finding.severity:<7}", _COLORS[finding.severity])
            head = f"  {place.rjust(width)}  {severity}  {_code(finding, style)}{_mark(finding)} "
            yield from wrapped(head, printable(redact(finding.message)), style, width + 20)
        yield ""
    yield from troubles(result, style)
    if not style.quiet:
        yield from summary(result)


def _head(finding: Finding, style: Style) -> str:
    severity = style.paint(finding.severity, _COLORS[finding.severity])
    return f"{leading(finding.path)}:{finding.start.line}:{finding.start.column}: {severity} {_code(finding, style)}"


def _code(finding: Finding, style: Style) -> str:
    return style.link(style.paint(finding.code, "1"), style.page(finding.code, finding.name))


def _mark(finding: Finding) -> str:
    """The mark of a finding that --fix settles."""
    return " [*]" if finding.fix is not None and finding.fix.edits else ""


def _block(finding: Finding, style: Style, redact: Redact) -> Iterator[str]:
    yield from wrapped(f"{_head(finding, style)} ", f"{printable(redact(finding.message))} ({finding.name})", style, 5)
    for one in _marked(finding):
        document = one.document
        if document.path != finding.path:
            yield f"  --> {leading(document.path)}:{one.start.line}:{one.start.column}"
        yield from _frame(
            document, one.start, one.end, one.mark, one.label, style, redact, _COLORS.get(one.severity, _RELATED)
        )
    for label, text in details(finding, redact):
        yield from wrapped(f"   = {label}: " if label else "   = ", printable(text), style, 5)


class _Marked(Frozen):
    """A place that is shown, and how."""

    document: Document
    start: Position
    end: Position
    mark: str
    label: str = ""
    severity: str = ""


def _marked(finding: Finding) -> list[_Marked]:
    """The places of a finding, those of its own file first, and those of each file in the order of the file."""
    found = []
    if finding.place is not None:
        found.append(_Marked(finding.place.document, finding.start, finding.end, "^", severity=finding.severity))
    for related in finding.related:
        document, span = related.place.document, related.place.span
        found.append(
            _Marked(document, document.position(span.start), document.position(span.end), "-", related.message)
        )
    files = list(dict.fromkeys((finding.path, *(one.document.path for one in found))))
    return sorted(found, key=lambda one: (files.index(one.document.path), one.start))


_CONTROL: Final = r"\x1b(?:\[[0-9;]*m|\]8;;[^\x1b]*\x1b\\)"
"""What `Look` puts into a text and takes no column."""


def wrapped(head: str, text: str, style: Style, indent: int) -> Iterator[str]:
    """A head with its text, broken at the width of the terminal; the gutter of further lines is never blank."""
    import re

    width = 0 if style.width is None else style.width
    taken = _width(re.sub(_CONTROL, "", head)) if width else 0
    if width < indent + 20 or taken + _width(text) <= width:
        yield head + text
        return
    line = head
    fresh = True
    for word in text.split(" "):
        if not fresh and taken + 1 + _width(word) > width:
            yield line
            line, taken, fresh = f"{' ' * (indent - 2)}| ", indent, True
        line += word if fresh else f" {word}"
        taken += _width(word) + (not fresh)
        fresh = False
    yield line


def _frame(
    document: Document,
    start: Position,
    end: Position,
    mark: str,
    label: str,
    style: Style,
    redact: Redact,
    color: str = _RELATED,
) -> Iterator[str]:
    """The line, and below it the marked columns. Every line has a gutter that is not blank.

    Of a long line the part around the marked columns is shown.
    """
    if start.line > len(document.line_starts):
        return
    begin = document.line_starts[start.line - 1]
    line = redact(document.source[begin : document.line_end(begin)].decode("utf-8-sig", "replace"))
    first = start.column - 1
    last = end.column - 1 if end.line == start.line else len(line)
    room = _FRAME_WIDTH if style.width is None else max(_BEFORE, style.width - _GUTTER)
    left = max(0, min(first - _BEFORE, len(line) - room)) if len(line) > room else 0
    right = min(len(line), left + room)
    before = ("..." if left else "") + source_line(line[left:first])
    marked = source_line(line[first : min(last, right)])
    after = source_line(line[max(first, min(last, right)) : right]) + ("..." if right < len(line) else "")
    carets = style.paint(mark * max(1, _width(marked)), color)
    note = f" {printable(redact(label))}" if label else ""
    yield f"{str(start.line).rjust(4)} | {source_line(before + marked + after)}"
    yield f"     | {' ' * _width(before)}{carets}{note}"


def _width(text: str) -> int:
    """Columns of a terminal that a text takes."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(one) else 2 if east_asian_width(one) in "WF" else 1 for one in text)


def troubles(result: Result, style: Style = PLAIN) -> Iterator[str]:
    """What kept cfglint from its work, unless a finding already says it."""
    redact = redaction(result.secrets)
    for trouble in untold(result):
        yield from wrapped("error: ", trouble_line(trouble, redact), style, 5)


def untold(result: Result) -> Iterator[Trouble]:
    """The troubles that no finding reports."""
    told = {(finding.path, finding.message) for finding in result.findings}
    return (trouble for trouble in result.troubles if (trouble.path, trouble.message) not in told)


def trouble_line(trouble: Trouble, redact: Redact) -> str:
    """One trouble on one line."""
    place = f":{trouble.position.line}:{trouble.position.column}" if trouble.position is not None else ""
    return f"{leading(trouble.path)}{place}: {printable(redact(trouble_message(trouble)))}"


def trouble_message(trouble: Trouble) -> str:
    """What happened, and who should read it."""
    if trouble.rule is not None:
        return f"rule {trouble.rule} crashed (please report it): {trouble.message}"
    return f"cfglint failed (please report it): {trouble.message}" if trouble.ours else trouble.message


def summary(result: Result) -> Iterator[str]:
    """What was left out, how many findings there are, and how many of them --fix would settle."""
    yield from left_out(result)
    counts = dict.fromkeys(_COLORS, 0)
    for finding in result.findings:
        counts[finding.severity] += 1
    looked = len({*(file.path for file in result.files), *(trouble.path for trouble in result.troubles)})
    if not result.findings and not result.troubles:
        yield f"No findings in {counted(looked, 'file')}." if looked else nothing(result)
        yield from _accepted(result)
        return
    parts = [counted(count, severity) for severity, count in counts.items() if count]
    if parts:
        yield f"Found {', '.join(parts)} in {counted(looked, 'file')}."
    yield from _accepted(result)
    yield from lowered(result)
    unchecked = not_checked(result)
    if unchecked is not None:
        yield unchecked
    fixes = [finding.fix.applicability for finding in result.findings if finding.fix is not None and finding.fix.edits]
    safe, unsafe = fixes.count("safe"), fixes.count("unsafe")
    if safe:
        more = f" ({unsafe} more with --unsafe-fixes)" if unsafe else ""
        yield f"{counted(safe, 'finding')} fixable with --fix{more}."
    elif unsafe:
        yield f"{counted(unsafe, 'finding')} fixable with --fix --unsafe-fixes."


def nothing(result: Result) -> str:
    """Return what was looked at where none of it is a configuration."""
    if not result.looked_at:
        kinds = "there are no YAML, JSON, shell or Python files, or the settings exclude them"
        return f"warning: no training config found: {kinds}"
    looked = f"looked at {counted(result.looked_at, 'file')}"
    return f"warning: no training config found: {looked}, and cfglint recognises none (--verbose says why)"


def lowered(result: Result) -> Iterator[str]:
    """Return how many findings each piece of evidence about the repository made one level milder."""
    grounds = (ground for finding in result.findings for ground in finding.rests_on if ground.fact == LOWERED)
    for evidence, count in Counter(str(ground.value) for ground in grounds).items():
        yield f"{counted(count, 'finding')} lowered: {printable(evidence)}."


def no_run(result: Result) -> str:
    """Return what was looked at if there is no run in it."""
    read = counted(len(result.files), "file")
    return f"no run in {read} that cfglint recognises; --verbose says why" if result.files else nothing(result)


_MOST_NAMED: Final = 5
"""Files that are said to be left out, one line each; a shell's pattern may name hundreds."""


def left_out(result: Result) -> Iterator[str]:
    """Yield the files that a person named and that are no configurations, and how many look like another tool's."""
    reported = {finding.path for finding in result.findings}
    named = [one for one in result.skipped if one.named and one.path not in reported]
    for one in named[:_MOST_NAMED]:
        reason = f"it looks like {one.looks_like}, which is not supported" if one.looks_like else one.reason
        yield f"{leading(one.path)}: not recognised as a training configuration ({printable(reason)})"
    if len(named) > _MOST_NAMED:
        more = counted(len(named) - _MOST_NAMED, "more file")
        yield f"{more} not recognised as training configurations (--verbose says why)"
    for tool in result.unsupported:
        count = len(tool.paths)
        yield f"{counted(count, 'file')} look{'s' if count == 1 else ''} like {tool.framework}, which is not supported"


def _accepted(result: Result) -> Iterator[str]:
    """How many findings the baseline accepts, and which of its entries are stale."""
    if result.accepted is None:
        return
    name = leading(os.path.relpath(result.accepted.path))
    if result.accepted.known:
        yield f"{counted(len(result.accepted.known), 'accepted finding')} not shown ({name})."
    if result.accepted.stale:
        entries = some(list(dict.fromkeys(f"{leading(one.path)} {one.code}" for one in result.accepted.stale)))
        gone = counted(result.accepted.gone, "accepted finding")
        yield f"{gone} of {name} no longer found: {entries}; --write-baseline removes them."


def not_checked(result: Result) -> str | None:
    """How many runs were not checked; None where all were."""
    count = sum(finding.runs for finding in result.not_checked)
    if not count:
        return None
    of = "" if count == result.runs_met else f" of {result.runs_met}"
    return f"Memory was not checked for {count}{of} run{'s' if (result.runs_met if of else count) != 1 else ''}."


def files(result: Result) -> Iterator[str]:
    """Yield a line for each configuration: its path, its framework, its role."""
    width = max((len(leading(file.path)) for file in result.files), default=0)
    for file in result.files:
        yield f"{leading(file.path):<{width}}  {file.framework} {file.role}"
