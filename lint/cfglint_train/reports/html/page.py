"""The page around its sections: head, content security policy, styles and scripts."""

from __future__ import annotations

import os
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import sha256

from cfglint_train.findings.finding import SEVERITIES
from cfglint_train.foundation.redact import build_redaction
from cfglint_train.judging.result import Result
from cfglint_train.reports import text as text_report
from cfglint_train.reports.html import findings, runs
from cfglint_train.reports.html.charts import Charts
from cfglint_train.reports.html.markup import encode_script_data, escape_html, format_count, render_message
from cfglint_train.reports.html.summary import RunSummary
from cfglint_train.reports.style import Style
from cfglint_train.runs.run import Run
from cfglint_train.version import VERSION
from cfglint_train.whatif.grid import Axis
from cfglint_train.whatif.plan_file import StatedPlan


def render_page(
    result: Result | None,
    summaries: Sequence[RunSummary],
    estimated_runs: Sequence[Run | StatedPlan],
    axes: Sequence[Axis],
    style: Style,
    findings_first: bool,
) -> Iterator[str]:
    """Render the whole page, piece by piece.

    `estimated_runs` are the runs of `summaries`, in the same order, or empty if other processes estimated them.
    """
    order = sorted(range(len(summaries)), key=lambda number: summaries[number].path)
    summaries, estimated_runs = (
        [summaries[number] for number in order],
        [estimated_runs[number] for number in order] if estimated_runs else [],
    )
    drawn = bool(summaries)
    scripts = [read_asset(name) for name in (("plot.min.js",) * drawn + ("page.js",))]
    yield "<!DOCTYPE html>"
    yield '<html lang="en">'
    yield "<head>"
    yield '<meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_build_policy(scripts)}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<meta name="color-scheme" content="light dark">'
    yield '<meta name="referrer" content="no-referrer">'
    yield f'<meta name="generator" content="cfglint {VERSION}">'
    yield f"<title>{_format_title(summaries)}</title>"
    yield f"<style>\n{read_asset('page.css')}</style>"
    yield "</head>"
    yield "<body>"
    yield '<a class="skip" href="#main">Skip to the report</a>'
    yield f"<header><h1>cfglint</h1>{_render_summary(result, len(summaries))}</header>"
    yield '<main id="main">'
    charts = Charts()
    parts = [runs.render_section(summaries, estimated_runs, axes, charts)]
    if result is not None:
        parts.insert(0, findings.render_section(result, style))
    for part in parts if findings_first else reversed(parts):
        yield from part
    yield "</main>"
    yield f"<footer>Created by cfglint {VERSION} from configuration files only; nothing was executed.</footer>"
    yield f'<script type="application/json" id="data">{encode_script_data(charts.build_document())}</script>'
    for script in scripts:
        yield f"<script>{script}</script>"
    yield "</body>"
    yield "</html>"


def read_asset(name: str) -> str:
    """Return the text of a style sheet or script of the page."""
    with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
        return file.read()


def _build_policy(scripts: list[str]) -> str:
    """Return a content security policy that forbids loading and sending, and allows only these scripts to run.

    Inline styles are allowed because Plot writes them into its drawings; they are harmless if nothing can be loaded.
    """
    hashes = " ".join(f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts)
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def _format_title(summaries: Sequence[RunSummary]) -> str:
    paths = list(dict.fromkeys(run.path for run in summaries))
    return f"cfglint: {escape_html(paths[0])}" if len(paths) == 1 else "cfglint report"


def _render_summary(result: Result | None, run_count: int) -> str:
    items = [f"<li>{format_count(run_count, 'run')}</li>"]
    if result is None:
        return f'<ul class="counts">{items[0]}</ul>'
    checked = len(result.read_paths)
    items.insert(0, f"<li>{format_count(checked, 'file')}</li>")
    counts = Counter(finding.severity for finding in result.findings)
    items[:0] = [
        f'<li class="{severity}">{format_count(counts[severity], severity)}</li>'
        for severity in SEVERITIES
        if counts[severity]
    ]
    items += [f"<li>{sentence.rstrip('.')}</li>" for sentence in text_report.describe_unchecked_runs(result)]
    redact = build_redaction(result.secrets)
    troubles = [
        render_message(text_report.format_trouble(trouble, redact))
        for trouble in text_report.find_unreported_troubles(result)
    ]
    if troubles:
        trouble_items = "".join(f"<li>{line}</li>" for line in troubles)
        missing = (
            f'<section class="troubles" aria-label="Not checked"><h2>Not checked</h2><ul>{trouble_items}</ul></section>'
        )
    else:
        missing = ""
    return f'<ul class="counts">{"".join(items)}</ul>{missing}'
