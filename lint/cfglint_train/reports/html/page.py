"""The page around its sections: head, content security policy, styles, headline, the table of runs."""

from __future__ import annotations

import os
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256

from cfglint_train.findings.finding import SEVERITIES
from cfglint_train.foundation.redact import build_redaction
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.wording import format_count
from cfglint_train.judging.result import Result
from cfglint_train.memory.budget import VERDICTS, Phase
from cfglint_train.records import RunEstimate
from cfglint_train.reports import text as text_report
from cfglint_train.reports.html import findings
from cfglint_train.reports.html.markup import (
    escape_html,
    render_badge,
    render_details,
    render_message,
    render_table,
)
from cfglint_train.reports.html.run import PageRun, collect_run, describe_run, rank_estimate, render_run
from cfglint_train.reports.html.timeline import list_colors
from cfglint_train.reports.style import Style
from cfglint_train.runs.run import Run
from cfglint_train.version import VERSION
from cfglint_train.whatif.grid import Axis
from cfglint_train.whatif.plan_file import StatedPlan

MAX_SIZE: Final = 40_000
"""Characters of a page. Beyond them, a run is only a row of the table, and a finding has only its headline."""
_FRAME: Final = 9_500
_ROW: Final = 250
"""Characters of the page around its sections, and of a run in the table of runs."""
_RUN: Final = 13_000
"""Characters kept for the details of the worst run on a page that begins with findings."""
_MIN_FINDINGS: Final = 3_000
"""Characters kept for findings, however large the rest of the page is."""


def render_page(
    result: Result | None,
    estimates: Sequence[RunEstimate],
    estimated_runs: Sequence[Run | StatedPlan],
    axes: Sequence[Axis],
    style: Style,
    findings_first: bool,
) -> Iterator[str]:
    """Render the whole page, piece by piece.

    `estimated_runs` are the runs of `estimates`, in the same order, or empty if other processes estimated them.
    """
    runs_by_record = dict(zip(map(id, estimates), estimated_runs))
    order = sorted(estimates, key=lambda estimate: estimate.path)
    order.sort(key=lambda estimate: rank_estimate(PageRun(estimate).estimate), reverse=True)
    is_alone, rest = len(order) == 1, MAX_SIZE - _FRAME - _ROW * len(order)
    lines, listed, detailed = list[str](), list[str](), 0
    if findings_first and not is_alone and result is not None:
        listed = list(findings.render_section(result, style, rest - _RUN))
        rest -= sum(map(len, listed))
    for estimate in order:
        run = collect_run(estimate, runs_by_record.get(id(estimate)), axes, is_alone)
        section = list(_render_section(run, f"run-{detailed}", is_alone))
        rest -= sum(map(len, section))
        if detailed and rest < 0:
            break
        lines += section
        detailed += 1
    if result is not None and not listed:
        listed = list(findings.render_section(result, style, max(rest, _MIN_FINDINGS)))
    shown = [PageRun(estimate).estimate for estimate in order]
    paths = list(dict.fromkeys(estimate.path for estimate in order))
    first, second = (listed, lines) if findings_first and not is_alone else (lines, listed)
    yield from render_frame(
        f"cfglint: {paths[0]}" if len(paths) == 1 else "cfglint report",
        _render_header(shown, paths, result),
        (*_render_overview(shown, detailed), *first, *second),
    )


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
    headline = escape_html(_describe_runs(estimates)).replace(" %", "&nbsp;%").replace(" GiB", "&nbsp;GiB")
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


def _render_overview(estimates: Sequence[RunEstimate], detailed: int) -> Iterator[str]:
    """Render the table of runs if there are several; `detailed`: number of runs with a section."""
    if len(estimates) < 2:
        return
    rows = []
    for number, estimate in enumerate(estimates):
        worst = estimate.worst
        path = escape_html(estimate.path)
        link = f'<a href="#run-{number}">{path}</a>' if number < detailed else path
        if worst is None:
            rows.append((link, "not estimated", "", ""))
            continue
        phase = Phase(worst.phase, "").title.removeprefix("the ")
        place = "" if worst.place == "gpu" else f", {worst.place}"
        peak = f"{format_gib(worst.expected)} of {format_gib(worst.capacity)}"
        rows.append((link, render_badge(worst.verdict), f"{peak} <small>{worst.percent:,} %</small>", phase + place))
    yield '<section id="runs">'
    yield render_table("Runs, worst first", ("run", "verdict", "peak", "phase"), rows, (2,), "", "stack")
    if detailed < len(estimates):
        yield (
            f'<p class="note">To keep this page small, {detailed} of {len(estimates)} runs have details. '
            "<code>cfglint estimate --format html FILE</code> shows one run.</p>"
        )
    yield "</section>"


def _render_section(run: PageRun, name: str, is_alone: bool) -> Iterator[str]:
    """Render a run; several runs are folded below their headlines."""
    if is_alone:
        yield f'<section id="{name}">'
        yield from render_run(run, name, 2)
        yield "</section>"
        return
    estimate = run.estimate
    badge = "" if estimate.worst is None else render_badge(estimate.worst.verdict)
    yield f'<section class="run" id="{name}">'
    yield render_details(
        f"<h2>{escape_html(estimate.path)}</h2> {badge}",
        f'<p class="verdict">{escape_html(describe_run(estimate))}</p>' + "\n".join(render_run(run, name, 3)),
    )
    yield "</section>"
