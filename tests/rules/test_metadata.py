"""Metadata of rules against their behaviour: stated fields, and fields recorded while a rule reads the plan."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tools.rule_reads import TARGET, format_reads

from cfglint_rules import catalogue, registry
from cfglint_train.fitting import moves
from cfglint_train.plan.fields import FIELDS
from cfglint_train.plan.names import Field
from cfglint_train.runs.recorded_run import RecordedRun
from cfglint_train.runs.run import Run, RunInputs
from tests.support.corpus import REPOSITORY
from tests.support.linting import build_options, lint, list_runs

FIXTURES = REPOSITORY / "fixtures" / "rules"
CHECKED = [
    rule
    for rule in registry.RULES.values()
    if rule.scope == "run" and not rule.rests_on_vocabulary and rule.code != "HSE001"
]
"""Rules that read plan fields; those of KEY rules are in their tables, those of house rules in the settings."""


def test_the_metadata_is_what_the_modules_state():
    for rule in registry.RULES.values():
        module = registry.load_module(rule)
        assert module.RULE._replace(module=rule.module) == rule
        assert {*rule.needs, *rule.writes} <= {*FIELDS}
        assert {*rule.inputs} <= {*RunInputs._fields}
        assert {*rule.capacities} <= {"gpu", "host", "disk"}
        assert bool(rule.writes) <= (rule.fix is not None)
        assert hasattr(module, "refused") == rule.refuses


@pytest.mark.parametrize(
    "text",
    [
        'RULE = Rule("PRF900", "no-data-workers", "warning")',
        'RULE: Final = Rule("PRF900", "no-data-workers", "warning")  # advice',
        'RULE: Final = Rule("PRF900",\n    "no-data-workers", "warning")',
    ],
)
def test_metadata_in_another_form_is_refused_and_not_left_out(text, tmp_path):
    (tmp_path / "throughput").mkdir()
    (tmp_path / "throughput" / "no_data_workers.py").write_text(f"{text}\n")
    with pytest.raises(ValueError, match=r"no_data_workers\.py: `RULE` must read"):
        catalogue.read(str(tmp_path))


def test_no_rule_of_performance_is_an_error():
    """Report slowness as a warning or info, because the run is neither rejected nor lost."""
    rules = [rule for rule in registry.RULES.values() if rule.code.startswith("PRF")]
    assert rules
    for rule in rules:
        reported = {
            report.severity for run in yield_fixture_runs(rule.code) for report in registry.get_checker(rule)(run)
        }
        assert "error" not in {rule.severity, *reported}, rule.code


def yield_fixture_runs(code: str) -> Iterator[Run]:
    for kind in ("fires", "silent", "fixed"):
        if (FIXTURES / code / kind).is_dir():
            yield from list_runs(FIXTURES / code / kind)


@pytest.mark.parametrize("rule", CHECKED, ids=lambda rule: rule.code)
def test_a_rule_writes_the_fields_that_it_names(rule):
    fixes = (
        fix for run in yield_fixture_runs(rule.code) for report in registry.get_checker(rule)(run)
        if (fix := report.resolve_remedy().fix) is not None
    )  # fmt: skip
    written = {field for fix in fixes for field in fix.changes}
    if rule.fix is not None and not rule.writes and written:  # changes that make a run fit
        assert written <= moves.list_fields()
    else:
        assert written == set(rule.writes)


def test_the_readers_of_each_field_are_up_to_date():
    assert TARGET.read_text(encoding="utf-8") == format_reads(), "python -m tools.rule_reads"


@pytest.mark.parametrize("rule", [rule for rule in CHECKED if not rule.estimates], ids=lambda rule: rule.code)
def test_a_rule_that_fires_reads_a_field_that_it_is_listed_for(rule):
    listed = {field for field in FIELDS if rule in registry.list_readers(field)}
    seen: dict[Field, None] = {}
    reported = [
        report for run in yield_fixture_runs(rule.code) for report in registry.get_checker(rule)(RecordedRun(run, seen))
    ]
    assert reported
    assert not listed or not listed.isdisjoint(seen)


def test_a_finding_names_the_fields_that_were_read_for_it():
    findings = lint(FIXTURES / "CKP006" / "fires", build_options(select=["CKP006"])).findings
    assert findings
    for finding in findings:
        assert {"checkpoint.model_only", "parallel.strategy"} <= set(finding.fields_read)
        assert "sequence.length" not in finding.fields_read


def test_every_way_to_read_a_field_is_recorded():
    run = next(yield_fixture_runs("PRF009"))
    seen: dict[Field, None] = {}
    watched = RecordedRun(run, seen)
    assert watched.plan.get("method.stage") == run.plan.get("method.stage")
    assert watched.plan.sequence.length == run.plan.sequence.length
    assert watched.plan.world_size == run.plan.world_size
    assert watched.get_origin("batch.micro") == run.get_origin("batch.micro")
    assert watched.is_stated("batch.epochs") == run.is_stated("batch.epochs")
    assert list(seen) == [
        "method.stage", "sequence.length", "launch.nodes", "launch.gpus_per_node", "batch.micro", "batch.epochs",
    ]  # fmt: skip
    assert watched.plan.replace({"batch.micro": 3}) == run.plan.replace({"batch.micro": 3})
    assert watched.estimate is run.estimate
    assert len(seen) == 6
