"""Text reports: a block per finding with its source line, one line per finding, or lines grouped by file."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from cfglint_train.documents.document import Document, Position
from cfglint_train.findings.finding import Finding
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.redact import Redact, build_redaction
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.wording import format_count, join_names
from cfglint_train.judging.result import Result, Trouble
from cfglint_train.plan.certainty import LOWERED
from cfglint_train.reports.escape import escape_line_start, escape_source_line, escape_text
from cfglint_train.reports.style import PLAIN, Style

_COLORS: Final = {"error": "31;1", "warning": "33;1", "info": "36;1"}
_RELATED_COLOR: Final = "34;1"
"""Color of the marks at related places; the marks at the finding's place use the color of its severity."""
_FRAME_WIDTH: Final = 160
_GUTTER: Final = 13
"""Columns of a frame beside the source: the line number, and the dots of a cut line."""
_CONTEXT: Final = 60
"""Columns of a long line that are shown before the marked columns."""


def full(result: Result, style: Style = PLAIN) -> Iterator[str]:
    """Report the answer for a single run, every finding with its source frame, and a summary."""
    redact = build_redaction(result.secrets)
    if not style.quiet:
        yield from _render_answer(result, style)
    for finding in result.findings:
        yield from _render_finding(finding, style, redact)
        yield ""
    yield from render_troubles(result, style)
    if not style.quiet:
        yield from render_summary(result, style.fix_command)
        if result.findings:
            yield "Run `cfglint rule CODE` for an explanation."


def _render_answer(result: Result, style: Style) -> Iterator[str]:
    """Yield a line that says whether the run fits, if there is exactly one run, and an empty line before findings."""
    if len(result.runs) == 1:
        from cfglint_train.reports.answer import answer_lint

        line = answer_lint(result)
        if line is not None:
            yield from wrap_text("", line, style, 2)
            yield from [""] if result.findings or result.troubles else []


def concise(result: Result, style: Style = PLAIN) -> Iterator[str]:
    """Report every finding on one line, then a summary."""
    redact = build_redaction(result.secrets)
    for finding in result.findings:
        message = escape_text(redact(finding.message))
        yield f"{_format_head(finding, style)}{_mark_fixable(finding)} {message}{_mark_parts(finding)}"
    yield from render_troubles(result)
    if not style.quiet:
        yield from render_summary(result)


def grouped(result: Result, style: Style = PLAIN) -> Iterator[str]:
    """Report the findings of each file below its path, with places and codes in columns, then a summary."""
    redact = build_redaction(result.secrets)
    for path, group in groupby(result.findings, key=lambda finding: finding.path):
        findings = list(group)
        places = [f"{finding.start.line}:{finding.start.column}" for finding in findings]
        width = max(map(len, places))
        yield style.paint(escape_line_start(path), "1")
        for place, finding in zip(places, findings):
            severity = style.paint(f"{finding.severity:<7}", _COLORS[finding.severity])
            head = f"  {place.rjust(width)}  {severity}  {_format_code(finding, style)}{_mark_fixable(finding)} "
            yield from wrap_text(head, escape_text(redact(finding.message)) + _mark_parts(finding), style, width + 20)
        yield ""
    yield from render_troubles(result, style)
    if not style.quiet:
        yield from render_summary(result)


def _format_head(finding: Finding, style: Style) -> str:
    severity = style.paint(finding.severity, _COLORS[finding.severity])
    return (
        f"{escape_line_start(finding.path)}:{finding.start.line}:{finding.start.column}: {severity} "
        f"{_format_code(finding, style)}"
    )


def _format_code(finding: Finding, style: Style) -> str:
    return style.link(style.paint(finding.code, "1"), style.build_page_url(finding.code, finding.name))


def _mark_fixable(finding: Finding) -> str:
    """Return the mark of a finding that --fix resolves, or an empty string."""
    return " [*]" if finding.fix is not None and finding.fix.edits else ""


def _mark_parts(finding: Finding) -> str:
    """Return the codes of the findings that are part of a finding, for formats that show only its headline."""
    from cfglint_train.reports.details import list_part_codes

    codes = list_part_codes(finding)
    return f" (also {', '.join(codes)})" if codes else ""


def _render_finding(finding: Finding, style: Style, redact: Redact) -> Iterator[str]:
    yield from wrap_text(
        f"{_format_head(finding, style)} ", f"{escape_text(redact(finding.message))} ({finding.name})", style, 5
    )
    for marked_place in _list_marked_places(finding):
        document = marked_place.document
        if document.path != finding.path:
            yield f"  --> {escape_line_start(document.path)}:{marked_place.start.line}:{marked_place.start.column}"
        yield from _render_frame(
            document,
            marked_place.start,
            marked_place.end,
            marked_place.mark,
            marked_place.label,
            style,
            redact,
            _COLORS.get(marked_place.severity, _RELATED_COLOR),
        )

    from cfglint_train.reports.details import list_details

    for label, text in list_details(finding, redact):
        yield from wrap_text(f"   = {label}: " if label else "   = ", escape_text(text), style, 5)


