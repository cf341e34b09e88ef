"""One cause or one remedy in several files: one finding, for reports that people read.

The same advice on each of forty recipes is noise. Reports that mark lines of files (annotations, SARIF) and the
baseline keep every finding.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from cfglint_rules.registry import RULES
from cfglint_train.findings.finding import Finding, Related
from cfglint_train.foundation.roots import Roots
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.wording import format_count
from cfglint_train.judging.result import Result

MIN_PLACES: Final = 4
"""Minimum number of places that are folded; two or three are easier to read one by one."""
MAX_LISTED_PLACES: Final = 5
"""Maximum number of other places that a finding lists; the rest are only counted."""
_FIGURE: Final = r"(?<![\w.])\d[\d.,]*(?!\w)"


def fold_places(result: Result) -> Result:
    """Return the result with infos that the same fix settles, within one repository, as one finding.

    For the rules that set `folds`, this applies to all findings with one cause. Findings in a file that several runs
    share already list these runs.
    """
    roots = Roots()
    groups: dict[tuple[Any, ...], list[Finding]] = {}
    for number, finding in enumerate(result.findings):
        is_advice = finding.severity == "info" and finding.fix is not None
        can_fold = finding.place is not None and (is_advice or RULES[finding.code].folds)
        key = _build_key(finding, roots.find_root(finding.path)[0]) if can_fold else (number,)
        groups.setdefault(key, []).append(finding)
    folded = {id(finding): group for group in groups.values() if len(group) >= MIN_PLACES for finding in group}
    return result._replace(
        findings=tuple(
            _fold(folded[id(finding)]) if id(finding) in folded else finding
            for finding in result.findings
            if folded.get(id(finding), [finding])[0] is finding
        )
    )


def _build_key(finding: Finding, root: str) -> tuple[Any, ...]:
    """Return what findings to fold have in common: their fix, or else their message and help.

    Findings that only say what was not checked have their remedy in common. Figures may differ, such as sizes in GiB,
    but not digits of a name (`load_in_4bit`).
    """
    fix = finding.fix
    cause: tuple[str | None, ...] = (finding.message, finding.help)
    if fix is not None:
        cause = (fix.applicability, fix.message, fix.refused)
    elif RULES[finding.code].unchecked and finding.help:
        cause = (finding.help,)
    return (root, finding.code, finding.severity, *(re.sub(_FIGURE, "#", part or "") for part in cause))


def _fold(group: Sequence[Finding]) -> Finding:
    """Return the first finding of a group with the places and edits of the others."""
    first, *others = group
    places = [Related(other.place, _describe_other(first, other)) for other in others if other.place is not None]
    unlisted = len(places) - MAX_LISTED_PLACES
    notes = (*first.notes, f"the same in {format_count(unlisted, 'more place')}") if unlisted > 0 else first.notes
    edits = tuple(edit for finding in group if finding.fix is not None for edit in finding.fix.edits)
    return first._replace(
        related=(*first.related, *places[:MAX_LISTED_PLACES]),
        notes=notes,
        fix=None if first.fix is None else first.fix._replace(edits=edits),
        others=tuple(others),
    )


def _describe_other(first: Finding, other: Finding) -> str:
    """Return what to say about another place of a finding: how it differs from the first one, if it does."""
    if first.fix is not None and other.fix is not None and other.fix.message != first.fix.message:
        return other.fix.message
    return "the same here" if other.message == first.message else other.message
