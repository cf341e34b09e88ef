"""What a rule says of itself holds: the catalogue is generated from it, and it reads and writes the fields it names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType
from typing import Any

import pytest
from tools.rules import TARGET, catalogue

from cfglint_rules import registry
from cfglint_rules.memory.fields import CHANGED
from cfglint_train.plan.fields import FIELDS, Plan
from cfglint_train.runs.run import Run
from tests.support.cases import for_each
from tests.support.corpus import REPOSITORY
from tests.support.linting import runs_in

FIXTURES = REPOSITORY / "fixtures" / "rules"
CHECKED = [rule for rule in registry.RULES.values() if rule.scope == "run" and not rule.code.startswith(("KEY", "HSE"))]
"""The fields that KEY rules read are in their tables, those of house rules in the settings."""


def test_the_catalogue_is_what_the_modules_say():
    assert TARGET.read_text(encoding="utf-8") == catalogue(), "python -m tools.rules"


@for_each("code", registry.RULES)
def test_fields_are_fields(code):
    rule = registry.RULES[code]
    assert {*rule.reads, *rule.writes} <= {*FIELDS}
    assert rule.needs.keys() <= {*rule.reads}
    assert bool(rule.writes) <= (rule.fix is not None)
    assert registry.module(rule).RULE._replace(module=rule.module) == rule
    assert hasattr(registry.module(rule), "refused") == rule.refuses


class Recorder:
    """A group of plan fields that notes which of them a rule's own module looks at."""

    def __init__(self, group: Any, name: str, seen: set[str]) -> None:
        self._group, self._name, self._seen = group, name, seen

    def __getattr__(self, field: str) -> Any:
        if by_a_rule(sys._getframe(1).f_code):
            self._seen.add(f"{self._name}.{field}")
        return getattr(self._group, field)


def by_a_rule(code: CodeType) -> bool:
    """Whether a rule looks, or what it asks how long the run is and how often it saves."""
    asked = code.co_filename.endswith("/plan/length.py") or code.co_name == "most_saves"
    return asked or "/cfglint_rules/" in code.co_filename


class RecordedPlan:
    """A plan whose groups note what is looked at."""

    def __init__(self, plan: Plan, seen: set[str]) -> None:
        self._plan, self._seen = plan, seen

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._plan, name)
        if name in Plan._fields:
            return Recorder(found, name, self._seen)
        if name == "data_parallel" and by_a_rule(sys._getframe(1).f_code):
            self._seen |= RANKS
        return found

    def get(self, field: str) -> Any:
        if by_a_rule(sys._getframe(1).f_code):
            self._seen.add(field)
        return self._plan.get(field)


RANKS = {"launch.nodes", "launch.gpus_per_node"}


def watched(run: Run, seen: set[str]) -> Run:
    """The run, noting what a rule asks of it."""
    run.estimate  # noqa: B018 (made before the plan is watched)
    run.parts = run.parts._replace(refusals=None)  # what that reads is KEY006's
    origin, stated = run.origin, run.stated

    def asked(field: str, answer: Any) -> Any:
        if by_a_rule(sys._getframe(2).f_code):
            seen.add(field)
        return answer(field)

    run.plan = RecordedPlan(run.plan, seen)  # type: ignore[assignment]
    run.origin = lambda field: asked(field, origin)  # type: ignore[method-assign]
    run.stated = lambda field: asked(field, stated)  # type: ignore[method-assign]
    return run


def fixture_runs(code: str) -> Iterator[Run]:
    for kind in ("fires", "silent", "fixed"):
        if (FIXTURES / code / kind).is_dir():
            yield from runs_in(FIXTURES / code / kind)


@pytest.mark.parametrize("rule", CHECKED, ids=lambda rule: rule.code)
def test_a_rule_reads_and_writes_the_fields_that_it_names(rule):
    seen: set[str] = set()
    written: set[str] = set()
    for run in fixture_runs(rule.code):
        for report in registry.module(rule).check(watched(run, seen)):
            fix = report.remedied().fix
            written |= set(fix.changes if fix is not None else ())
    assert seen == set(rule.reads)
    if rule.writes == CHANGED:  # whatever makes a run fit
        assert written
        assert written <= set(rule.writes)
    else:
        assert written == set(rule.writes)
