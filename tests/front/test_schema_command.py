"""`cfglint schema`: a valid schema that agrees with cfglint and accepts every valid example."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cfglint_rules import registry
from cfglint_rules.vocabulary.values import is_accepted
from cfglint_schemas.fact import KeyFact
from cfglint_schemas.lenient import build_widener
from cfglint_schemas.plain import build_plain_schema
from cfglint_schemas.status import Context
from cfglint_schemas.vocabulary import list_vocabularies, load
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.loaders import DEEPSPEED, PYDANTIC
from tests.support.command import run_cfglint
from tests.support.configs import AXOLOTL
from tests.support.corpus import CORPUS, list_corpus_files, needs_corpus
from tests.support.laws import build_config

every_framework = pytest.mark.parametrize("framework", list_vocabularies())


# --- the command -----------------------------------------------------------------------------------------------------


@every_framework
def test_what_is_printed_is_a_plain_schema_of_the_newest_release(framework: str, tmp_path: Path) -> None:
    outcome = run_cfglint("schema", framework.replace("_", "-"), cwd=tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
    schema = json.loads(outcome.out)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"] == f"{framework} {load(framework).newest}"
    jsonschema.Draft202012Validator.check_schema(schema)
    assert '"x-' not in outcome.out.replace('"^(_|//|#|x-)"', "")


def test_release_entry_and_companion(tmp_path: Path) -> None:
    def read_properties(*arguments: str) -> dict[str, Any]:
        schema = json.loads(run_cfglint("schema", *arguments, cwd=tmp_path).out)
        members: dict[str, Any] = schema["$defs"][schema["$ref"].removeprefix("#/$defs/")]["properties"]
        return members

    assert "fsdp" in read_properties("axolotl", "--release", "0.18.0")
    assert "fsdp" not in read_properties("axolotl", "--release", "v0.21.0")
    assert "--ipo" in read_properties("openrlhf", "--release", "0.9.5", "--entry", "train_dpo")
    assert "--model.ipo_enable" in read_properties("openrlhf", "--entry", "train_dpo")
    # LLaMA-Factory 0.9.4 allows transformers up to 4.57.1.
    assert "save_safetensors" in read_properties("llamafactory", "--release", "0.9.4")
    assert "save_safetensors" not in read_properties("llama-factory", "--release", "0.9.4", "--transformers", "5.0.0")
    assert read_properties("axolotl", "--strict")["micro_batch_size"]["type"] == ["integer", "null"]


def test_without_a_framework_they_are_listed(tmp_path: Path) -> None:
    outcome = run_cfglint("schema", cwd=tmp_path)
    assert outcome.code == 0
    assert [line.split()[0] for line in outcome.lines] == list(list_vocabularies())
    assert "train_dpo" in next(line for line in outcome.lines if line.startswith("openrlhf"))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["megatron"], "unknown framework megatron; known: accelerate, axolotl"),
        (["axolotl", "--release", "0.1.0"], "--release 0.1.0: cfglint knows axolotl 0.5.2 to "),
        (["axolotl", "--release", "99"], "--release 99: cfglint knows axolotl 0.5.2 to "),
        (["axolotl", "--release", "new\x1b"], "--release new\\x1b: not a release"),
        (["axolotl", "--transformers", "5.0.0"], "--transformers: only keys of LLaMA-Factory and TRL depend on it"),
        (["llamafactory", "--transformers", "x"], "--transformers x: not a release"),
        (["openrlhf", "--entry", "train_kto"], "--entry train_kto: openrlhf "),
    ],
)
def test_wrong_usage(tmp_path: Path, arguments: list[str], problem: str) -> None:
    outcome = run_cfglint("schema", *arguments, cwd=tmp_path)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"cfglint: {problem}")


# --- agreement with cfglint's rules ----------------------------------------------------------------------------------


def find_rejected_names(errors: Any) -> Iterator[str]:
    """Yield the names that a schema rejects; for alternatives, those of the alternative that fits best."""
    for error in errors:
        if error.validator == "additionalProperties":
            properties = error.schema["properties"]
            yield from (name for name in error.instance if name not in properties and not name.startswith(("_", "//")))
        branches: dict[int, list[Any]] = {}
        for inner in error.context:
            branches.setdefault(inner.relative_schema_path[0], []).append(inner)
        fitting = [
            set(find_rejected_names(branch))
            for branch in branches.values()
            if not any(inner.validator in ("type", "enum") and not inner.relative_path for inner in branch)
        ]
        if fitting:
            yield from set.intersection(*fitting)


def find_reported_keys(config: Config) -> set[str]:
    """Return the keys that cfglint reports as lost: unknown, removed, renamed or without their plugin."""
    keys = set()
    for code in ("KEY001", "KEY002"):
        for report in registry.get_checker(registry.RULES[code])(config):
            if not any(words in report.message for words in ("still works", "ignored with a warning")):
                keys.add(report.place.document.get_text(report.place.span).strip("\"'"))
    return keys


@needs_corpus
@pytest.mark.parametrize("release", ["0.18.0", "0.21.0"])
def test_axolotl_examples_are_let_through_but_for_the_keys_that_are_lost(release: str) -> None:
    validator = jsonschema.Draft202012Validator(build_plain_schema(load("axolotl"), release, loader=PYDANTIC))
    checked = refused = 0
    for path in list_corpus_files(".yaml", ".yml", under="axolotl/examples"):
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        if isinstance(document, dict) and "base_model" in document:
            config = build_config("axolotl", path.read_bytes(), axolotl=release)
            names = set(find_rejected_names(validator.iter_errors(document)))
            # An empty `fsdp` has no effect and is not reported. A schema cannot express how the keys of data sets
            # depend on `rl`.
            beyond = {name for item in document.get("datasets") or () for name in item} if document.get("rl") else set()
            assert names >= find_reported_keys(config) - {"fsdp"} - beyond, path
            assert {name for name in names if config.get(name) is not None} <= find_reported_keys(
                config
            ) | _list_nested_keys(config), path
            checked += 1
            refused += bool(names)
    assert checked > 240
    assert 20 < refused < 120


def _list_nested_keys(config: Config) -> set[str]:
    """Return the keys of sections: a name at the top level is not one of them."""
    return {name for route, mapping in config.document.list_mappings() if route for name in mapping.index}


EXAMPLES = {
    "llamafactory": ("llamafactory/examples", "do_train", Context(releases={"transformers": "5.6.0"})),
    "olmo": ("olmo/configs", "optimizer", Context()),
    "accelerate": ("", "distributed_type", Context()),
}
# Examples for development versions, or for a backend with its own arguments.
UNRELEASED = ("kt", "megatron", "custom_dataset_example", "llama3_fp8_fsdp_sft", "mossvl")


@pytest.mark.slow
@needs_corpus
@pytest.mark.parametrize("framework", EXAMPLES)
def test_official_examples_are_let_through(framework: str) -> None:
    under, mark, context = EXAMPLES[framework]
    schema = build_plain_schema(load(framework), load(framework).newest, context, frameworks.load(framework).loader)
    validator = jsonschema.Draft202012Validator(schema)
    checked = 0
    for path in list_corpus_files(".yaml", ".yml", under=under):
        try:
            document = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError):
            continue
        ahead = any(part in str(path.relative_to(CORPUS)) for part in UNRELEASED)
        if isinstance(document, dict) and mark in document and not ahead:
            assert [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)] == [], path
            checked += 1
    assert checked > 10


@needs_corpus
def test_deepspeed_examples_are_let_through_but_for_the_keys_that_are_lost() -> None:
    validator = jsonschema.Draft202012Validator(build_plain_schema(load("deepspeed"), "0.19.8", loader=DEEPSPEED))
    checked = 0
    for path in sorted(CORPUS.rglob("*.json")):
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            continue
        if isinstance(document, dict) and "zero_optimization" in document:
            config = build_config("deepspeed", path.read_bytes(), "json", deepspeed="0.19.8")
            assert set(find_rejected_names(validator.iter_errors(document))) == find_reported_keys(config), path
            checked += 1
    assert checked > 50


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10**6),
    st.floats(-1e18, 1e18),
    st.sampled_from([
        "", " 8 ", "8.0", "8.5", "+1_000", "1e-4", ".5", "5.", "inf", "-nan", "Infinity", "yes", "OFF", "t", "True",
        "0", "auto", "${a.b}", "x", "1 2", "0x10", "1_", "_1", "1__0",
    ]),
    st.text(max_size=4),
)  # fmt: skip


@st.composite
def draw_setting(draw: st.DrawFn) -> tuple[str, KeyFact, Any]:
    framework = draw(st.sampled_from(["axolotl", "deepspeed", "olmo"]))
    vocabulary = load(framework)
    parent = draw(st.sampled_from(vocabulary.list_mappings(vocabulary.newest)))
    names = vocabulary.list_names(parent, vocabulary.newest)
    fact = vocabulary.find_fact((*parent, draw(st.sampled_from(names))), vocabulary.newest)
    assert fact is not None
    members = [value for kind in fact.list_kinds() for value in kind.values]
    leaf = st.one_of(LEAVES, st.sampled_from(members)) if members else LEAVES
    return framework, fact, draw(st.one_of(leaf, st.lists(leaf, max_size=2), st.just({})))


def has_bounds(schema: Any) -> bool:
    return any(word in json.dumps(schema) for word in ("inimum", "aximum"))


@settings(max_examples=600, deadline=None)
@given(draw_setting())
def test_values_are_taken_where_cfglint_takes_them(made: tuple[str, KeyFact, Any]) -> None:
    framework, fact, value = made
    schema = dict(fact.get_schema())
    if "$ref" in json.dumps(schema) or fact.alternatives:
        return  # the schema cannot resolve references
    if isinstance(value, (str, list, bool)) and has_bounds(schema):
        return  # JSON Schema bounds numbers only, not values that become numbers
    if (framework == "deepspeed" and value == "auto") or ("x-unchecked" in schema and "enum" not in schema):
        is_valid = True
    else:
        is_valid = is_accepted(schema, value, frameworks.load(framework).loader)
    if isinstance(value, str) and "$" in value and (framework != "olmo" or "${" not in value):
        return  # OmegaConf interpolates `${...}`; other uses of a dollar sign are outside the schema
    if isinstance(value, list) and "auto" in value:
        return
    if framework == "olmo" and any(
        isinstance(item, float) and item.is_integer() for item in (value, *_list_items(value))
    ):
        return  # JSON Schema treats 1.0 as an integer
    if framework == "olmo" and type(value) is int and any(kind.name == "enum" for kind in fact.list_kinds()):
        return  # OmegaConf accepts a member by its number, which the schema does not express
    editor = build_value_schema(framework, schema)
    assert jsonschema.Draft202012Validator(editor).is_valid(value) == is_valid, editor


def _list_items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def build_value_schema(framework: str, schema: Any) -> Any:
    """Return the schema of one value as printed."""
    fragment = {word: part for word, part in schema.items() if not word.startswith("x-")}
    if "items" in fragment:
        fragment["items"] = build_value_schema(framework, fragment["items"])
    if "anyOf" in fragment:
        fragment["anyOf"] = [build_value_schema(framework, part) for part in fragment["anyOf"]]
    return build_widener(frameworks.load(framework).loader)(schema, fragment)


# --- values that editors offer ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("framework", "route", "release", "offered", "missing"),
    [
        ("axolotl", "optimizer", "0.18.0", "adamw_torch_fused", "scao"),
        ("axolotl", "optimizer", "0.21.0", "dion", "lion_pytorch"),
        ("axolotl", "lr_scheduler", "0.21.0", "rex", None),
        ("axolotl", "adapter", "0.21.0", "qlora", None),
        ("axolotl", "attn_implementation", "0.21.0", "varlen", "flash"),
        ("verl", "algorithm.adv_estimator", "0.9.1", "gdpo", None),
        ("verl", "algorithm.adv_estimator", "0.4.0", "opo", "gpg"),
        ("verl", "actor_rollout_ref.rollout.name", "0.9.1", "trtllm", "hf"),
        ("verl", "actor_rollout_ref.actor.strategy", "0.9.1", "fsdp_turbo", None),
        ("deepspeed", "optimizer.type", "0.18.0", "Muon", None),
        ("deepspeed", "optimizer.type", "0.10.0", "OneBitAdam", "Lion"),
        ("deepspeed", "scheduler.type", "0.19.8", "WarmupCosineLR", None),
        ("olmo", "precision", "0.6.0", "amp_bf16", None),
        ("openrlhf", "--lr_scheduler", "0.9.5", "cosine_with_min_lr", None),
        ("trl", "dtype", "1.16.0", "bfloat16", None),
        ("accelerate", "mixed_precision", "1.15.0", "bf16", None),
        ("llamafactory", "optim", "0.9.5", "adamw_torch_fused", None),
    ],
)
def test_open_lists_offer_the_values_of_the_release_and_refuse_none(
    framework: str, route: str, release: str, offered: str, missing: str | None
) -> None:
    vocabulary = load(framework)
    entry = "train_sft" if framework == "openrlhf" else None
    fact = vocabulary.find_fact(tuple(route.split(".")) if entry is None else (route,), release, Context(entry=entry))
    assert fact is not None
    values = [value for kind in fact.list_kinds() for value in kind.values]
    assert offered in values
    assert missing not in values
    printed = build_value_schema(framework, fact.get_schema())
    validator = jsonschema.Draft202012Validator(printed)
    assert validator.is_valid(offered)
    assert validator.is_valid("a_name_of_a_plugin")
    accepted = is_accepted(fact.get_schema(), "a_name_of_a_plugin", frameworks.load(framework).loader)
    assert accepted is not ("x-checked-if" in fact.get_schema())  # the rule knows the other settings, editors do not
    assert offered in str(printed)


@pytest.mark.parametrize(
    ("route", "release", "offered", "missing"),
    [("optimizer", "0.8.0", "adamw_torch_fused", "dion"), ("lr_scheduler", "0.7.0", "one_cycle", "rex")],
)
def test_closed_lists_offer_the_words_of_the_required_transformers(
    route: str, release: str, offered: str, missing: str
) -> None:
    fact = load("axolotl").find_fact((route,), release)
    assert fact is not None
    values = [value for kind in fact.list_kinds() for value in kind.values]
    assert offered in values
    assert missing not in values
    assert not is_accepted(fact.get_schema(), "a_name_of_a_plugin", PYDANTIC)
    assert jsonschema.Draft202012Validator(build_value_schema("axolotl", fact.get_schema())).is_valid(missing)


def test_a_list_of_listed_words_may_be_one_word(tmp_path: Path) -> None:
    schema = json.loads(run_cfglint("schema", "trl", "--entry", "dpo", cwd=tmp_path).out)
    validator = jsonschema.Draft202012Validator(schema)
    accepted = {str(value): validator.is_valid({"loss_type": value}) for value in ("sft", ["sft"], ["x"], "x", 1)}
    assert accepted == {"sft": True, "['sft']": True, "['x']": False, "x": False, "1": False}


def test_hydras_own_keys_and_lists_in_place_of_texts_are_let_through(tmp_path: Path) -> None:
    def is_valid(framework: str, content: dict[str, Any]) -> bool:
        schema = json.loads(run_cfglint("schema", framework, cwd=tmp_path).out)
        return bool(jsonschema.Draft202012Validator(schema).is_valid(content))

    assert is_valid("verl", {"defaults": ["ppo_trainer", "_self_"], "hydra": {"searchpath": ["a"]}})
    assert not is_valid("verl", {"default": ["ppo_trainer"]})
    assert is_valid("llamafactory", {"lora_target": ["q_proj", "v_proj"], "dataset": "a,b"})
    assert not is_valid("llamafactory", {"stage": ["sft"]})


def test_keys_of_a_fork_are_explained_by_the_framework_that_reads_them(tmp_path: Path) -> None:
    schema = json.loads(run_cfglint("schema", "easyr1", cwd=tmp_path).out)
    key = schema["$defs"]["ActorConfig"]["properties"]["micro_batch_size_per_device_for_update"]
    assert "batch.micro: " in key["description"]
    assert "MEM001" in key["description"]


# --- check-jsonschema and editors ------------------------------------------------------------------------------------


@pytest.mark.slow
@needs_corpus
def test_check_jsonschema_takes_the_schema_and_the_examples(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "check_jsonschema"]
    for framework in list_vocabularies():
        printed = run_cfglint("schema", framework, cwd=tmp_path).out
        (tmp_path / f"{framework}.json").write_text(printed)
    schemas = [str(tmp_path / f"{framework}.json") for framework in list_vocabularies()]
    process = subprocess.run([*command, "--check-metaschema", *schemas], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout
    printed = run_cfglint("schema", "axolotl", "--release", "0.18.0", cwd=tmp_path).out
    (tmp_path / "axolotl.json").write_text(printed)
    verdicts = json.loads((CORPUS.parent / "data" / "axolotl_validation_0.18.json").read_text())
    keys = set(load("axolotl").list_names((), "0.18.0"))
    sound = []
    for name, verdict in verdicts.items():
        path = CORPUS / "axolotl" / "examples" / name
        text = path.read_text(encoding="utf-8")
        if verdict["ok"] and not verdict["dropped"] and "fsdp" not in text and yaml.safe_load(text).keys() <= keys:
            sound.append(str(path))
    assert len(sound) > 80
    schema = ["--schemafile", str(tmp_path / "axolotl.json")]
    process = subprocess.run([*command, *schema, *sound], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout[-3000:]
    (tmp_path / "wrong.yaml").write_text(AXOLOTL + "sequence_length: 4096\nsample_packing: maybe\n")
    words = [*command, *schema, str(tmp_path / "wrong.yaml")]
    process = subprocess.run(words, capture_output=True, text=True, check=False)
    assert process.returncode == 1
    assert "sequence_length" in process.stdout


MODELINE = "# yaml-language-server: $schema=./axolotl-0.18.0.json\n"


def test_the_line_for_the_yaml_language_server_stays_where_it_is(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "config.yaml").write_text(MODELINE + AXOLOTL + "flash_attention: true\nsequence_length: 4096\n")
    outcome = run_cfglint("--isolated", "--fix", "--unsafe-fixes", "config.yaml", cwd=tmp_path)
    assert "fixed:" in outcome.err
    assert (tmp_path / "config.yaml").read_text().startswith(MODELINE)
    assert run_cfglint("migrate", "--isolated", "--to", "axolotl=0.21.0", "config.yaml", cwd=tmp_path).code == 0
    after = (tmp_path / "config.yaml").read_text()
    assert after.startswith(MODELINE)
    assert "attn_implementation" in after
