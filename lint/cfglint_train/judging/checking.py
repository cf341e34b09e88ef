"""Checks of one subject, a config or a run, with the enabled rules. A subject can be checked any number of times.

To find out which facts a verdict rests on, check the same run with another fact: `check(changed, selection)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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
            checker = registry.get_checker(rule)
            reports = _run_rule(rule, checker, main, run)
            if run is not None and corrected_run is not None and corrected_run is not run:
                reports = _run_rule_on_worse(rule, checker, main, reports, run, corrected_run)
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


def _run_rule_on_worse(
    rule: Rule, checker: Checker, main: Config, written_reports: Iterable[_Report], written_run: Run, corrected_run: Run
) -> Iterator[_Report]:
    """Yield a rule's reports on a run as written or with its misspelled keys corrected, whichever fits worse.

    Reports that differ between the two have notes that name the corrections. Those on the run as written are at most
    warnings without a fix: correcting the keys settles them.
    """
    from cfglint_train.fitting import places  # few runs have misspelled keys

    notes = tuple(key.description for key in corrected_run.inputs.corrected_keys)
    worst = places.find_worst(corrected_run)
    if worst is not None and places.choose_worse(written_run) is written_run:
        unchanged = _list_confirmed(_run_rule(rule, checker, main, corrected_run))
        keys = "; ".join(notes)
        note = f"as written; as meant ({keys}), {worst.phase.title} {describe_verdict(worst)}"
        for report, run, reads in written_reports:
            if report.message not in unchanged:
                report = report._replace(
                    severity=max(report.severity or rule.severity, "warning", key=SEVERITIES.index),
                    notes=(*report.notes, note),
                    fix=None,
                    find_remedy=None,
                    help="correct the misspelled key",
                )
            yield report, run, reads
        return
    unchanged = _list_confirmed(written_reports)
    for report, run, reads in _run_rule(rule, checker, main, corrected_run):
        yield report if report.message in unchanged else report._replace(notes=(*report.notes, *notes)), run, reads


def _list_confirmed(reports: Iterable[_Report]) -> set[str]:
    return {report.message for report, *_ in reports if report.is_confirmed}
