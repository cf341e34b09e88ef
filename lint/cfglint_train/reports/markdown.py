"""Report in GitHub-flavored Markdown for a job summary or a comment: runs with budgets, findings, fixes.

GitHub accepts 1 MiB of summary per step and rejects anything larger (runner `FileCommandManager.cs`), so the report
stops early and says what it omits. Text from files never becomes a link, mention, image or HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from cfglint_train.findings.finding import SEVERITIES, Finding
from cfglint_train.findings.verdicts import describe_own_runs, format_interval
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.redact import Redact, build_redaction
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Final
from cfglint_train.judging.result import Result
from cfglint_train.memory.budget import VERDICTS, Budget, Phase, Verdict, compute_verdict
from cfglint_train.reports import text
from cfglint_train.reports.cost import build_cost, format_cost
from cfglint_train.reports.details import format_details, format_related_places
from cfglint_train.reports.escape import escape_diff_line, escape_text
from cfglint_train.reports.fixes import Hunk, build_hunks, list_own_edits, mask_fix
from cfglint_train.reports.places import collect_documents
from cfglint_train.reports.style import PLAIN, Style
from cfglint_train.runs.assumptions import list_assumptions
from cfglint_train.runs.run import GPU, Run

MAX_BYTES: Final = 900_000
"""Size limit of the report in bytes, well below GitHub's limit."""
MAX_FINDINGS: Final = 200
MAX_RUNS: Final = 50
_BAR: Final = 10
_MARKS: Final[dict[Verdict, str]] = {
    "fits": "✅ fits",
    "tight": "⚠️ tight",
    "probably does not fit": "❌ probably does not fit",
    "does not fit": "❌ does not fit",
}
_SEVERITIES: Final = {"error": "❌ error", "warning": "⚠️ warning", "info": "ℹ️ info"}
_PLACES: Final = ("gpu", "host", "disk")


def report(result: Result, style: Style = PLAIN) -> Iterator[str]:
    """Report everything up to the size limit."""
    size = 0
    for block in _render_blocks(result, style):
        lines = list(block)
        size += sum(len(line.encode("utf-8")) + 1 for line in lines)
        if size > MAX_BYTES:
            yield from (
                "",
                "The rest is omitted because GitHub limits the size of a summary. The log of the step has everything.",
            )
            return
        yield from lines


def _render_blocks(result: Result, style: Style) -> Iterator[Iterable[str]]:
    """Yield blocks of lines, each of which is shown completely or not at all."""
    redact = build_redaction(result.secrets)
    counts = " ".join(text.render_summary(result)) or "Nothing could be checked."
    yield ("## cfglint", "", f"**{render_message(counts)}**", "")
    yield from _render_runs(result)
    troubles = [text.format_trouble(trouble, redact) for trouble in text.find_unreported_troubles(result)]
    if troubles:
        yield (
            "### Not checked",
            "",
            *(f"- {render_message(line)}" for line in troubles[:MAX_FINDINGS]),
            "",
        )
    yield from _render_findings(result, style, redact)


# --- runs ------------------------------------------------------------------------------------------------------------


class RunRow(Frozen):
    """A summary of a run that can be sent to another process."""

    order: tuple[str, str]
    row: str
    assumed: tuple[str, ...]
    cost: str
    """Time and cost, or an empty string if a fact that they need is not stated."""


def summarize_runs(runs: Sequence[Run]) -> list[RunRow]:
    """Return the table rows of runs."""
    return list(map(_build_row, runs))


def _build_row(run: Run) -> RunRow:
    peaks = {place: run.estimate.find_peak(place) for place in _PLACES}
    cells = [_format_peak(run, place, peaks[place]) for place in _PLACES]
    model = run.plan.model.id or (run.architecture.id if run.architecture is not None else None)
    release = run.releases.get(run.main.framework)
    row = (
        f"<code>{escape_cell(run.main.document.path)}</code>",
        escape_cell(f"{run.framework.title} {release or ''}".strip()),
        escape_cell(str(model)) if model is not None else "not stated",
        *cells,
        _format_verdict(run, peaks),
    )
    order = (run.main.document.path, str(run.main.root))
    return RunRow(
        order,
        f"| {' | '.join(row)} |",
        tuple(assumption.note for assumption in list_assumptions(run) if assumption.fact == GPU),
        "" if (cost := build_cost(run)) is None else format_cost(cost),
    )


def _render_runs(result: Result) -> Iterator[Iterable[str]]:
    runs = sorted(result.digests or summarize_runs(result.runs), key=lambda run: run.order)
    if not runs:
        return
    has_cost = any(run.cost for run in runs[:MAX_RUNS])
    head = "| Run | Framework | Model | One GPU | One host | Disk | Verdict |"
    column, rule = (" Time, cost |", "---|") if has_cost else ("", "")
    yield ("### Runs", "", f"{head}{column}", f"|---|---|---|---|---|---|---|{rule}")
    for run in runs[:MAX_RUNS]:
        yield (f"{run.row} {escape_cell(run.cost)} |" if has_cost else run.row,)
    if len(runs) > MAX_RUNS:
        yield ("", f"{len(runs) - MAX_RUNS} more runs are not listed.")
    assumed = dict.fromkeys(note for run in runs[:MAX_RUNS] for note in run.assumed)
    yield ("", f"Assumed if not stated: {render_message('; '.join(assumed))}." if assumed else "", "")