class _MarkedPlace(Frozen):
    """A place in a source frame, with its mark and label."""

    document: Document
    start: Position
    end: Position
    mark: str
    label: str = ""
    severity: str = ""


def _list_marked_places(finding: Finding) -> list[_MarkedPlace]:
    """Return the places of a finding: its own file first, and within each file in source order."""
    marked_places = []
    if finding.place is not None:
        marked_places.append(
            _MarkedPlace(finding.place.document, finding.start, finding.end, "^", severity=finding.severity)
        )
    for related in finding.related:
        document, span = related.place.document, related.place.span
        marked_places.append(
            _MarkedPlace(document, document.locate(span.start), document.locate(span.end), "-", related.message)
        )
    files = list(dict.fromkeys((finding.path, *(item.document.path for item in marked_places))))
    return sorted(marked_places, key=lambda item: (files.index(item.document.path), item.start))


_CONTROL: Final = r"\x1b(?:\[[0-9;]*m|\]8;;[^\x1b]*\x1b\\)"
"""Pattern for the escape sequences of `Style`, which occupy no columns."""


def wrap_text(head: str, text: str, style: Style, indent: int) -> Iterator[str]:
    """Yield a head with its text, wrapped at the terminal's width; continuation lines have a visible gutter."""
    import re

    width = 0 if style.width is None else style.width
    used = _measure_width(re.sub(_CONTROL, "", head)) if width else 0
    if width < indent + 20 or used + _measure_width(text) <= width:
        yield head + text
        return
    line = head
    is_new_line = True
    for word in text.split(" "):
        if not is_new_line and used + 1 + _measure_width(word) > width:
            yield line
            line, used, is_new_line = f"{' ' * (indent - 2)}| ", indent, True
        line += word if is_new_line else f" {word}"
        used += _measure_width(word) + (not is_new_line)
        is_new_line = False
    yield line


def _render_frame(
    document: Document,
    start: Position,
    end: Position,
    mark: str,
    label: str,
    style: Style,
    redact: Redact,
    color: str = _RELATED_COLOR,
) -> Iterator[str]:
    """Yield the source line and the line with its marks; each has a visible gutter.

    A long line is cut to the part around the marked columns.
    """
    if start.line > len(document.line_starts):
        return
    begin = document.line_starts[start.line - 1]
    line = redact(document.source[begin : document.find_line_end(begin)].decode("utf-8-sig", "replace"))
    first = start.column - 1
    last = end.column - 1 if end.line == start.line else len(line)
    room = _FRAME_WIDTH if style.width is None else max(_CONTEXT, style.width - _GUTTER)
    left = max(0, min(first - _CONTEXT, len(line) - room)) if len(line) > room else 0
    right = min(len(line), left + room)
    before = ("..." if left else "") + escape_source_line(line[left:first])
    marked = escape_source_line(line[first : min(last, right)])
    after = escape_source_line(line[max(first, min(last, right)) : right]) + ("..." if right < len(line) else "")
    carets = style.paint(mark * max(1, _measure_width(marked)), color)
    yield f"{str(start.line).rjust(4)} | {escape_source_line(before + marked + after)}"
    head = f"     | {' ' * _measure_width(before)}{carets}"
    yield from wrap_text(f"{head} ", escape_text(redact(label)), style, 7) if label else (head,)


