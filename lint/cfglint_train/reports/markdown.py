"""A report in GitHub's Markdown, for a job summary or a comment: the runs with their budgets, the findings, the fixes.

GitHub takes one MiB of summary per step, and nothing of what is larger (runner `FileCommandManager.cs`), so the report
stops in time and says what it leaves out. Nothing that a file says becomes a link, a mention, an image or HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from cfglint_train.findings.finding import SEVERITIES, Finding
from cfglint_train.findings.verdicts import interval
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.redact import Redact, redaction
from cfglint_train.foundation.sizes import gib
from cfglint_train.foundation.typed import Final
from cfglint_train.judging.result import Result
from cfglint_train.memory.budget import VERDICTS, Budget, Phase, Verdict, verdict
from cfglint_train.reports import text
from cfglint_train.reports.details import labelled, related_lines
from cfglint_train.reports.escape import diff_line, printable
from cfglint_train.reports.fixes import Hunk, hunks, shown
from cfglint_train.reports.places import documents
from cfglint_train.reports.style import PLAIN, Style
from cfglint_train.runs.assumptions import assumptions
from cfglint_train.runs.run import GPU, Run

MAX_BYTES: Final = 900_000
"""Where the report stops, well below the limit."""
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
    """The whole report, as long as it may be."""
    size = 0
    for block in _blocks(result, style):
        lines = list(block)
        size += sum(len(line.encode("utf-8")) + 1 for line in lines)
        if size > MAX_BYTES:
            yield from (
                "",
                "The rest is left out: GitHub limits the length of a summary. The log of the step has everything.",
            )
            return
        yield from lines


def _blocks(result: Result, style: Style) -> Iterator[Iterable[str]]:
    """Pieces that are shown as a whole or not at all."""
    redact = redaction(result.secrets)
    counts = " ".join(text.summary(result)) or "Nothing could be checked."
    yield ("## cfglint", "", f"**{_cell(counts)}**", "")
    yield from _runs(result)
    troubles = [text.trouble_line(trouble, redact) for trouble in text.untold(result)]
    if troubles:
        yield ("### What could not be checked", "", *(f"- {_cell(line)}" for line in troubles[:MAX_FINDINGS]), "")
    yield from _findings(result, style, redact)


# --- runs ------------------------------------------------------------------------------------------------------------


class RunRow(Frozen):
    """What the report says of a run, for another process."""

    order: tuple[str, str]
    row: str
    assumed: tuple[str, ...]


def run_row(run: Run) -> RunRow:
    """The row of a run."""
    peaks = {place: run.estimate.peak(place) for place in _PLACES}
    cells = [_peak(run, place, peaks[place]) for place in _PLACES]
    model = run.plan.model.id or (run.architecture.id if run.architecture is not None else None)
    release = run.releases.get(run.main.framework)
    row = (
        f"<code>{_cell(run.main.document.path)}</code>",
        _cell(f"{run.framework.title} {release or ''}".strip()),
        _cell(str(model)) if model is not None else "not stated",
        *cells,
        _verdict(run, peaks),
    )
    order = (run.main.document.path, str(run.main.root))
    return RunRow(order, f"| {' | '.join(row)} |", tuple(one.note for one in assumptions(run) if one.fact == GPU))


def _runs(result: Result) -> Iterator[Iterable[str]]:
    runs = sorted(result.digests or map(run_row, result.runs), key=lambda run: run.order)
    if not runs:
        return
    head = "| Run | Framework | Model | One GPU | One host | Disk | Verdict |"
    yield ("### Runs", "", head, "|---|---|---|---|---|---|---|")
    for run in runs[:MAX_RUNS]:
        yield (run.row,)
    if len(runs) > MAX_RUNS:
        yield ("", f"{len(runs) - MAX_RUNS} more runs are not listed.")
    assumed = dict.fromkeys(note for run in runs[:MAX_RUNS] for note in run.assumed)
    yield ("", f"Assumed where nothing is stated: {_cell('; '.join(assumed))}." if assumed else "", "")


def _peak(run: Run, place: str, phase: Phase | None) -> str:
    if phase is None:
        return ""
    budget: Budget = getattr(phase, place)
    capacity = run.hardware.capacity(place)
    bar = f"{_bar(budget.expected / capacity)} " if capacity else ""
    limit = f" of {gib(capacity)}" if capacity else ""
    return f"{bar}{gib(budget.expected)}{limit}{interval(budget)}, {_cell(phase.name)}"


def _bar(share: float) -> str:
    filled = min(_BAR, round(_BAR * share))
    return "█" * filled + "░" * (_BAR - filled)


def _verdict(run: Run, peaks: dict[str, Phase | None]) -> str:
    """The worst of the places whose capacity is known."""
    found = [
        verdict(getattr(phase, place), capacity)
        for place, phase in peaks.items()
        if phase is not None and (capacity := run.hardware.capacity(place)) is not None
    ]
    return _MARKS[max(found, key=VERDICTS.index)] if found else "unknown"


# --- findings --------------------------------------------------------------------------------------------------------


def _findings(result: Result, style: Style, redact: Redact) -> Iterator[Iterable[str]]:
    if not result.findings:
        return
    yield ("### Findings", "")
    known = documents(result)
    listed = sorted(result.findings, key=lambda finding: SEVERITIES.index(finding.severity))[:MAX_FINDINGS]
    listed.sort(key=lambda finding: finding.order)
    for path, group in groupby(listed, key=lambda finding: finding.path):
        found = list(group)
        yield (f"#### <code>{_cell(path)}</code>", "", "| Line | Rule | What |", "|---:|---|---|")
        for finding in found:
            yield (_row(finding, style, redact),)
        yield ("",)
        for finding in found:
            if finding.fix is not None:
                fix = shown(finding.fix, redact)
                lines = [line for hunk in hunks(fix.edits, known) for line in _diff(hunk, redact)]
                if lines:
                    yield _fix(f"{finding.code}, line {finding.start.line}: {fix.message} ({fix.applicability})", lines)
    left = len(result.findings) - len(listed)
    if left:
        yield (f"{left} more findings are not listed.", "")
    if any(finding.fix is not None and finding.fix.edits for finding in listed):
        yield ("`cfglint --fix` applies the safe fixes, `cfglint --fix --unsafe-fixes` all of them.", "")


def _row(finding: Finding, style: Style, redact: Redact) -> str:
    page = style.page(finding.code, finding.name)
    code = f"`{finding.code}`" if page is None else f'<a href="{_cell(page)}"><code>{finding.code}</code></a>'
    rule = f"{_SEVERITIES[finding.severity]} {code} {finding.name}"
    message = _cell(redact(finding.message))
    for line in (*related_lines(finding, redact), *labelled(finding, redact)):
        message += f"<br>{_cell(line)}"
    return f"| {finding.start.line} | {rule} | {message} |"


def _diff(hunk: Hunk, redact: Redact) -> Iterator[str]:
    yield f"@@ {printable(hunk.path)}:{hunk.line} @@"
    for sign, lines in (("-", hunk.before), ("+", hunk.after)):
        for line in lines:
            yield diff_line(redact(f"{sign}{line.removesuffix(chr(10)).removesuffix(chr(13))}"))


def _fix(title: str, lines: list[str]) -> Iterator[str]:
    fence = max(("```", *(f"{ticks}`" for ticks in re.findall("`+", " ".join(lines)))), key=len)
    yield from ("<details>", f"<summary>{_cell(title)}</summary>", "")
    yield from (f"{fence}diff", *lines, fence, "", "</details>", "")


# Whatever means something in Markdown or HTML, or makes a link of plain text, becomes an entity.
_MEANING: Final = {ord(mark): f"&#{ord(mark)};" for mark in "\\`*_{}[]<>&#|!~$@:^\"'"}


def _cell(value: str) -> str:
    """Text on one line in which nothing means anything to Markdown."""
    return printable(value).translate(_MEANING).replace("www.", "www&#46;")
