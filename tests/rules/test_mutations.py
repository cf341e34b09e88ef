"""A changed plan, or a changed document, flips what each rule says of its fixtures.

A rule that says the same whatever the run does fails here.
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
from tests.support.linting import copied, lint, options, runs_in
from tests.support.plans import legal, moved

KINDS = ("fires", "silent")
OF_A_PLAN = [rule for rule in CHECKED if rule.code not in ("CHK001", "REL003", "SYN004", "XFL003")]
"""The others ask for files."""


def said(rule: Rule, run: Run) -> list[Report]:
    """What a rule says of a run, whatever certainty makes of it."""
    return [report.remedied() for report in registry.checker(rule)(run)]


def reads(rule: Rule, run: Run) -> tuple[Field, ...]:
    """The fields that a rule reads of a run, itself or through the estimate."""
    seen: dict[Field, None] = dict.fromkeys(rule.needs)
    said(rule, RecordedRun(run, seen))
    return (*seen, *sorted(run.estimate.fields - seen.keys())) if rule.estimates else tuple(seen)


def neighbours(rule: Rule, run: Run) -> Iterator[list[Report]]:
    """What the rule says where one of the fields that it reads has another legal value."""
    for field in reads(rule, run):
        for value in legal(field):
            if value != run.plan.get(field):
                yield said(rule, moved(run, {field: value}))


@pytest.mark.parametrize("rule", OF_A_PLAN, ids=lambda rule: rule.code)
def test_a_changed_field_flips_what_a_rule_says_and_an_unchanged_plan_does_not(rule):
    firing, silent = ([(run, said(rule, run)) for run in runs_in(FIXTURES / rule.code / kind)] for kind in KINDS)
    assert any(len(other) < len(reports) for run, reports in firing if reports for other in neighbours(rule, run))
    assert any(other for run, reports in silent if not reports for other in neighbours(rule, run))
    for run, reports in (*firing, *silent):
        assert said(rule, moved(run, {})) == reports


def found_in(folder: Path, code: str) -> list[Finding]:
    """The findings of a rule; whether a suppression is used depends on all rules."""
    selected = None if code == "SYN005" else [code]
    return [finding for finding in lint(folder, options(select=selected)).findings if finding.code == code]


def told(folder: Path, code: str) -> Counter[tuple[str, str]]:
    return Counter((finding.path, finding.message) for finding in found_in(folder, code))


def goes(folder: Path, finding: Finding, before: Counter[tuple[str, str]]) -> bool:
    """Whether a finding goes with some line of its file, or of one beside it; the one that it points at comes first."""
    own = folder / finding.path
    said_of = finding.path, finding.message
    for path in (own, *(path for path in sorted(own.parent.iterdir()) if path.is_file() and path != own)):
        content = path.read_bytes()
        lines = content.splitlines(keepends=True)
        try:
            for number in sorted(range(len(lines)), key=lambda number: abs(number + 1 - finding.start.line)):
                path.write_bytes(b"".join(lines[:number] + lines[number + 1 :]))
                if told(folder, finding.code)[said_of] < before[said_of]:
                    return True
        finally:
            path.write_bytes(content)
    return False


@pytest.mark.slow
@pytest.mark.parametrize("code", sorted(registry.RULES))
def test_every_finding_goes_with_a_line_of_its_files(code, tmp_path):
    (tmp_path / ".git").mkdir()
    folder = copied(FIXTURES / code / "fires", tmp_path / "fires")
    found, before = found_in(folder, code), told(folder, code)
    assert found
    assert [finding for finding in found if not goes(folder, finding, before)] == []
