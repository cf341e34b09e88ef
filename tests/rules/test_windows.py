"""Findings under several candidate releases, checked against the findings at each release alone."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cfglint_rules import registry
from cfglint_schemas.vocabulary import load
from cfglint_train.findings.finding import SEVERITIES
from cfglint_train.frameworks.framework import load as framework_of
from cfglint_train.frameworks.lens import Config
from cfglint_train.judging import dispatch
from cfglint_train.judging.certainty import grade_report
from cfglint_train.plan.origin import Origin
from cfglint_train.plan.releases import PossibleReleases, Release, Releases
from tests.support.linting import build_options, change_directory

RULES = [registry.RULES[code] for code in ("KEY001", "KEY002", "KEY003", "KEY004")]

KEYS = {
    "axolotl": {
        "flash_attention": True, "attn_implementation": "sdpa", "relora_steps": 3, "message_field_role": "x",
        "unsloth_lora_mlp": True, "max_packed_sequence_len": 5, "fsdp": ["full_shard"], "gc_steps": 4,
        "dpo_beta": 0.1, "sequence_length": 4096, "context_parapllel_size": 2, "evaluation_strategy": "steps",
        "liger_glu_activation": True, "warmup_steps": 0.1, "nonesuch": 1, "fsdp_config": {"sharding_strategy": "x"},
    },
    "deepspeed": {
        "fp16": {"enabled": True, "opt_level": "O2"}, "bf16": {"enabled": True, "loss_scale_window": 3},
        "zero_optimization": {"stage": 2, "cpu_offload": True}, "elasticity": {"enabled": False},
        "sparse_attention": {"mode": "fixed"}, "nonesuch": 1, "steps_per_print": "x",
    },
}  # fmt: skip


BASE: dict[str, dict[str, object]] = {
    "axolotl": {"base_model": "m", "datasets": [{"path": "d", "type": "alpaca"}], "micro_batch_size": 1},
    "deepspeed": {"train_batch_size": 8, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 1}},
}


def build_config(framework: str, keys: dict[str, object], window: tuple[str, ...], folder: Path) -> Config:
    """Return the config with these keys, whose framework may be at any release of the window."""
    base = BASE[framework]
    path = folder / ("c.yaml" if framework == "axolotl" else "c.json")
    path.write_text(json.dumps({**base, **keys}, indent=1), encoding="utf-8")
    with change_directory(folder):
        (config,) = dispatch.open_workspace(build_options()).read_configs(path.name)
    chosen = window[-1]
    releases = Releases(
        {framework: Release(chosen, Origin("assumed"))},
        candidate_finders={framework: lambda: PossibleReleases(framework, window, chosen, is_stated=False)},
    )
    return Config(framework, config.document, releases, config.root, config.role)


def list_severities(config: Config) -> dict[tuple[str, int], str]:
    """Return the highest severity of each rule at each place."""
    severity_by_place: dict[tuple[str, int], str] = {}
    for rule in RULES:
        for report in registry.get_checker(rule)(config):
            for place in (report.place, *(related.place for related in report.related)):
                key = (rule.code, place.span.start)
                severity = report.severity or rule.severity
                severity_by_place[key] = min(severity_by_place.get(key, "info"), severity, key=SEVERITIES.index)
    return severity_by_place


def get_rank(severity: str | None) -> int:
    """Return the rank of a severity: 0 for none and info, 1 for a warning, 2 for an error."""
    return 0 if severity is None else 2 - SEVERITIES.index(severity)


@st.composite
def draw_window(draw: st.DrawFn) -> tuple[str, dict[str, object], tuple[str, ...], tuple[str, ...]]:
    framework = draw(st.sampled_from(sorted(KEYS)))
    names = draw(st.lists(st.sampled_from(sorted(KEYS[framework])), min_size=1, max_size=4, unique=True))
    releases = load(framework).releases
    first, last = sorted(draw(st.tuples(st.integers(0, len(releases) - 1), st.integers(0, len(releases) - 1))))
    start = draw(st.integers(first, last))
    keys = {name: KEYS[framework][name] for name in names}
    return framework, keys, releases[first : last + 1], releases[start : last + 1]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draw_window())
def test_a_window_is_as_grave_as_its_newest_release_and_an_error_only_where_all_refuse(tmp_path, drawn):
    framework, keys, wide, narrow = drawn
    combined = list_severities(build_config(framework, keys, wide, tmp_path))
    separate = [list_severities(build_config(framework, keys, (release,), tmp_path)) for release in wide]
    for key in {*combined, *separate[-1]}:
        lowest, newest = min(get_rank(single.get(key)) for single in separate), get_rank(separate[-1].get(key))
        assert get_rank(combined.get(key)) <= newest
        assert get_rank(combined.get(key)) >= min(newest, 1)
        assert lowest == 2 or get_rank(combined.get(key)) < 2
    # Adding older releases never raises the severity of a finding.
    narrower = list_severities(build_config(framework, keys, narrow, tmp_path))
    assert all(get_rank(severity) <= get_rank(narrower.get(key)) for key, severity in combined.items())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draw_window())
def test_what_a_safe_fix_writes_is_taken_at_every_candidate(tmp_path, drawn):
    framework, keys, wide, _ = drawn
    config = build_config(framework, keys, wide, tmp_path)
    keys_of_framework = framework_of(framework).keys
    for rule in RULES[:2]:
        checker = registry.get_checker(rule)
        for report in checker(config):
            fix = grade_report(rule, report, config, None, checker).fix
            if fix is None or fix.applicability != "safe":
                continue
            for _, changes in fix.keys:
                for release in wide:
                    for change in changes:
                        new_name = getattr(change, "key", None)
                        if new_name is not None:
                            fact = keys_of_framework.vocabulary.find_fact((*change.route[:-1], new_name), release)
                            assert fact is not None
                            assert fact.resolve_status(release).kind == "present"


def test_a_finding_rests_on_the_window_and_assumes_it_where_its_releases_differ(tmp_path):
    window = ("0.10.0", "0.21.0")
    sharding = {"fsdp_config": {"sharding_strategy": "SHARD_GRAD_OP"}, "nonesuch": 1}
    config = build_config("axolotl", sharding, window, tmp_path)
    reports = [report for rule in RULES[:2] for report in registry.get_checker(rule)(config)]
    grades = {report.message.split()[0]: [ground.grade for ground in report.grounds] for report in reports}
    assert grades == {"axolotl": ["followed"], "`fsdp_config.sharding_strategy`": ["assumed"]}
    assert {ground.value for report in reports for ground in report.grounds} == {"0.10.0 to 0.21.0"}
