"""The printed schema of the settings accepts and refuses what the reader of settings files does."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cfglint_rules import registry
from cfglint_train.hardware import gpus
from cfglint_train.judging.selection import build_settings_resolver
from cfglint_train.plan.fields import FIELDS
from cfglint_train.settings import cluster_facts
from cfglint_train.settings.error import SettingsError
from cfglint_train.settings.settings import load_settings
from cfglint_train.settings.settings_schema import build_settings_schema
from cfglint_train.settings.table import FACTS, SETTINGS
from tests.support.command import run_cfglint

SCHEMA = build_settings_schema((rule.code, rule.name) for rule in registry.RULES.values())
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)

LEFT_TO_CFGLINT = re.compile(
    r"outside the repository|refers back|No such file|Is a directory|embedded null|it has no \[tool|"  # other files
    r"has no release|is not a path pattern|contradicts|is above at-most|compares (numbers|single)|is invalid|condition|"
    r"no framework"
)
"""Reasons for which cfglint refuses a value that the schema accepts: they depend on files, releases or other values."""

WORDS = st.sampled_from([
    "ALL", "all", "MEM", "mem001", "MEM001", "MEM999", "removed-key", "Removed-Key", "error", "off", "fatal", "json",
    "xml", "never", "https://x.test/{code}", "https://x.test/", "ftp://x/{name}", "", " ", "a/**", "!b", "80GB",
    "1.5TB", "80", "0GB", "H100", "0.18.0", "v2.8", "new", "2.40 EUR", "batch.micro", "batch.global",
    "batch.micro <= 4",     "llamafactory", "LLaMA-Factory", "megatron",
])  # fmt: skip
SCALARS = st.one_of(WORDS, st.integers(-2, 100), st.booleans(), st.floats(-2, 1e6, allow_nan=False))
NAMES = st.sampled_from([
    *SETTINGS, *FACTS, "paths", "field", "key", "that", "equals", "one-of", "at-most", "at-least", "present", "absent",
    "message", "frameworks", "axolotl", "torch", "MEM", "PRF003", "docs/**", "stranger",
])  # fmt: skip
LISTS = st.one_of(st.lists(WORDS, max_size=3), st.lists(SCALARS, max_size=2))
TABLES = st.dictionaries(NAMES, st.one_of(SCALARS, LISTS), max_size=3)
LEVELS = st.dictionaries(st.sampled_from(["MEM", "prf003", "removed-key", "x"]), WORDS, max_size=2)
GPUS = st.builds(
    lambda prefix, name, separator, suffix, case: case(prefix + name.replace("-", separator) + suffix),
    st.sampled_from(["", "NVIDIA ", "Tesla-", "nvidia GeForce ", "new"]),
    st.sampled_from([*gpus.list_names(), *gpus.list_spellings(), "A100-96GB", "H1000", "A", "80"]),
    st.sampled_from(["-", "_", " ", "", " GPU ", "x"]),
    st.sampled_from(["", " ", " GPU", "GB", "-80GB", "0"]),
    st.sampled_from([str, str.lower, str.upper]),
)
NUMBERS = st.sampled_from([4090, 3090.0, 1, 80, 0.1, 1e-7, 1e-10, 1e9, 999999999.5, 1e12, 1e20, 2.0, 1 / 3])
AMOUNTS = st.builds(
    "{}{}".format,
    st.sampled_from(["80", "0", "0.0", "1.5", ".5", "1.", "1" * 20, "1" * 21, " 2", "1e5", "1,5"]),
    st.sampled_from(["", "GB", " GiB", "g", "TB ", "gib", "EUR", " $", "XB", " per hour"]),
)
HARDWARE = st.dictionaries(st.sampled_from([*FACTS, "cards"]), st.one_of(SCALARS, GPUS, NUMBERS, AMOUNTS), max_size=3)
RELEASES = st.dictionaries(st.sampled_from(["axolotl", "torch", "Torch"]), SCALARS, max_size=2)
SUBJECTS = st.one_of(
    st.fixed_dictionaries({"field": st.sampled_from([*FIELDS[:40], "batch.nano"])}),
    st.fixed_dictionaries({"key": WORDS}),
    st.fixed_dictionaries({"that": WORDS}),
)
TESTS = st.fixed_dictionaries(
    {},
    optional={
        "equals": SCALARS, "one-of": LISTS, "at-most": SCALARS, "at-least": SCALARS, "present": st.booleans(),
        "absent": st.booleans(), "severity": WORDS, "paths": LISTS, "frameworks": LISTS, "message": WORDS,
    },
)  # fmt: skip
REQUIREMENTS = st.builds(lambda subject, tests: subject | tests, SUBJECTS, TESTS)
OVERRIDES = st.fixed_dictionaries(
    {}, optional={"paths": LISTS, "hardware": HARDWARE, "releases": RELEASES, "ignore": LISTS}
)
VALUES = st.one_of(
    SCALARS, LISTS, TABLES, LEVELS, HARDWARE, RELEASES, st.dictionaries(WORDS, LISTS, max_size=2),
    st.lists(st.one_of(TABLES, REQUIREMENTS, OVERRIDES), max_size=2),
)  # fmt: skip
SUITABLE = {
    "severity": LEVELS, "hardware": HARDWARE, "releases": RELEASES, "require": st.lists(REQUIREMENTS, max_size=2),
    "overrides": st.lists(OVERRIDES, max_size=2), "per-file-ignores": st.dictionaries(WORDS, LISTS, max_size=2),
}  # fmt: skip


def format_toml(value: Any) -> str:
    """Return a value as TOML on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {format_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(format_toml, value)) + "]"
    return json.dumps(value)


