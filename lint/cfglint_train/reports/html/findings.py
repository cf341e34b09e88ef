"""The findings of a page by file, each with its line, its advice and its fix as a diff."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby

from cfglint_train.documents.document import Document, Position
from cfglint_train.documents.line_text import get_line_text
from cfglint_train.findings.finding import SEVERITIES, Finding
from cfglint_train.foundation.redact import Redact, build_redaction
from cfglint_train.foundation.typed import Final
from cfglint_train.judging.result import Result
from cfglint_train.reports.details import list_details, list_related_places
from cfglint_train.reports.fixes import Hunk, build_hunks, mask_fix
from cfglint_train.reports.html.markup import escape_code, escape_html, format_count, render_message
from cfglint_train.reports.places import collect_documents
from cfglint_train.reports.style import Style

_MAX_LINE: Final = 400
"""Maximum number of characters shown of a source line."""


def render_section(result: Result, style: Style) -> Iterator[str]:
    """Render the section with the findings, file by file."""
    yield '<section id="findings" aria-labelledby="findings-title">'
    yield '<h2 id="findings-title">Findings</h2>'
    if not result.findings:
        yield '<p class="none">No findings.</p></section>'
        return
    yield _render_filters(result)
    redact = build_redaction(result.secrets)
    documents_by_path = collect_documents(result)
    for path, group in groupby(result.findings, key=lambda finding: finding.path):
        yield f'<section class="file"><h3>{escape_html(path)}</h3>'
        for finding in group:
            yield _render_finding(finding, style, redact, documents_by_path)
        yield "</section>"
    yield "</section>"


def _render_filters(result: Result) -> str:
    counts = Counter(finding.severity for finding in result.findings)
    boxes = "".join(
        f'<label class="{severity}"><input type="checkbox" name="severity" value="{severity}" checked> '
        f"{format_count(counts[severity], severity)}</label>"
        for severity in SEVERITIES
        if counts[severity]
    )
    return (
        '<form class="filters" hidden><fieldset><legend>Show</legend>'
        f'{boxes}<label>with <input type="search" name="words" placeholder="rule, path or words"></label>'
        '</fieldset><p class="shown" role="status"></p></form>'
    )


def _render_finding(finding: Finding, style: Style, redact: Redact, documents_by_path: Mapping[str, Document]) -> str:
    page = style.build_page_url(finding.code, finding.name)
    rule = escape_html(finding.code)
    if page is not None and page.startswith("https://"):
        rule = f'<a href="{escape_html(page)}" rel="noreferrer">{rule}</a>'
    place = f"line {finding.start.line}, column {finding.start.column}"
    parts = [
        f'<article class="finding {finding.severity}" data-severity="{finding.severity}">',
        f'<h4><span class="severity">{finding.severity}</span> <span class="certainty">{finding.certainty}</span> '
        f'{rule} <span class="name">{escape_html(finding.name)} · '
        f"{place}</span></h4>",
        f"<p>{render_message(redact(finding.message))}</p>",
    ]
    if finding.place is not None:
        parts.append(_render_frame(finding.place.document, finding.start, finding.end, redact))
    for related_place in list_related_places(finding, redact):
        where = "" if related_place.path == finding.path else f"{escape_html(related_place.path)}, "
        parts.append(
            f'<p class="related">{where}line {related_place.start.line}: {render_message(related_place.message)}</p>'
        )
        parts.append(
            _render_frame(documents_by_path[related_place.path], related_place.start, related_place.end, redact)
        )
    for label, line in list_details(finding, redact):
        if label in ("note", "help"):
            parts.append(f'<p class="{label}">{render_message(line)}</p>')
    parts += _render_grounds(finding, redact)
    parts += _render_fix(finding, redact, documents_by_path)
    parts.append("</article>")
    return "\n".join(parts)


def _render_grounds(finding: Finding, redact: Redact) -> Iterator[str]:
    """Render the facts that the finding rests on, collapsed."""
    if not finding.rests_on:
        return
    yield f'<details class="grounds"><summary>Rests on {format_count(len(finding.rests_on), "fact")}</summary><ul>'
    for ground in finding.rests_on:
        note = f": {render_message(redact(ground.note))}" if ground.note else ""
        yield f"<li>{escape_html(ground.fact)} = {escape_html(redact(str(ground.value)))} ({ground.grade}){note}</li>"
    yield "</ul></details>"


def _render_frame(document: Document, start: Position, end: Position, redact: Redact) -> str:
    """Render the source line with the columns marked; a long line is cut to the part around the marked columns."""
    line = redact(get_line_text(document, start.line))
    first = start.column - 1
    last = max(first + 1, end.column - 1 if end.line == start.line else len(line))
    left = max(0, first - _MAX_LINE // 4) if len(line) > _MAX_LINE else 0
    right = min(len(line), left + _MAX_LINE)
    before, marked, after = line[left:first], line[first : min(last, right)], line[max(first, min(last, right)) : right]
    return (
        f'<pre class="frame"><span class="number" aria-hidden="true">{start.line}</span>'
        f"<code>{'…' if left else ''}{escape_code(before)}<mark>{escape_code(marked)}</mark>{escape_code(after)}"
        f"{'…' if right < len(line) else ''}</code></pre>"
    )


def _render_fix(finding: Finding, redact: Redact, documents_by_path: Mapping[str, Document]) -> Iterator[str]:
    if finding.fix is None:
        return
    fix = mask_fix(finding.fix, redact)
    diff = [
        line for hunk in build_hunks(fix.edits, documents_by_path) for line in _render_hunk(hunk, finding.path, redact)
    ]
    if not diff:
        yield f'<p class="fix">{render_message(fix.message)}</p>'
        return
    yield f'<p class="fix">Fix ({fix.applicability}): {render_message(fix.message)}</p>'
    yield f'<pre class="diff" aria-label="The fix as a diff"><code>{"".join(diff)}</code></pre>'


def _render_hunk(hunk: Hunk, path: str, redact: Redact) -> Iterator[str]:
    """Render the lines of a hunk; unchanged lines at both ends are context."""
    where = "" if hunk.path == path else f"{escape_html(hunk.path)}, "
    yield f'<span class="hunk">{where}line {hunk.line}</span>\n'
    before, after = hunk.before, hunk.after
    shorter = min(len(before), len(after))
    head = next((number for number in range(shorter) if before[number] != after[number]), shorter)
    tail = next(
        (number for number in range(shorter - head) if before[-1 - number] != after[-1 - number]), shorter - head
    )
    for line in before[:head]:
        yield f"  {_format_line(line, redact)}\n"
    for line in before[head : len(before) - tail]:
        yield f"<del>- {_format_line(line, redact)}</del>\n"
    for line in after[head : len(after) - tail]:
        yield f"<ins>+ {_format_line(line, redact)}</ins>\n"
    for line in before[len(before) - tail :]:
        yield f"  {_format_line(line, redact)}\n"


def _format_line(line: str, redact: Redact) -> str:
    return escape_code(redact(line.rstrip("\r\n")))
