"""The findings of a page by file, each with its line, its advice and its fix as a diff."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cfglint_train.documents.document import Document, Position
from cfglint_train.documents.line_text import get_line_text
from cfglint_train.findings.finding import Finding
from cfglint_train.foundation.redact import Redact, build_redaction
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.wording import format_count
from cfglint_train.judging.result import Result
from cfglint_train.reports.details import list_details, list_related_places
from cfglint_train.reports.fixes import Hunk, build_hunks, list_own_edits, mask_fix
from cfglint_train.reports.html.markup import (
    escape_code,
    escape_html,
    render_chip,
    render_details,
    render_message,
)
from cfglint_train.reports.places import collect_documents
from cfglint_train.reports.style import Style

_MAX_LINE: Final = 400
"""Maximum number of characters shown of a source line."""


def render_section(result: Result, style: Style, limit: int) -> Iterator[str]:
    """Render the section with the findings, file by file; infos are folded.

    Beyond `limit` characters, a finding takes a line: its place, its rule and its message.
    """
    yield '<section id="findings" aria-labelledby="findings-title">'
    yield '<h2 id="findings-title">Findings</h2>'
    if not result.findings:
        yield '<p class="none">No findings.</p></section>'
        return
    redact = build_redaction(result.secrets)
    documents_by_path = collect_documents(result)
    by_path: dict[str, list[Finding]] = {}
    for finding in result.findings:
        by_path.setdefault(finding.path, []).append(finding)
    size = shortened = 0
    for path, group in by_path.items():
        yield f'<section class="file"><h3>{escape_html(path)}</h3>'
        infos = []
        for finding in group:
            is_short = size > limit
            shortened += is_short
            text = _render_finding(finding, style, redact, documents_by_path, () if is_short else group, is_short)
            size += len(text)
            if finding.severity == "info":
                infos.append(text)
            else:
                yield text
        if infos:
            yield render_details(format_count(len(infos), "info"), "\n".join(infos), "infos")
        yield "</section>"
    if shortened:
        yield (
            f'<p class="note">{format_count(shortened, "finding")} only in short: '
            "<code>cfglint FILE</code> shows them in full.</p>"
        )
    yield "</section>"


_CHIPS: Final = {"stated": "from your file", "followed": "from defaults", "assumed": "assumed", "unknown": "unknown"}
"""Grades of facts in words."""


def _render_finding(
    finding: Finding,
    style: Style,
    redact: Redact,
    documents_by_path: Mapping[str, Document],
    others: Sequence[Finding],
    is_short: bool,
) -> str:
    page = style.build_page_url(finding.code, finding.name)
    rule = escape_html(f"{finding.code} {finding.name}")
    if page is not None and page.startswith("https://"):
        rule = f'<a href="{escape_html(page)}" rel="noreferrer">{rule}</a>'
    parts = [
        f'<article class="finding {finding.severity}">',
        f'<h4><span class="severity">{finding.severity}</span> {render_message(redact(finding.message))}</h4>',
        f'<p class="name">line {finding.start.line} · {rule} {render_chip(_CHIPS[finding.certainty])}</p>',
    ]
    if is_short:
        return "".join((*parts, "</article>"))
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
    parts += _render_fix(finding, redact, documents_by_path, others)
    parts.append("</article>")
    return "\n".join(parts)


def _render_grounds(finding: Finding, redact: Redact) -> Iterator[str]:
    """Render the facts that the finding rests on, collapsed."""
    if not finding.rests_on:
        return
    yield f'<details class="grounds"><summary>Rests on {format_count(len(finding.rests_on), "fact")}</summary><ul>'
    for ground in finding.rests_on:
        note = f": {render_message(redact(ground.note))}" if ground.note else ""
        value = escape_html(redact(str(ground.value)))
        yield f"<li>{escape_html(ground.fact)} = {value} ({_CHIPS[ground.grade]}){note}</li>"
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


def _render_fix(
    finding: Finding, redact: Redact, documents_by_path: Mapping[str, Document], others: Sequence[Finding]
) -> Iterator[str]:
    if finding.fix is None:
        return
    fix = mask_fix(finding.fix, redact)
    edits, codes = list_own_edits(finding, others) if fix.edits else ((), ())
    diff = [line for hunk in build_hunks(edits, documents_by_path) for line in _render_hunk(hunk, finding.path, redact)]
    if not diff:
        yield f'<p class="fix">{render_message(fix.message)}</p>'
        return
    beside = f" It needs the fix of {escape_html(', '.join(codes))} too." if codes else ""
    yield f'<p class="fix">Fix ({fix.applicability}): {render_message(fix.message)}{beside}</p>'
    yield f'<pre class="diff" aria-label="The fix as a diff"><code>{"".join(diff)}</code></pre>'


def _render_hunk(hunk: Hunk, path: str, redact: Redact) -> Iterator[str]:
    """Render the lines that change."""
    where = "" if hunk.path == path else f"{escape_html(hunk.path)}, "
    yield f'<span class="hunk">{where}line {hunk.line}</span>\n'
    for sign, line in hunk.list_changed_lines():
        tag = "del" if sign == "-" else "ins"
        yield f"<{tag}>{sign} {_format_line(line, redact)}</{tag}>\n"


def _format_line(line: str, redact: Redact) -> str:
    return escape_code(redact(line.rstrip("\r\n")))
