"""A changed plan, or a changed document, flips what each rule says of its fixtures.

A rule that says the same whatever the run does, or that depends on a field only by name, fails here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from cfglint_rules import registry
from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Finding, Report
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run
from tests.support.corpus import REPOSITORY
from tests.support.linting import copied, lint, options, runs_in
from tests.support.plans import legal, moved

FIXTURES = REPOSITORY / "fixtures" / "rules"
OF_A_PLAN = [rule for rule in registry.RULES.values() if rule.reads]


def said(rule: Rule, run: Run) -> list[Report]:
    """What a rule says of a run, whatever certainty makes of it."""
    return [report.remedied() for report in registry.module(rule).check(run)]


@cache
def judged(code: str, kind: str) -> tuple[tuple[Run, list[Report]], ...]:
    """The runs of a rule's fixtures with what it says of them."""
    return tuple((run, said(registry.RULES[code], run)) for run in runs_in(FIXTURES / code / kind))


def neighbours(rule: Rule, run: Run, fields: tuple[Field, ...]) -> Iterator[list[Report]]:
    """What the rule says where one of the fields has another legal value."""
    for field in fields:
        for value in legal(field):
            if value != run.plan.get(field):
                yield said(rule, moved(run, {field: value}))


def looked_at(rule: Rule, run: Run) -> tuple[Field, ...]:
    """The fields that a rule's verdict depends on, through the estimate, too."""
    return (*rule.reads, *sorted(run.estimate.fields)) if rule.estimates else rule.reads


@pytest.mark.parametrize("rule", OF_A_PLAN, ids=lambda rule: rule.code)
def test_a_changed_field_silences_a_finding(rule):
    found = [(run, reports) for run, reports in judged(rule.code, "fires") if reports]
    assert any(len(other) < len(reports) for run, reports in found for other in neighbours(rule, run, rule.reads))


@pytest.mark.parametrize("rule", OF_A_PLAN, ids=lambda rule: rule.code)
def test_a_changed_field_breaks_a_silence(rule):
    silent = [run for run, reports in judged(rule.code, "silent") if not reports]
    assert any(other for run in silent for other in neighbours(rule, run, looked_at(rule, run)))


@pytest.mark.parametrize(("rule", "field"), [(rule, field) for rule in OF_A_PLAN for field in rule.reads],
                         ids=lambda one: one.code if isinstance(one, Rule) else one)  # fmt: skip
def test_every_field_that_a_rule_reads_matters(rule, field):
    runs = (*judged(rule.code, "fires"), *judged(rule.code, "silent"))
    assert any(other != reports for run, reports in runs for other in neighbours(rule, run, (field,)))


@pytest.mark.parametrize(("rule", "field"), [(rule, field) for rule in OF_A_PLAN for field in rule.needs],
                         ids=lambda one: one.code if isinstance(one, Rule) else one)  # fmt: skip
def test_a_rule_reports_nothing_without_what_it_needs(rule, field):
    """Its module is not imported for such runs."""
    runs = [run for run, reports in (*judged(rule.code, "fires"), *judged(rule.code, "silent")) if reports]
    without = [{field: value} for value in (None, *legal(field))]
    others = [other for run in runs for one in without if not rule.may_report((other := moved(run, one)).plan)]
    assert all(rule.may_report(run.plan) for run in runs)
    assert others
    assert [other.plan.get(field) for other in others if said(rule, other)] == []


@pytest.mark.parametrize("rule", OF_A_PLAN, ids=lambda rule: rule.code)
def test_an_unchanged_plan_flips_nothing(rule):
    """What the tests above compare is the verdict, not how it was made."""
    for run, reports in (*judged(rule.code, "fires"), *judged(rule.code, "silent")):
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
