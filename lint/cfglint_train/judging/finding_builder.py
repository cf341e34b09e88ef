"""From a rule's report to a finding: its code, its place, and the fix that the settings allow."""

from __future__ import annotations

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Finding, Fix, Related, Report, bounded
from cfglint_train.foundation.typed import Final
from cfglint_train.judging.certainty import Grading, capped
from cfglint_train.judging.selection import Selection
from cfglint_train.runs.run import Run
from cfglint_train.settings.settings import Settings, selects

OF_RUN: Final = "in the run of this configuration"
"""What is said at the head of a run's main configuration, where a finding points into a companion."""


def signed(
    rule: Rule, report: Report, selection: Selection, run: Run | None = None, grading: Grading | None = None
) -> Finding | None:
    """The finding that a rule's report is; None where the rule is off for the file that it points at.

    `grading`: what the report may say; without it, it rests on the text alone.
    """
    grading = grading or Grading(report.severity or rule.severity, "stated", (), report.notes, report.fix, report.help)
    document = report.place.document
    if rule.code not in selection.enabled(document.path):
        return None
    level = selection.level(rule, document.path)
    return Finding(
        code=rule.code,
        name=rule.name,
        severity=grading.severity if level is None else capped(level, grading.certainty),
        message=bounded(report.message),
        path=document.path,
        start=document.position(report.place.span.start),
        end=document.position(report.place.span.end),
        place=report.place,
        related=_related(report, run),
        help=None if grading.help is None else bounded(grading.help),
        notes=tuple(map(bounded, grading.notes)),
        certainty=grading.certainty,
        rests_on=grading.rests_on,
        corners=grading.corners,
        reads=grading.reads,
        intent=_weighed(rule, grading.fix, selection.settings_for(document.path)),
        run=run,
    )


def _related(report: Report, run: Run | None) -> tuple[Related, ...]:
    """The report's further places; where it points into a companion, the run that it is about."""
    if run is None or report.place.document is run.main.document:
        return report.related
    return (*report.related, Related(run.main.top(), OF_RUN))


def _weighed(rule: Rule, fix: Fix | None, settings: Settings) -> Fix | None:
    """The fix with the applicability that the settings give it."""
    if fix is None or fix.applicability == "display":
        return fix

    def meant(selectors: tuple[str, ...]) -> int:
        return selects(selectors, rule.code, rule.name)

    if meant(settings.unfixable) >= meant(settings.fixable):
        return None
    if meant(settings.safe_fixes) > meant(settings.unsafe_fixes):
        return fix._replace(applicability="safe")
    if meant(settings.unsafe_fixes) >= 0:
        return fix._replace(applicability="unsafe")
    return fix