def _format_peak(run: Run, resource: str, phase: Phase | None) -> str:
    if phase is None:
        return ""
    budget: Budget = getattr(phase, resource)
    capacity = run.hardware.get_capacity(resource)
    bar = f"{_draw_bar(budget.expected / capacity)} " if capacity else ""
    limit = f" of {format_gib(capacity)}" if capacity else ""
    own_runs = f" {describe_own_runs(budget)}" if budget.own_runs is not None else ""
    span = format_interval(budget.low, budget.high)
    return f"{bar}{format_gib(budget.expected)}{limit}{span}{own_runs}, {escape_cell(phase.name)}"


def _draw_bar(share: float) -> str:
    filled = min(_BAR, round(_BAR * share))
    return "█" * filled + "░" * (_BAR - filled)


def _format_verdict(run: Run, peaks: dict[str, Phase | None]) -> str:
    """Return the worst verdict among the resources with a known capacity."""
    verdicts = [
        compute_verdict(getattr(phase, resource), capacity)
        for resource, phase in peaks.items()
        if phase is not None and (capacity := run.hardware.get_capacity(resource)) is not None
    ]
    return _MARKS[max(verdicts, key=VERDICTS.index)] if verdicts else "unknown"


# --- findings --------------------------------------------------------------------------------------------------------


def _render_findings(result: Result, style: Style, redact: Redact) -> Iterator[Iterable[str]]:
    if not result.findings:
        return
    yield ("### Findings", "")
    documents_by_path = collect_documents(result)
    shown_findings = sorted(result.findings, key=lambda finding: SEVERITIES.index(finding.severity))[:MAX_FINDINGS]
    shown_findings.sort(key=lambda finding: finding.sort_key)
    for path, group in groupby(shown_findings, key=lambda finding: finding.path):
        file_findings = list(group)
        yield (f"#### <code>{escape_cell(path)}</code>", "", "| Line | Rule | Message |", "|---:|---|---|")
        for finding in file_findings:
            yield (_render_row(finding, style, redact),)
        yield ("",)
        for finding in file_findings:
            if finding.fix is not None:
                fix = mask_fix(finding.fix, redact)
                edits = list_own_edits(finding, file_findings)[0] if fix.edits else ()
                lines = [line for hunk in build_hunks(edits, documents_by_path) for line in _render_hunk(hunk, redact)]
                if lines:
                    yield _render_fix(
                        f"{finding.code}, line {finding.start.line}: {fix.message} ({fix.applicability})", lines
                    )
    omitted = len(result.findings) - len(shown_findings)
    if omitted:
        yield (f"{omitted} more findings are not listed.", "")
    if any(finding.fix is not None and finding.fix.edits for finding in shown_findings):
        yield ("`cfglint --fix` applies the safe fixes, `cfglint --fix --unsafe-fixes` all of them.", "")


def _render_row(finding: Finding, style: Style, redact: Redact) -> str:
    page = style.build_page_url(finding.code, finding.name)
    code = f"`{finding.code}`" if page is None else f'<a href="{escape_cell(page)}"><code>{finding.code}</code></a>'
    rule = f"{_SEVERITIES[finding.severity]} {code} {finding.name}"
    message = render_message(redact(finding.message))
    for line in (*format_related_places(finding, redact), *format_details(finding, redact)):
        message += f"<br>{render_message(line)}"
    return f"| {finding.start.line} | {rule} | {message} |"


def _render_hunk(hunk: Hunk, redact: Redact) -> Iterator[str]:
    yield f"@@ {escape_text(hunk.path)}:{hunk.line} @@"
    for sign, line in hunk.list_changed_lines():
        yield escape_diff_line(redact(f"{sign}{line.removesuffix(chr(10)).removesuffix(chr(13))}"))


def _render_fix(title: str, lines: list[str]) -> Iterator[str]:
    fence = max(("```", *(f"{ticks}`" for ticks in re.findall("`+", " ".join(lines)))), key=len)
    yield from ("<details>", f"<summary>{render_message(title)}</summary>", "")
    yield from (f"{fence}diff", *lines, fence, "", "</details>", "")


# Characters with a meaning in Markdown or HTML, or that turn plain text into a link, become entities.
_ENTITIES: Final = {ord(mark): f"&#{ord(mark)};" for mark in "\\`*_{}[]<>&#|!~$@:^\"'"}


def escape_cell(value: str) -> str:
    """Return `value` on one line, with Markdown and HTML syntax escaped."""
    return escape_text(value).translate(_ENTITIES).replace("www.", "www&#46;")


def render_message(message: str) -> str:
    """Return a message on one line, with words in backticks as code and without other markup."""
    return re.sub("&#96;(.+?)&#96;", r"<code>\1</code>", escape_cell(message))
