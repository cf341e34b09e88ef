"""The page around its sections: head, content security policy, styles, headline, the table of runs."""

from __future__ import annotations

import os
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import groupby

from cfglint_train.findings.finding import SEVERITIES
from cfglint_train.foundation.redact import build_redaction
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.wording import format_count
from cfglint_train.judging.result import Result
from cfglint_train.memory.budget import VERDICTS
from cfglint_train.records import RunEstimate
from cfglint_train.reports import text as text_report
from cfglint_train.reports.html import findings
from cfglint_train.reports.html.markup import (
    escape_html,
    measure_size,
    render_badge,
    render_details,
    render_message,
    render_table,
)
from cfglint_train.reports.html.run import (
    MAX_DETAILED,
    PageRun,
    describe_run,
    name_phase,
    rank_runs,
    render_run,
    render_short_change,
)
from cfglint_train.reports.html.timeline import list_colors
from cfglint_train.reports.style import Style
from cfglint_train.version import VERSION

MAX_SIZE: Final = 40_000
"""Bytes of a page. The runs and findings that would exceed them are named or counted, with the command for all."""
_ROWS: Final = 20
"""Runs in the table of runs, the worst ones; the others are listed by verdict and folder."""
_LINK: Final = 25
"""Bytes of a link from the table to the details of a run."""
_LIST: Final = 5_000
"""Characters of the list of the other runs."""


def render_page(result: Result | None, records: Sequence[PageRun], style: Style, findings_first: bool) -> Iterator[str]:
    """Render the whole page, piece by piece."""
    order, is_alone = rank_runs(records), len(records) == 1
    rows = [*order[:MAX_DETAILED], *(PageRun(record.written) for record in order[MAX_DETAILED:])]
    rows = [] if is_alone else rows
    shown = [record.estimate for record in order]
    paths = list(dict.fromkeys(estimate.path for estimate in shown))
    title = f"cfglint: {paths[0]}" if len(paths) == 1 else "cfglint report"
    header = _render_header(shown, paths, result)
    least = 0 if result is None else measure_size(findings.render_section(result, style, 0))
    rest = MAX_SIZE - measure_size((*render_frame(title, header, ()), *_render_overview(rows, 0))) - least
    lines, listed, detailed = list[str](), list[str](), 0
    leading = result if findings_first and not is_alone else None
    for number, record in enumerate(order[:MAX_DETAILED]):
        if number == 1 and leading is not None:  # they leave room for the worst run
            listed = list(findings.render_section(leading, style, max(rest, 0) + least))
            rest -= measure_size(listed) - least
        section = list(_render_section(record, f"run-{number}", is_alone, style))
        size = measure_size(section) + _LINK
        if not is_alone and size > rest:
            break
        rest -= size
        lines += section
        detailed += 1
    if result is not None and not listed:
        listed = list(findings.render_section(result, style, max(rest, 0) + least))
    first, second = (listed, lines) if leading is not None else (lines, listed)
    yield from render_frame(title, header, (*_render_overview(rows, detailed), *first, *second))


