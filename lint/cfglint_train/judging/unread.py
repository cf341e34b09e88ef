"""Reports of files that were not read completely; if the rule is ignored, the files are listed as skipped."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_rules import registry
from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Finding, Severity, shorten_message
from cfglint_train.foundation.budget import Budget
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.wording import format_count
from cfglint_train.judging.collector import Ledger
from cfglint_train.judging.result import Trouble
from cfglint_train.judging.selection import Selection
from cfglint_train.plan.origin import Place
from cfglint_train.repository.documents import START, Cause, Documents, SkippedFile

_REMEDIES: Final[Mapping[Cause, str]] = {
    "absent": "commit the file, or check it where it is: `cfglint FILE`",
    "run": "describe the run in a plan (`cfglint estimate --plan FILE.json`), or measure one step on your own GPU",
}
"""Remedies for causes outside the file itself."""

_MAX_LISTED_FILES: Final = 3
"""Maximum number of files that one message lists."""


def report_unread(documents: Documents, selection: Selection, ledger: Ledger) -> None:
    """Report the files that could not be read. Per-path ignores of the rule apply."""
    for unread_file in documents.unread:
        rule = registry.ENGINE_RULES[unread_file.cause]
        if selection.is_ignored(rule, unread_file.path):
            documents.ignore(unread_file.path, f"{unread_file.message} ({rule.code} is ignored here)")
            continue
        trouble = Trouble(unread_file.path, unread_file.message, unread_file.position)
        if unread_file.cause == "run" and not unread_file.is_part:
            ledger.unread_runs.append(trouble)
        remedy = _REMEDIES.get(unread_file.cause)
        if remedy is None:
            ledger.troubles.append(trouble)
            _add_finding(rule, trouble, selection, ledger, unread_file.help)
        else:
            severity: Severity | None = "warning" if unread_file.is_failure else None
            _add_finding(rule, trouble, selection, ledger, unread_file.help or remedy, unread_file.place, severity)


def report_limit(path: str, message: str, selection: Selection, ledger: Ledger) -> None:
    """Report a file that was not checked completely; its findings so far are kept. Per-path ignores apply."""
    rule = registry.ENGINE_RULES["limit"]
    if selection.is_ignored(rule, path):
        ledger.skipped.append(SkippedFile(path, f"{message} ({rule.code} is ignored here)"))
    else:
        trouble = Trouble(path, message, START)
        ledger.troubles.append(trouble)
        _add_finding(rule, trouble, selection, ledger)


def report_bound(path: str, bound: str, selection: Selection, ledger: Ledger) -> None:
    """Report at `path` that the repository was not searched completely; all findings remain valid."""
    message = f"the repository was not searched completely: {bound}"
    help = "exclude data with `.gitignore` or `extend-exclude`"
    trouble = Trouble(path, message, START)
    _add_finding(registry.ENGINE_RULES["limit"], trouble, selection, ledger, help, severity="info")


def report_budget(paths: list[str], budget: Budget, selection: Selection, ledger: Ledger) -> None:
    """Report, in one finding, the files that were not read before the CPU time of the call was used up."""
    first = ", ".join(f"`{path}`" for path in paths[:_MAX_LISTED_FILES])
    more = f" and {len(paths) - _MAX_LISTED_FILES} more" if len(paths) > _MAX_LISTED_FILES else ""
    files, limit = format_count(len(paths), "file"), f"{budget.seconds:g} s of CPU time in total"
    message = shorten_message(f"{files} not fully checked within {limit}: {first}{more}")
    trouble = Trouble(paths[0], message, START, is_global=True)
    ledger.troubles.append(trouble)
    help = "raise `max-cpu-seconds`, or check fewer files at once"
    _add_finding(registry.ENGINE_RULES["limit"], trouble, selection, ledger, help)


def _add_finding(
    rule: Rule,
    trouble: Trouble,
    selection: Selection,
    ledger: Ledger,
    help: str | None = None,
    place: Place | None = None,
    severity: Severity | None = None,
) -> None:
    """Add a finding on a trouble, at the marked place or else at the trouble's position."""
    path, start = trouble.path, trouble.position or START
    if rule.code in selection.list_enabled(path):
        severity = selection.find_severity(rule, path) or severity or rule.severity
        end = start if place is None else place.document.locate(place.span.end)
        ledger.add([Finding(rule.code, rule.name, severity, trouble.message, path, start, end, place, help=help)], 0)
