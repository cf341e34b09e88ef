"""What was not read, or not to its end: as findings of their own, or as files left out where the rule is ignored."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_rules import registry
from cfglint_rules.rule import Rule
from cfglint_train.documents.document import Position
from cfglint_train.findings.finding import Finding, Severity, bounded
from cfglint_train.foundation.budget import Budget
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.wording import counted
from cfglint_train.judging.collector import Ledger
from cfglint_train.judging.result import Trouble
from cfglint_train.judging.selection import Selection
from cfglint_train.plan.origin import Place
from cfglint_train.repository.documents import START, Cause, Documents, SkippedFile

_REMEDIES: Final[Mapping[Cause, str]] = {
    "absent": "commit the file, or check it where it is: `cfglint FILE`",
    "run": "describe the run in a plan (`cfglint estimate --plan FILE.json`), or measure one step on your own GPU",
}
"""What a person can do where nothing is wrong with the file itself."""

_MOST_NAMED: Final = 3
"""Files that one message names."""


def note_unread(documents: Documents, selection: Selection, ledger: Ledger) -> None:
    """Enter the files that could not be read. Per-path ignores of the rule also apply here."""
    for unread in documents.unread:
        rule = registry.OF_ENGINE[unread.cause]
        if selection.ignores(rule, unread.path):
            documents.ignore(unread.path, f"{unread.message} ({rule.code} is ignored here)")
        elif unread.cause in _REMEDIES:
            remedy = _REMEDIES[unread.cause]
            _report(rule, unread.path, unread.position, unread.message, selection, ledger, remedy, unread.place)
        else:
            _enter(rule, unread.path, unread.position, unread.message, selection, ledger)


def note_limit(path: str, message: str, selection: Selection, ledger: Ledger) -> None:
    """Enter a file that was not checked to its end: what was found of it is kept. Per-path ignores also apply here."""
    rule = registry.OF_ENGINE["limit"]
    if selection.ignores(rule, path):
        ledger.skipped.append(SkippedFile(path, f"{message} ({rule.code} is ignored here)"))
    else:
        _enter(rule, path, START, message, selection, ledger)


def note_bound(path: str, bound: str, selection: Selection, ledger: Ledger) -> None:
    """Enter, at one of its files, that not all of a repository was looked at; what is reported holds all the same."""
    message = f"what the repository says of it may be incomplete: {bound}"
    help = "leave data out with `.gitignore` or `extend-exclude`"
    _report(registry.OF_ENGINE["limit"], path, START, message, selection, ledger, help, severity="info")


def note_budget(paths: list[str], budget: Budget, selection: Selection, ledger: Ledger) -> None:
    """Enter, once for all of them, the files that were not read before the time of the run was used up."""
    first = ", ".join(f"`{path}`" for path in paths[:_MOST_NAMED])
    more = f" and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else ""
    files, limit = counted(len(paths), "file"), f"{budget.seconds:g} s of CPU time for all"
    message = bounded(f"{files} not fully checked within {limit}: {first}{more}")
    ledger.troubles.append(Trouble(paths[0], message, START, whole=True))
    help = "raise `max-cpu-seconds`, or check fewer files at once"
    _report(registry.OF_ENGINE["limit"], paths[0], START, message, selection, ledger, help)


def _enter(rule: Rule, path: str, place: Position, message: str, selection: Selection, ledger: Ledger) -> None:
    ledger.troubles.append(Trouble(path, message, place))
    _report(rule, path, place, message, selection, ledger)


def _report(
    rule: Rule,
    path: str,
    place: Position,
    message: str,
    selection: Selection,
    ledger: Ledger,
    help: str | None = None,
    said_of: Place | None = None,
    severity: Severity | None = None,
) -> None:
    if rule.code in selection.enabled(path):
        severity = selection.level(rule, path) or severity or rule.severity
        end = place if said_of is None else said_of.document.position(said_of.span.end)
        ledger.add([Finding(rule.code, rule.name, severity, message, path, place, end, said_of, help=help)], 0)