@st.composite
def draw_setting(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from([*SETTINGS, "stranger"]))
    value = draw(st.one_of(SUITABLE.get(name, VALUES), VALUES))
    return f"{json.dumps(name)} = {format_toml(value)}\n"


def find_refusal(path: Path) -> str | None:
    """Return the reason why cfglint refuses a settings file, or None."""
    try:
        build_settings_resolver(load_settings(str(path)))(str(path))
    except SettingsError as error:
        return str(error)
    return None


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=draw_setting())
def test_the_schema_accepts_what_cfglint_accepts(text: str, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir(exist_ok=True)
    path = tmp_path / "cfglint.toml"
    path.write_text(text)
    refusal = find_refusal(path)
    problems = [problem.message for problem in VALIDATOR.iter_errors(tomllib.loads(text))]
    if refusal is None:
        assert problems == [], text
    elif not LEFT_TO_CFGLINT.search(refusal):
        assert problems, (text, refusal)


@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(facts=HARDWARE)
def test_the_schema_accepts_the_hardware_that_cfglint_accepts(facts: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir(exist_ok=True)
    path = tmp_path / "cfglint.toml"
    path.write_text(f"hardware = {format_toml(facts)}\n")
    refusal = find_refusal(path)
    assert VALIDATOR.is_valid(tomllib.loads(path.read_text())) == (refusal is None), (facts, refusal)


def test_every_name_of_a_gpu_is_accepted_as_people_write_it() -> None:
    table = json.loads(Path(gpus.DATA).read_text(encoding="utf-8"))
    for name in (*table, *(alias for row in table.values() for alias in row["aliases"])):
        for text in (name, name.lower(), f"NVIDIA {name}", name.replace("-", " "), name.replace(" ", "_")):
            assert VALIDATOR.is_valid({"hardware": {"gpu": text}}), text


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_has_a_type_that_the_schema_checks(name: str, tmp_path: Path) -> None:
    path = tmp_path / "cfglint.toml"
    (tmp_path / ".git").mkdir()
    path.write_text(SETTINGS[name].example.replace("../cfglint.toml", "base.toml"))
    (tmp_path / "base.toml").write_text("")
    assert find_refusal(path) is None
    assert VALIDATOR.is_valid(tomllib.loads(path.read_text()))
    for wrong in ("3.5", "-1", '{x = "y"}', "[1]", '"?"', "true"):
        text = f"{name} = {wrong}\n"
        path.write_text(text)
        refusal = find_refusal(path)
        if refusal is None or not LEFT_TO_CFGLINT.search(refusal):
            assert VALIDATOR.is_valid(tomllib.loads(text)) == (refusal is None), (text, refusal)


def test_every_fact_about_the_cluster_has_a_meaning() -> None:
    assert sorted(FACTS) == sorted(cluster_facts.HARDWARE_FACTS)


def test_the_command_prints_it(tmp_path: Path) -> None:
    outcome = run_cfglint("schema", "cfglint", cwd=tmp_path)
    assert outcome.code == 0
    assert json.loads(outcome.out) == SCHEMA
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    for name, described in SCHEMA["properties"].items():
        assert len(described["description"]) > 15, name
        assert "`" not in described["description"], name
    (tmp_path / "schema.json").write_text(outcome.out)
    (tmp_path / "cfglint.toml").write_text('select = ["MEM"]\nfail-on = "eror"\n')
    command = [sys.executable, "-m", "check_jsonschema", "--schemafile", "schema.json", "cfglint.toml"]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert process.returncode == 1
    assert "'eror' is not one of" in process.stdout
