"""Findings from reports, with the rule's code, the place, and the fix that the settings allow."""

from __future__ import annotations

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Finding, Fix, Related, Report, shorten_message
from cfglint_train.foundation.typed import Final
from cfglint_train.judging.certainty import GradedReport, cap_severity
from cfglint_train.judging.selection import Selection
from cfglint_train.runs.run import Run
from cfglint_train.settings.settings import Settings, measure_precision

OF_RUN: Final = "in the run of this configuration"
"""Related note at the top of a run's main config, for findings that point into a companion."""


def build_finding(
    rule: Rule, report: Report, selection: Selection, run: Run | None = None, graded: GradedReport | None = None
) -> Finding | None:
    """Return the finding for a rule's report, or None if the rule is off for the file that it points at.

    Without `graded`, the report rests on the text alone.
    """
    graded = graded or GradedReport(
        report.severity or rule.severity, "stated", (), report.notes, report.fix, report.help
    )
    document = report.place.document
    if rule.code not in selection.list_enabled(document.path):
        return None
    severity = selection.find_severity(rule, document.path)
    return Finding(
        code=rule.code,
        name=rule.name,
        severity=graded.severity if severity is None else cap_severity(severity, graded.certainty),
        message=shorten_message(report.message),
        path=document.path,
        start=document.locate(report.place.span.start),
        end=document.locate(report.place.span.end),
        place=report.place,
        related=_list_related_places(report, run),
        help=None if graded.help is None else shorten_message(graded.help),
        notes=tuple(map(shorten_message, graded.notes)),
        certainty=graded.certainty,
        rests_on=graded.rests_on,
        scenarios=graded.scenarios,
        fields_read=graded.fields_read,
        intent=_apply_fix_settings(rule, graded.fix, selection.settings_for(document.path)),
        run=run,
        quantity=report.quantity,
        left_to=report.left_to,
    )


def _list_related_places(report: Report, run: Run | None) -> tuple[Related, ...]:
    """Return the related places of a report, each once; if it points into a companion, also the run's main config."""
    others = {(related.place.document.path, related.place.span): related for related in reversed(report.related)}
    others.pop((report.place.document.path, report.place.span), None)
    places = tuple(reversed(others.values()))
    if run is None or report.place.document is run.main.document:
        return places
    return (*places, Related(run.main.find_top(), OF_RUN))


def _apply_fix_settings(rule: Rule, fix: Fix | None, settings: Settings) -> Fix | None:
    """Return the fix with the applicability from the settings, or None if they disable it."""
    if fix is None or fix.applicability == "display":
        return fix

    def match_selectors(selectors: tuple[str, ...]) -> int:
        return measure_precision(selectors, rule.code, rule.name)

    if match_selectors(settings.unfixable) >= match_selectors(settings.fixable):
        return None
    if match_selectors(settings.safe_fixes) > match_selectors(settings.unsafe_fixes):
        return fix._replace(applicability="safe")
    if match_selectors(settings.unsafe_fixes) >= 0:
        return fix._replace(applicability="unsafe")
    return fix
