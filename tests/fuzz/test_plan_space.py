"""Space of all plans and settings: every rule, the estimate and the search behind fit handle any of them.

`--hypothesis-profile=default` draws new ones; `CFGLINT_FUZZ_TIMES` multiplies their number.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cfglint_rules.vocabulary.table import load_table
from cfglint_schemas import vocabulary
from cfglint_schemas.status import Context
from cfglint_train import api
from cfglint_train.fitting.alternatives import list_alternatives
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.judging.checking import check
from cfglint_train.judging.selection import Selection, build_settings_resolver
from cfglint_train.plan.fields import FIELDS
from cfglint_train.runs.run import Run
from cfglint_train.settings.settings import Settings
from tests.support.corpus import REPOSITORY
from tests.support.linting import build_options, change_directory, list_runs
from tests.support.plans import change_plan, list_legal_values

TIMES = int(os.environ.get("CFGLINT_FUZZ_TIMES", "1"))
UNHURRIED = {"deadline": None, "suppress_health_check": list(HealthCheck)}
SELECTION = Selection(build_settings_resolver(Settings(".")), build_options(select=["ALL"]))
FOLDERS = ("MEM001/fires", "BAT002/fires", "CKP003/fires", "REL001/fires", "PRF003/fires", "XFL001/fires/launched")
CARDS = (None, 15_000_000_000, 85_000_000_000, 200_000_000_000)


@cache
def list_base_runs() -> tuple[Run, ...]:
    """Return runs of every framework, including companions, as the starting points of changes."""
    rules = [run for folder in FOLDERS for run in list_runs(REPOSITORY / "fixtures" / "rules" / folder)]
    return (*rules, *list_runs(REPOSITORY / "fixtures" / "olmo_core"))


def test_the_bases_are_of_every_framework_that_has_runs():
    main = {run.main.framework for run in list_base_runs()}
    companions = {config.framework for run in list_base_runs() for config in run.companions}
    assert {"axolotl", "llamafactory", "olmo", "olmo_core", "openrlhf"} <= main
    assert {"deepspeed", "accelerate"} <= companions


@st.composite
def draw_run(draw: st.DrawFn) -> Run:
    """Draw a run whose plan has any legal values, known or unknown, on any hardware."""
    base = list_base_runs()[draw(st.integers(0, len(list_base_runs()) - 1))]
    fields = draw(st.lists(st.sampled_from(FIELDS), max_size=24, unique=True))
    changes = {field: draw(st.sampled_from((None, *list_legal_values(field)))) for field in fields}
    card, host, disk = draw(st.sampled_from(CARDS)), draw(st.sampled_from(CARDS)), draw(st.sampled_from(CARDS))
    hardware = base.hardware._replace(gpu=None, gpu_bytes=card, host_bytes=host, disk_bytes=disk)
    base = Run(base.inputs._replace(hardware=hardware), base.stated_plan, base.resolved_plan, base.architecture)
    return base.replace_fields(changes) if draw(st.booleans()) else change_plan(base, changes)


@pytest.mark.slow
@settings(max_examples=120 * TIMES, **UNHURRIED)
@given(draw_run())
def test_any_plan_is_judged_estimated_and_fitted(run):
    assert check(run, SELECTION).troubles == ()
    for phase in run.estimate.phases:
        for budget in (phase.gpu, phase.host, phase.disk):
            assert budget is None or 0 <= budget.low <= budget.expected <= budget.high
    list_alternatives(run)


# --- settings ---------------------------------------------------------------------------------------------------------

STARTS: Mapping[tuple[str, str | None], Mapping[str, Any]] = {
    ("axolotl", None): {"base_model": "Qwen/Qwen2.5-7B", "datasets": [{"path": "d.jsonl", "type": "alpaca"}]},
    ("llamafactory", None): {"model_name_or_path": "Qwen/Qwen2.5-7B", "stage": "sft", "do_train": True},
    ("olmo", None): {"run_name": "a", "model": {"d_model": 2048, "n_heads": 16, "n_layers": 16}, "save_folder": "out"},
    ("deepspeed", None): {"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 1},
    ("accelerate", None): {"compute_environment": "LOCAL_MACHINE", "distributed_type": "FSDP", "num_processes": 8},
    ("openrlhf", "train_sft"): {"--model.model_name_or_path": "Qwen/Qwen2.5-7B"},
    ("openrlhf", "train_ppo_ray"): {"--actor.model_name_or_path": "Qwen/Qwen2.5-7B"},
}
WORDS = ("auto", "true", "x", "8", "2e-5", "Qwen/Qwen2.5-7B", "./out")


def build_strategy(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for the values that a setting's schema accepts, as far as it states them."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "anyOf" in schema:
        return st.one_of([build_strategy(option) for option in schema["anyOf"]])
    kinds = schema.get("type", "string")
    return st.one_of([_build_type_strategy(kind, schema) for kind in ([kinds] if isinstance(kinds, str) else kinds)])


def _build_type_strategy(kind: str, schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    if kind == "array":
        return st.lists(build_strategy(schema.get("items", {})), max_size=2)
    strategies = {
        "null": st.none(),
        "boolean": st.booleans(),
        "integer": st.sampled_from((0, 1, 2, 7, 8, 1000, 131_072)),
        "number": st.sampled_from((0, 0.0, 1e-5, 0.1, 1.0, 3, 500)),
        "object": st.just({}),
    }
    return strategies.get(kind, st.sampled_from(WORDS))


@cache
def list_settings(
    framework: str, entry: str | None
) -> tuple[tuple[tuple[str | int, ...], st.SearchStrategy[Any]], ...]:
    """Return the settings of a framework's newest release with their values, those of clause examples first."""
    newest = frameworks.load(framework).default_release
    facts = vocabulary.load(framework).iterate_keys(newest, Context(entry))
    strategies = {fact.route: build_strategy(fact.get_schema()) for fact in facts if "*" not in fact.route}
    clause_settings = tuple(
        (tuple(name.split(".")) if name[0] != "-" else (name,), st.just(value))
        for kind in ("refusals", "idle")
        for row in load_table(framework, kind).rows
        for name, value in row["example"].items()
        if value is not None
    )
    return (*clause_settings, *strategies.items())


