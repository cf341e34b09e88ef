"""Checks of one subject, a config or a run, with the enabled rules. A subject can be checked any number of times.

To find out which facts a verdict rests on, check the same run with another fact: `check(changed, selection)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from cfglint_rules import registry
from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import SEVERITIES, Finding, Report
from cfglint_train.findings.verdicts import describe_verdict
from cfglint_train.foundation.errors import describe_crash
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.lens import Config
from cfglint_train.judging.certainty import Check as Checker
from cfglint_train.judging.certainty import grade_report
from cfglint_train.judging.one_disease import settle
from cfglint_train.judging.result import Trouble
from cfglint_train.judging.selection import Selection
from cfglint_train.judging.typo_correction import correct_typos
from cfglint_train.plan.names import Field
from cfglint_train.releases import resolution
from cfglint_train.runs.recorded_run import RecordedRun
from cfglint_train.runs.run import Run

_Report = tuple[Report, Run | None, Mapping[Field, None]]
"""A report, the run that it is about, and the plan fields that its rule has read."""

MAX_FINDINGS: Final = 200
"""Maximum number of findings per subject; a file with more is not a real config, or it attacks cfglint."""


class CheckResult(Frozen):
    """Findings of the rules on one subject."""

    findings: tuple[Finding, ...]
    troubles: tuple[Trouble, ...] = ()
    """Crashes of rules."""
    secrets: frozenset[str] = frozenset()
    """Secrets at the places of findings."""
    is_truncated: bool = False
    """True if there were more findings than `MAX_FINDINGS`."""


def check(subject: Config | Run, selection: Selection) -> CheckResult:
    """Run the enabled rules over a config alone, or over a run."""
    main = subject if isinstance(subject, Config) else subject.main
    run = None if isinstance(subject, Config) else subject
    configs = (main,) if run is None else run.configs
    frameworks = tuple([config.framework for config in configs])
    findings: list[Finding] = []
    troubles: list[Trouble] = []
    secrets: set[str] = set()
    for rule in selection.list_applicable(main.document.path, "config" if run is None else "run", frameworks):
        try:
            corrected_run = run
            if run is not None and rule.estimates:
                corrected_run = run.corrected = run.corrected or correct_typos(run, selection)
            if corrected_run is not None and not any(
                registry.is_needed(rule, candidate) for candidate in dict.fromkeys((run, corrected_run))
            ):
                continue  # recording what a rule reads costs more than most rules
            checker = registry.get_checker(rule)
            if run is None or corrected_run is None or corrected_run is run:
                reports = _run_rule(rule, checker, main, run)
            else:
                reports = _run_rule_on_both(rule, checker, main, run, corrected_run)
            for report, reported_run, reads in islice(reports, MAX_FINDINGS + 1):
                if len(findings) >= MAX_FINDINGS:
                    return CheckResult(tuple(settle(findings)), tuple(troubles), frozenset(secrets), is_truncated=True)
                if report.help is None and (rule.rests_on_vocabulary or rule.rests_on_release):
                    same_file = (config for config in configs if config.document is report.place.document)
                    report = report._replace(help=resolution.describe_source(next(same_file, main)))
                graded_report = grade_report(rule, report, main, reported_run, checker, reads)
                if graded_report is None:
                    continue
                from cfglint_train.judging.finding_builder import build_finding

                finding = build_finding(rule, report, selection, reported_run, graded_report)
                if finding is None:
                    continue
                findings.append(finding)
                if report.is_secret:
                    secrets.add(report.place.document.get_text(report.place.span).strip("\"'"))
        except Exception as error:  # a crashed rule is reported with its code, never swallowed
            troubles.append(Trouble(main.document.path, describe_crash(error), rule=rule.code, is_internal=True))
    return CheckResult(tuple(settle(findings)), tuple(troubles), frozenset(secrets))


def _run_rule(rule: Rule, checker: Checker, main: Config, run: Run | None) -> Iterator[_Report]:
    """Yield a rule's reports on a run, or on `main` alone if `run` is None, with the plan fields read so far.

    The fields that vocabulary rules read are not recorded: these rules test many clauses with different fields, and
    their reports state their own grounds.
    """
    reads: dict[Field, None] = dict.fromkeys(rule.needs)
    subject: Config | Run = main if run is None else run if rule.rests_on_vocabulary else RecordedRun(run, reads)
    for report in checker(subject):
        yield report, run, reads


def _run_rule_on_both(
    rule: Rule, checker: Checker, main: Config, written_run: Run, corrected_run: Run
) -> Iterator[_Report]:
    """Yield a rule's reports on a run with its misspelled keys corrected, and those that correcting the keys settles.

    If the run as written fits worse, reports on both state what is written; severity, grounds and fix stay those of
    the corrected run. Reports that only the run as written gets are then at most warnings without a fix. Reports that
    differ between the two have notes that name the corrections.
    """
    from cfglint_train.fitting import places  # few runs have misspelled keys

    descriptions = tuple(key.description for key in corrected_run.inputs.corrected_keys)
    as_meant = f"as written; as meant ({'; '.join(descriptions)})"
    is_written_worse = places.choose_worse(written_run) is written_run
    written = [item for item in _run_rule(rule, checker, main, written_run) if item[0].is_confirmed]
    for report, run, reads in _run_rule(rule, checker, main, corrected_run):
        if is_written_worse and not report.is_confirmed:
            continue
        claimed = [item for item in written if _is_same_claim(report, item[0])]
        same = min(claimed, key=lambda item: item[0].place != report.place, default=None)
        if same is not None:
            written.remove(same)
        if same is None or not is_written_worse or _rank_severity(rule, report) < _rank_severity(rule, same[0]):
            is_unchanged = same is not None and same[0].message == report.message
            yield report if is_unchanged else report._replace(notes=(*report.notes, *descriptions)), run, reads
        elif same[0].message == report.message:
            yield report, run, reads
        else:
            notes = (*same[0].notes, f"{as_meant}, {report.message}")
            yield report._replace(message=same[0].message, notes=notes), run, reads
    worst = places.find_worst(corrected_run)
    verdict = "" if worst is None else f", {worst.phase.title} {describe_verdict(worst)}"
    for report, run, reads in written if is_written_worse else ():
        severity = SEVERITIES[max(_rank_severity(rule, report), SEVERITIES.index("warning"))]
        notes = (*report.notes, f"{as_meant}{verdict}")
        help_text = "correct the misspelled key"
        yield report._replace(severity=severity, notes=notes, fix=None, find_remedy=None, help=help_text), run, reads


def _is_same_claim(report: Report, other: Report) -> bool:
    """Return whether two reports of a rule claim the same, though with other figures."""
    return (report.quantity, report.claim) == (other.quantity, other.claim)


def _rank_severity(rule: Rule, report: Report) -> int:
    return SEVERITIES.index(report.severity or rule.severity)