def _measure_width(text: str) -> int:
    """Return the number of terminal columns that `text` occupies."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(character) else 2 if east_asian_width(character) in "WF" else 1 for character in text)


def render_troubles(result: Result, style: Style = PLAIN) -> Iterator[str]:
    """Yield the problems that kept cfglint from checking, unless a finding reports them."""
    redact = build_redaction(result.secrets)
    for trouble in find_unreported_troubles(result):
        yield from wrap_text("error: ", format_trouble(trouble, redact), style, 5)


def find_unreported_troubles(result: Result) -> Iterator[Trouble]:
    """Return the problems of the lint that no finding reports."""
    reported = {(finding.path, finding.message) for finding in result.findings}
    return (trouble for trouble in result.troubles if (trouble.path, trouble.message) not in reported)


def format_trouble(trouble: Trouble, redact: Redact) -> str:
    """Return a problem as one line with its place."""
    place = f":{trouble.position.line}:{trouble.position.column}" if trouble.position is not None else ""
    return f"{escape_line_start(trouble.path)}{place}: {escape_text(redact(format_trouble_message(trouble)))}"


def format_trouble_message(trouble: Trouble) -> str:
    """Return the message of a problem; if cfglint crashed, it asks the user to report the crash."""
    if trouble.rule is not None:
        return f"rule {trouble.rule} crashed (please report it): {trouble.message}"
    return f"cfglint failed (please report it): {trouble.message}" if trouble.is_internal else trouble.message


def render_summary(result: Result, fix_command: str = PLAIN.fix_command) -> Iterator[str]:
    """Yield the skipped files, the number of findings, the unchecked runs, and the number of fixable findings."""
    yield from describe_skipped(result)
    counts = dict.fromkeys(_COLORS, 0)
    for finding in result.findings:
        counts[finding.severity] += 1
    checked = len(result.read_paths)
    if not result.findings and not result.troubles:
        yield f"No findings in {format_count(checked, 'file')}." if checked else describe_no_config(result)
        yield from _describe_baseline(result)
        return
    parts = [format_count(count, severity) for severity, count in counts.items() if count]
    if parts:
        yield f"Found {', '.join(parts)} in {format_count(checked, 'file')}."
    yield from _describe_baseline(result)
    yield from describe_lowered(result)
    yield from describe_unchecked_runs(result)
    fixes = [finding.fix.applicability for finding in result.findings if finding.fix is not None and finding.fix.edits]
    safe, unsafe = fixes.count("safe"), fixes.count("unsafe")
    if safe:
        unsafe_note = f" ({unsafe} more with --unsafe-fixes)" if unsafe else ""
        yield f"{format_count(safe, 'finding')} fixable with {fix_command}{unsafe_note}."
    elif unsafe:
        yield f"{format_count(unsafe, 'finding')} fixable with {fix_command} --unsafe-fixes."


def describe_no_config(result: Result) -> str:
    """Return a warning that no configuration was found, with the number of files searched."""
    if not result.file_count:
        kinds = "there are no YAML, JSON, shell or Python files, or the settings exclude them"
        return f"warning: no training config found: {kinds}"
    return f"warning: no training config found in {format_count(result.file_count, 'file')} (--verbose says why)"


def describe_lowered(result: Result) -> Iterator[str]:
    """Yield, for each piece of evidence about the repository, the number of findings whose severity it lowered."""
    grounds = (ground for finding in result.findings for ground in finding.rests_on if ground.fact == LOWERED)
    for evidence, count in Counter(str(ground.value) for ground in grounds).items():
        yield f"{format_count(count, 'finding')} lowered in severity: {escape_text(evidence)}."


def describe_no_run(result: Result) -> str:
    """Return a message that no run was found, with the number of files read."""
    read_files = format_count(len(result.files), "file")
    return f"no run found in {read_files}; --verbose says why" if result.files else describe_no_config(result)


_MAX_SKIPPED: Final = 5
"""Maximum number of skipped files to list; a shell pattern may name hundreds."""


def describe_skipped(result: Result) -> Iterator[str]:
    """Yield the files that were named explicitly but are not configurations, and counts of other tools' files."""
    reported = {finding.path for finding in result.findings}
    named_files = [file for file in result.skipped if file.named and file.path not in reported and not file.is_launch]
    for file in named_files[:_MAX_SKIPPED]:
        reason = f"it looks like {file.looks_like}, which is not supported" if file.looks_like else file.reason
        yield f"{escape_line_start(file.path)}: not recognised as a training configuration ({escape_text(reason)})"
    if len(named_files) > _MAX_SKIPPED:
        more = format_count(len(named_files) - _MAX_SKIPPED, "more file")
        yield f"{more} not recognised as training configurations (--verbose says why)"
    for tool in result.unsupported:
        count = len(tool.paths)
        yield (
            f"{format_count(count, 'file')} look{'s' if count == 1 else ''} like {tool.framework}, which is "
            "not supported"
        )


def _describe_baseline(result: Result) -> Iterator[str]:
    """Yield the number of findings that the baseline accepts, and its stale entries."""
    if result.accepted is None:
        return
    name = escape_line_start(os.path.relpath(result.accepted.path))
    if result.accepted.accepted:
        yield f"{format_count(len(result.accepted.accepted), 'accepted finding')} not shown ({name})."
    if result.accepted.stale:
        entries = join_names(
            list(dict.fromkeys(f"{escape_line_start(entry.path)} {entry.code}" for entry in result.accepted.stale))
        )
        gone_count = format_count(result.accepted.missing, "stale accepted finding")
        yield f"{gone_count} in {name}: {entries}; --write-baseline removes them."


def describe_unchecked_runs(result: Result) -> Iterator[str]:
    """Yield sentences with the numbers of runs whose memory was not checked and of runs that were not read."""
    counts = result.run_counts
    count = counts.memory_not_checked
    if count:
        runs = (
            format_count(result.run_count, "run")
            if count == result.run_count
            else f"{count} of {result.run_count} runs"
        )
        yield f"Memory was not checked for {runs}."
    if counts.not_read:
        verb = "was" if counts.not_read == 1 else "were"
        yield f"{format_count(counts.not_read, 'run')} {verb} found but not read."


def list_files(result: Result) -> Iterator[str]:
    """Yield a line for each configuration: path, framework, role."""
    width = max((len(escape_line_start(file.path)) for file in result.files), default=0)
    for file in result.files:
        yield f"{escape_line_start(file.path):<{width}}  {file.framework} {file.role}"
