"""The findings of a page by file, each with its line, its advice and its fix as a diff."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cfglint_train.documents.document import Document, Position
from cfglint_train.documents.line_text import get_line_text
from cfglint_train.findings.finding import SEVERITIES, Finding
from cfglint_train.foundation.redact import Redact, build_redaction
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.wording import format_count, join_names
from cfglint_train.judging.result import Result
from cfglint_train.reports.details import list_details, list_related_places
from cfglint_train.reports.fixes import Hunk, build_hunks, list_own_edits, mask_fix
from cfglint_train.reports.html.markup import (
    escape_code,
    escape_html,
    measure_size,
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

    The text has about `limit` bytes: the findings that matter less have only a headline, or are counted by rule.
    """
    yield '<section id="findings" aria-labelledby="findings-title">'
    yield '<h2 id="findings-title">Findings</h2>'
    if not result.findings:
        yield '<p class="none">No findings.</p></section>'
        return
    texts, is_shortened = _render_findings(result, style, limit - _SECTION)
    omitted = [finding for finding in result.findings if id(finding) not in texts]
    by_path: dict[str, list[Finding]] = {}
    for finding in result.findings:
        if id(finding) in texts:
            by_path.setdefault(finding.path, []).append(finding)
    for path, group in by_path.items():
        yield f'<section class="file"><h3>{escape_html(path)}</h3>'
        yield from (texts[id(finding)] for finding in group if finding.severity != "info")
        infos = [texts[id(finding)] for finding in group if finding.severity == "info"]
        if infos:
            yield render_details(format_count(len(infos), "info"), "\n".join(infos), "infos")
        yield "</section>"
    if omitted:
        yield f'<h3>{len(omitted):,} more, by rule</h3><ul class="rules">'
        yield from _list_rules(omitted, style)
        yield "</ul>"
    if is_shortened:
        yield '<p class="note"><code class="copy">cfglint FILE</code> shows the findings of a file in full.</p>'
    yield "</section>"


_HEADLINE: Final = 300
"""Usual bytes of a finding that has only a headline."""
_RULE: Final = 110
"""Bytes of a rule's count and its first place, without the rule and the path."""
_SECTION: Final = 260
"""Bytes of the section around the findings."""
_FILE: Final = 110
"""Bytes of a file's heading without its path, and of its folded infos."""


def _render_findings(result: Result, style: Style, limit: int) -> tuple[dict[int, str], bool]:
    """Render errors, then warnings, then infos, in full or as headlines, by `id`; leave out those beyond the limit.

    The second value is False if all are there in full.
    """
    redact, documents_by_path = build_redaction(result.secrets), collect_documents(result)
    by_path: dict[str, list[Finding]] = {}
    for finding in result.findings:
        by_path.setdefault(finding.path, []).append(finding)
    order = sorted(result.findings, key=lambda finding: SEVERITIES.index(finding.severity))
    rule_sizes = {
        code: len(_render_rule(code, name, style)) for code, name in {(item.code, item.name) for item in order}
    }
    texts, size, paths, is_shortened = dict[int, str](), 0, set[str](), False
    for number, finding in enumerate(order):
        size += (_FILE + len(finding.path)) * (finding.path not in paths)
        others, rest = by_path[finding.path], limit - size
        text = _render_finding(finding, style, redact, documents_by_path, others, is_short=False)
        length = measure_size((text,))
        is_whole = length + _HEADLINE * (len(order) - number - 1) <= rest or size + length <= limit // 4
        if not is_whole:
            is_shortened = True
            text = _render_finding(finding, style, redact, documents_by_path, (), is_short=True)
            length = measure_size((text,))
            rules = {
                (other.severity, other.code): len(other.path) + rule_sizes[other.code] + _RULE
                for other in order[number:]
            }
            if length > rest - sum(rules.values()):
                break
        paths.add(finding.path)
        texts[id(finding)] = text
        size += length
    return texts, is_shortened


def _list_rules(findings: Sequence[Finding], style: Style) -> Iterator[str]:
    """Yield an item per rule and severity: its findings counted, and the first of their places."""
    by_rule: dict[tuple[str, str, str], list[str]] = {}
    for finding in sorted(findings, key=lambda item: SEVERITIES.index(item.severity)):
        place = f"{finding.path}:{finding.start.line}"
        by_rule.setdefault((finding.severity, finding.code, finding.name), []).append(place)
    for (severity, code, name), places in by_rule.items():
        yield (
            f'<li class="{severity}"><span class="severity">{format_count(len(places), severity)}</span> '
            f"{_render_rule(code, name, style)} <small>{escape_html(join_names(places, 1))}</small></li>"
        )


def _render_rule(code: str, name: str, style: Style) -> str:
    """Render the code and the name of a rule, as a link if its page has a URL."""
    page, rule = style.build_page_url(code, name), escape_html(f"{code} {name}")
    if page is None or not page.startswith("https://"):
        return rule
    return f'<a href="{escape_html(page)}" rel="noreferrer">{rule}</a>'


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
    rule = _render_rule(finding.code, finding.name, style)
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
    beside = f"; needs the fix of {escape_html(', '.join(codes))} too" if codes else ""
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
