"""Loaders, checked against the packages that load, and lenses against KEY004: the same conversion everywhere."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import make_dataclass
from shlex import quote
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cfglint_rules.vocabulary.survey import get_context, get_vocabulary
from cfglint_rules.vocabulary.values import is_accepted, is_placeholder
from cfglint_rules.vocabulary.wrong_type import check
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.codec import UnreadableError, is_countable
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.lens_types import Key
from cfglint_train.frameworks.loaders import ARGPARSE, OMEGACONF, PYDANTIC, Loader
from cfglint_train.frameworks.openrlhf.recognise import recognise
from tests.support import laws
from tests.support.linting import build_options, lint

KINDS = {"integer": int, "number": float, "boolean": bool, "string": str}
SPELLINGS = (
    "8", " 8 ", "+8", "-8", "008", "8.0", "8.00", "8.5", "-8.0", "8.", ".5", "1e3", "1E3", "1e400", "1_000",
    "1__0", "_1", "1_", "1_0.5", "1.5_0", "1e1_0", "8._0", "in_f", "inf", "-Infinity", "nan", "0x10", "0b1", "- 8",
    "8 .0", "٣", "",
    "true", "True", "TRUE", " true", "yes", "y", "Y", "on", "off", "OFF", "n", "no", "t", "f", "0", "1",
    "1.0", "2", "x", "1" * 20, "1" * 5000,
)  # fmt: skip
SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(),
    st.sampled_from((1e18, 2.0**63, -(2.0**63), 1e30, 0.0, 1.0, 8.0)),
    st.sampled_from(SPELLINGS),
    st.text(alphabet="0123456789+-._eE tTfFaAlLsSnNyYoO", max_size=6),
)


def convert_value(loader: Loader, kind: str, value: Any) -> Any:
    try:
        return getattr(loader, kind).read(value)
    except UnreadableError:
        return UnreadableError


def is_same(value: Any, other: Any) -> bool:
    return type(value) is type(other) and (value == other or (value != value and other != other))


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(sorted(KINDS)), SCALARS)
def test_pydantic_loads_the_same(kind: str, value: Any) -> None:
    pydantic = pytest.importorskip("pydantic")
    try:
        theirs = pydantic.TypeAdapter(KINDS[kind]).validate_python(value)
    except pydantic.ValidationError:
        theirs = UnreadableError
    assert is_same(convert_value(PYDANTIC, kind, value), theirs), (convert_value(PYDANTIC, kind, value), theirs)


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(sorted(KINDS)), SCALARS)
def test_omegaconf_loads_the_same(kind: str, value: Any) -> None:
    omegaconf = pytest.importorskip("omegaconf")
    structured = omegaconf.OmegaConf.structured(make_dataclass("Settings", [("it", KINDS[kind], KINDS[kind]())]))
    try:
        theirs = omegaconf.OmegaConf.merge(structured, omegaconf.OmegaConf.create({"it": value})).it
    except (omegaconf.errors.OmegaConfBaseException, ValueError):
        theirs = UnreadableError
    assert is_same(convert_value(OMEGACONF, kind, value), theirs), (convert_value(OMEGACONF, kind, value), theirs)


@given(st.sampled_from(("integer", "number")), st.sampled_from(SPELLINGS))
def test_argparse_loads_the_same(kind: str, value: str) -> None:
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--it", type=KINDS[kind])
    try:
        theirs = parser.parse_args([f"--it={value}"]).it
    except argparse.ArgumentError:
        theirs = UnreadableError
    assert is_same(convert_value(ARGPARSE, kind, value), theirs)


# --- lenses and KEY004 -----------------------------------------------------------------------------------------------

MINIMAL: Mapping[str, Mapping[str, Any]] = {
    "axolotl": {"base_model": "x/y", "datasets": [{"path": "d", "type": "alpaca"}]},
    "llamafactory": {"model_name_or_path": "x/y", "stage": "sft", "do_train": True, "dataset": "d", "template": "t"},
    "llamafactory_v1": {"model": "x/y", "train_dataset": "d", "model_class": "llm"},
    "olmo": {"model": {"d_model": 64}, "device_train_microbatch_size": 1, "distributed_strategy": "fsdp"},
    "deepspeed": {"train_batch_size": 8, "zero_optimization": {"stage": 2}},
}


def build_config(framework: str, route: tuple[str, ...], value: Any) -> Config:
    if framework == "openrlhf":
        words = [route[0], *([] if value is True else [quote(value)])]
        text = f"python3 -m openrlhf.cli.train_ppo_ray {' '.join(words)}\n"
        (recognised,) = recognise(laws.parse_document(text, "shell"))
        return laws.build_config(framework, text, "shell", root=recognised.root)
    source: dict[str, Any] = {
        key: dict(section) if isinstance(section, dict) else section for key, section in MINIMAL[framework].items()
    }
    target = source
    for step in route[:-1]:
        target = target.setdefault(step, {})
    target[route[-1]] = value
    syntax = "json" if framework == "deepspeed" else "yaml"
    text = yaml.safe_dump(source, sort_keys=False) if syntax == "yaml" else json.dumps(source)
    return laws.build_config(framework, text, syntax)


def list_typed_keys(framework: str) -> list[tuple[Key, str]]:
    """Return the single-key lenses whose values are only integers, numbers, booleans or text."""
    loaded = frameworks.load(framework)
    kinds = {id(getattr(loaded.loader, kind)): kind for kind in KINDS}
    return [
        (lens, kinds[id(lens.codec)]) for lens in loaded.lenses if isinstance(lens, Key) and id(lens.codec) in kinds
    ]


def remove_bounds(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return {word: value for word, value in schema.items() if "inimum" not in word and "aximum" not in word}


def is_counted(lens: Key, value: Any) -> bool:
    """Return whether a plan can hold the value; a number that no counter holds is unknown."""
    try:
        return is_countable(lens.codec.read(value))
    except UnreadableError:
        return True


@st.composite
def draw_setting(draw: st.DrawFn) -> tuple[str, Key, str, Any]:
    framework = draw(st.sampled_from(("axolotl", "llamafactory", "llamafactory_v1", "olmo", "openrlhf", "deepspeed")))
    lens, kind = draw(st.sampled_from(list_typed_keys(framework)))
    if framework == "openrlhf":
        values = st.sampled_from([word for word in SPELLINGS if word.strip() == word and word])
    else:
        values = st.one_of(SCALARS.filter(lambda value: value == value), st.sampled_from((2.5, "2.5", [1], {"a": 1})))
    return framework, lens, kind, draw(values)


@settings(max_examples=500, deadline=None)
@given(draw_setting())
def test_a_lens_reads_what_key004_accepts_and_nothing_else(case: tuple[str, Key, str, Any]) -> None:
    framework, lens, _, value = case
    route = lens.names[0]
    config = build_config(framework, route, value)
    key_vocabulary, keys = get_vocabulary(config), frameworks.get_keys(config)
    assert keys is not None
    value = config.get_value(*route)
    if value is None or is_placeholder(value) or value == "auto" or (isinstance(value, str) and "_" in value):
        return  # a script inserts a value here, as in `TRAIN_BATCH_SIZE`
    fact = None if key_vocabulary is None else key_vocabulary.find_fact(route, config.release, get_context(config))
    schema = None if fact is None else keys.extract_enforced(fact.get_schema(config.release), fact.name)
    kinds = () if schema is None else schema.get("type", ())
    plain = {kinds} if isinstance(kinds, str) else set(kinds)
    if schema is None or len(plain - {"null"}) != 1 or "enum" in schema or not plain & KINDS.keys():
        return  # no code checks the value against a single type
    verdict = keys.is_accepted(schema, value)
    accepted = (
        is_accepted(remove_bounds(schema), value, frameworks.load(framework).loader) if verdict is None else verdict
    )
    field_values = {field: got for field, got, _ in lens.read(config)}
    if lens.field in field_values and is_counted(lens, value):
        is_read = field_values[lens.field] is not None
        # If nothing converts or checks a value (`verdict`), it may be unknown although it is not reported.
        assert is_read == accepted or (verdict and not is_read), (framework, route, value, field_values, schema)


def test_a_word_that_is_no_integer_is_an_error_and_an_unknown_micro_batch(tmp_path: Any) -> None:
    """Report an error and leave the micro batch unknown, because pydantic rejects "1e3" for an integer."""
    path = tmp_path / "axolotl.yaml"
    path.write_text(
        "base_model: meta-llama/Llama-3.1-8B\ndatasets:\n  - path: d\n    type: alpaca\n"
        'output_dir: out\nsequence_len: 4096\nlearning_rate: 0.0002\nmicro_batch_size: "1e3"\n'
    )
    config = laws.build_config("axolotl", path.read_bytes())
    (report,) = check(config)
    assert (report.severity, report.fix and report.fix.message) == ("error", "write it as 1000")
    assert laws.read_plan(config).get("batch.micro") is None
    codes = {finding.code for finding in lint(tmp_path, build_options(select=["KEY004", "MEM001"])).findings}
    assert codes == {"KEY004"}