def set_value(content: dict[str, Any], route: tuple[str | int, ...], value: Any) -> None:
    """Set a value and create the mappings that are missing on the way."""
    *above, last = route
    for part in above:
        content = content[part] if isinstance(content.get(part), dict) else content.setdefault(part, {})
        if not isinstance(content, dict):
            return
    content[last] = value


def format_script(entry: str, content: Mapping[str, Any]) -> str:
    words = [f"python3 -m openrlhf.cli.{entry}"]
    for name, value in content.items():
        values = value if isinstance(value, list) else [value]
        words.append(f"   {name}" if value is True else f"   {name} {' '.join(map(str, values))}")
    return "#!/bin/bash\n" + " \\\n".join(words) + "\n"


@st.composite
def draw_files(draw: st.DrawFn) -> dict[str, str]:
    """Draw the text of a configuration with any combination of its framework's settings."""
    framework, entry = draw(st.sampled_from(list(STARTS)))
    content = json.loads(json.dumps(STARTS[framework, entry]))
    choices = list_settings(framework, entry)
    for number in draw(st.lists(st.integers(0, len(choices) - 1), max_size=30, unique=True)):
        route, values = choices[number]
        set_value(content, route, draw(values))
    if framework == "openrlhf":
        return {"train.sh": format_script(entry, {name: value for name, value in content.items() if value is not None})}
    if framework == "deepspeed":
        return {"ds_config.json": json.dumps(content, indent=1)}
    return {"config.yaml": yaml.safe_dump(content, sort_keys=False)}


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """Enter an empty repository, so that the files of this one are not searched for references to the drawn ones."""
    folder = tmp_path_factory.mktemp("drawn")
    (folder / ".git").mkdir()
    with change_directory(folder):
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("empty")
@settings(max_examples=120 * TIMES, **UNHURRIED)
@given(draw_files())
def test_any_settings_are_judged_estimated_and_fitted(sources):
    isolated = api.Options(isolated=True, select=("ALL",))
    for raw in (api.lint(options=isolated, sources=sources).raw, api.estimate(options=isolated, sources=sources).raw,
                api.fit(options=isolated, sources=sources, change=True).raw):  # fmt: skip
        assert [trouble for trouble in raw.troubles if trouble.is_internal] == []