def render_frame(title: str, header: str, main: Iterable[str]) -> Iterator[str]:
    """Render a page around `header` and `main`, which are HTML; its policy forbids everything but its styles."""
    styles = "".join([*_read_styles(), *list_colors()])
    digest = b64encode(sha256(styles.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    yield "<!DOCTYPE html>"
    yield '<html lang="en">'
    yield "<head>"
    yield '<meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<meta name="color-scheme" content="light dark">'
    yield '<meta name="referrer" content="no-referrer">'
    yield f'<meta name="generator" content="cfglint {VERSION}">'
    yield f"<title>{escape_html(title)}</title>"
    yield f"<style>{styles}</style>"
    yield "</head>"
    yield "<body>"
    yield '<a class="skip" href="#main">Skip to the report</a>'
    yield f"<header>{header}</header>"
    yield '<main id="main">'
    yield from main
    yield "</main>"
    yield f"<footer>Created by cfglint {VERSION} from configuration files only; nothing was executed.</footer>"
    yield "</body>"
    yield "</html>"


def _render_header(estimates: Sequence[RunEstimate], paths: Sequence[str], result: Result | None) -> str:
    """Render the verdict as a headline, with the counts of findings below."""
    worst = estimates[0].worst if estimates else None
    kind = "unknown" if worst is None else worst.verdict.replace(" ", "-")
    headline = render_message(_describe_runs(estimates)).replace(" %", "&nbsp;%").replace(" GiB", "&nbsp;GiB")
    name = escape_html(paths[0]) if len(paths) == 1 else format_count(len(paths), "run")
    return f'<p class="path">cfglint · {name}</p><h1 class="{kind}">{headline}</h1>{_render_counts(result)}'


def _read_styles() -> Iterator[str]:
    """Yield the lines of the style sheet without their indentation."""
    with open(os.path.join(os.path.dirname(__file__), "page.css"), encoding="utf-8") as file:
        yield from (f"{line.strip()}\n" for line in file if line.strip())


def _describe_runs(estimates: Sequence[RunEstimate]) -> str:
    """Return the headline of the page."""
    if len(estimates) == 1:
        return describe_run(estimates[0])
    if not estimates:
        return "No runs"
    counts = Counter(estimate.worst.verdict if estimate.worst is not None else "" for estimate in estimates)
    parts = [
        f"{counts[verdict]} {_VERBS[verdict][counts[verdict] > 1]}" for verdict in VERDICTS[::-1] if counts[verdict]
    ]
    if counts[""]:
        parts.append(f"{counts['']} not estimated")
    return f"{format_count(len(estimates), 'run')}: {', '.join(parts)}"


_VERBS: Final = {
    "fits": ("fits", "fit"),
    "tight": ("is tight", "are tight"),
    "probably does not fit": ("probably does not fit", "probably do not fit"),
    "does not fit": ("does not fit", "do not fit"),
}


def _render_counts(result: Result | None) -> str:
    if result is None:
        return ""
    counts = Counter(finding.severity for finding in result.findings)
    items = [
        f'<li class="{severity}"><a href="#findings">{format_count(counts[severity], severity)}</a></li>'
        for severity in SEVERITIES
        if counts[severity]
    ]
    items.append(f"<li>{format_count(len(result.read_paths), 'file')}</li>")
    items += [f"<li>{sentence.rstrip('.')}</li>" for sentence in text_report.describe_unchecked_runs(result)]
    redact = build_redaction(result.secrets)
    troubles = "".join(
        f"<li>{render_message(text_report.format_trouble(trouble, redact))}</li>"
        for trouble in text_report.find_unreported_troubles(result)
    )
    missing = f'<section class="troubles"><h2>Not checked</h2><ul>{troubles}</ul></section>' if troubles else ""
    return f'<ul class="counts">{"".join(items)}</ul>{missing}'


def _render_overview(runs: Sequence[PageRun], detailed: int) -> Iterator[str]:
    """Render the table of runs if there are several; `detailed`: number of runs with a section."""
    if not runs:
        return
    rows = []
    for number, run in enumerate(runs[:_ROWS]):
        worst = run.estimate.worst
        path = escape_html(run.estimate.path)
        link = f'<a href="#run-{number}">{path}</a>' if number < detailed else path
        if worst is None:
            gap = run.estimate.not_checked
            rows.append((link, "not estimated", "", "" if gap is None else render_message(gap.message)))
            continue
        place = "" if worst.place == "gpu" else f", {worst.place}"
        change = render_short_change(run) or ("none needed" if worst.verdict in ("fits", "tight") else "")
        if number >= MAX_DETAILED and worst.verdict != "fits":
            change = "run <code>cfglint fit</code> on it"
        size = f"{format_gib(worst.expected)} of {format_gib(worst.capacity)} <small>{worst.percent:,} %</small>"
        rows.append(
            (
                link,
                render_badge(worst.verdict),
                f'<span class="n">{size}</span><br>{name_phase(worst)}{place}',
                change,
            )
        )
    yield '<section id="runs">'
    yield render_table("Runs, worst first", ("run", "verdict", "peak", "best change"), rows, (), "", "stack")
    yield from _render_others([run.estimate for run in runs[_ROWS:]])
    if detailed < len(runs):
        yield (
            f'<p class="note">To keep this page small, {detailed} of {len(runs)} runs have details. '
            '<code class="copy">cfglint estimate --format html FILE</code> shows one run.</p>'
        )
    yield "</section>"


def _render_others(estimates: Sequence[RunEstimate]) -> Iterator[str]:
    """Name the runs beyond the table by verdict and folder, folded, until `_LIST` characters are used."""
    rest = _LIST
    for verdict, group in groupby(estimates, key=_name_verdict):
        members = list(group)
        by_folder: dict[str, list[str]] = {}
        for estimate in members:
            folder, name = os.path.split(estimate.path)
            percent = "" if estimate.worst is None else f" <small>{estimate.worst.percent:,}&#8239;%</small>"
            text = f"{escape_html(name)}{percent}"
            rest -= len(text) + 2 + (folder not in by_folder) * (len(folder) + 25)
            if rest < 0:
                break
            by_folder.setdefault(folder, []).append(text)
        omitted = len(members) - sum(map(len, by_folder.values()))
        items = [
            f"<li><b>{escape_html(folder or '.')}</b> {', '.join(names)}</li>" for folder, names in by_folder.items()
        ]
        if omitted:
            items.append(f"<li>{omitted:,} more: <code>cfglint estimate</code> lists them</li>")
        title = _VERBS[verdict][len(members) > 1] if verdict in _VERBS else verdict
        yield render_details(f"{len(members):,} more {title}", f'<ul class="notes">{"".join(items)}</ul>')


def _name_verdict(estimate: RunEstimate) -> str:
    return "not estimated" if estimate.worst is None else estimate.worst.verdict


def _render_section(run: PageRun, name: str, is_alone: bool, style: Style) -> Iterator[str]:
    """Render a run; several runs are folded below their headlines."""
    if is_alone:
        yield f'<section id="{name}">'
        yield from render_run(run, name, 2, style, is_full=True)
        yield "</section>"
        return
    estimate = run.estimate
    badge = "" if estimate.worst is None else render_badge(estimate.worst.verdict)
    yield f'<section class="run" id="{name}">'
    headline = f'<p class="verdict">{render_message(describe_run(estimate))}</p>'
    body = "\n".join((headline, *render_run(run, name, 3, style, is_full=False)))
    yield render_details(f"<h2>{escape_html(estimate.path)}</h2> {badge}", body)
    yield "</section>"
