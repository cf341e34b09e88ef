"""Rules against changed plans and documents, which must change the findings of their fixtures.

A rule whose findings do not depend on the run fails here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from cfglint_rules import registry
from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Finding, Report
from cfglint_train.plan.names import Field
from cfglint_train.runs.recorded_run import RecordedRun
from cfglint_train.runs.run import Run
from tests.rules.test_metadata import CHECKED, FIXTURES
from tests.support.linting import build_options, copy_folder, lint, list_runs
from tests.support.plans import change_plan, list_legal_values

KINDS = ("fires", "silent")
OF_A_PLAN = [rule for rule in CHECKED if rule.code not in ("CHK001", "REL003", "SYN004", "XFL003")]
"""Rules that report on a plan; the others ask for files."""


def check_run(rule: Rule, run: Run) -> list[Report]:
    """Return the reports of a rule on a run, before grading by certainty."""
    reports = (report for report in registry.get_checker(rule)(run) if report.is_confirmed)
    return [report._replace(confirm=None).resolve_remedy() for report in reports]


def record_fields(rule: Rule, run: Run) -> tuple[Field, ...]:
    """Return the fields of a run that a rule reads, directly or through the estimate."""
    seen: dict[Field, None] = dict.fromkeys(rule.needs)
    check_run(rule, RecordedRun(run, seen))
    return (*seen, *sorted(run.estimate.fields - seen.keys())) if rule.estimates else tuple(seen)


def yield_mutated_reports(rule: Rule, run: Run) -> Iterator[list[Report]]:
    """Yield the rule's reports for each other legal value of each field that it reads."""
    for field in record_fields(rule, run):
        for value in list_legal_values(field):
            if value != run.plan.get(field):
                yield check_run(rule, change_plan(run, {field: value}))


@pytest.mark.parametrize("rule", OF_A_PLAN, ids=lambda rule: rule.code)
def test_a_changed_field_flips_what_a_rule_says_and_an_unchanged_plan_does_not(rule):
    firing, silent = ([(run, check_run(rule, run)) for run in list_runs(FIXTURES / rule.code / kind)] for kind in KINDS)
    assert any(
        len(mutated) < len(reports)
        for run, reports in firing
        if reports
        for mutated in yield_mutated_reports(rule, run)
    )
    assert any(mutated for run, reports in silent if not reports for mutated in yield_mutated_reports(rule, run))
    for run, reports in (*firing, *silent):
        assert check_run(rule, change_plan(run, {})) == reports


def lint_with(folder: Path, code: str) -> list[Finding]:
    """Return the findings of a rule; SYN005 needs all rules to know whether a suppression is used."""
    selected = None if code == "SYN005" else [code]
    return [finding for finding in lint(folder, build_options(select=selected)).findings if finding.code == code]


def count_findings(folder: Path, code: str) -> Counter[tuple[str, str]]:
    return Counter((finding.path, finding.message) for finding in lint_with(folder, code))


def is_removable(folder: Path, finding: Finding, before: Counter[tuple[str, str]]) -> bool:
    """Return whether removing one line removes the finding.

    Lines of its own file are tried first, nearest first; then those of the files beside it.
    """
    reported_file = folder / finding.path
    message_key = finding.path, finding.message
    for path in (
        reported_file,
        *(path for path in sorted(reported_file.parent.iterdir()) if path.is_file() and path != reported_file),
    ):
        content = path.read_bytes()
        lines = content.splitlines(keepends=True)
        try:
            for number in sorted(range(len(lines)), key=lambda number: abs(number + 1 - finding.start.line)):
                path.write_bytes(b"".join(lines[:number] + lines[number + 1 :]))
                if count_findings(folder, finding.code)[message_key] < before[message_key]:
                    return True
        finally:
            path.write_bytes(content)
    return False


@pytest.mark.slow
@pytest.mark.parametrize("code", sorted(registry.RULES))
def test_every_finding_goes_with_a_line_of_its_files(code, tmp_path):
    (tmp_path / ".git").mkdir()
    folder = copy_folder(FIXTURES / code / "fires", tmp_path / "fires")
    findings, before = lint_with(folder, code), count_findings(folder, code)
    assert findings
    assert [finding for finding in findings if not is_removable(folder, finding, before)] == []
