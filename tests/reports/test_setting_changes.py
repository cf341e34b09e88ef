"""Settings outside the plan that `cfglint diff` lists: those that differ by their effect, and no others."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cfglint_schemas.vocabulary import load
from cfglint_train import api
from cfglint_train.records import Comparison, RunChange
from cfglint_train.reports import change
from tests.support import oracle
from tests.support.corpus import REPOSITORY

FIXTURES = REPOSITORY / "fixtures"
WORDS = (
    "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct",
    "actor_rollout_ref.rollout.name=vllm",
    "actor_rollout_ref.actor.use_dynamic_bsz=true",
    "actor_rollout_ref.actor.ppo_mini_batch_size=64",
    "data.train_batch_size=128",
    "data.train_files=/data/train.parquet",
)


def compare(name: str, before: str, after: str) -> RunChange:
    options = api.Options(isolated=True)
    sides = [api.lint(sources={name: text}, options=options) for text in (before, after)]
    (compared,) = api.compare(*sides, is_pair=True).runs
    return compared


def list_settings(compared: RunChange) -> list[tuple[str, Any, Any]]:
    return [(item.key, item.before, item.after) for item in compared.settings]


def write_command(*words: str) -> str:
    return " ".join(("python -m verl.trainer.main_ppo", *WORDS, *words)) + "\n"


OPENRLHF = """\
deepspeed --module openrlhf.cli.train_sft --pretrain Qwen/Qwen2.5-7B --dataset data/a.json --max_len 2048 \
--train_batch_size 128 --micro_train_batch_size 2 --zero_stage 3 --bf16 --l2 0.01
"""
AXOLOTL = (FIXTURES / "diff" / "axolotl.yaml").read_text(encoding="utf-8").replace("deepspeed: zero3.json\n", "")
LLAMAFACTORY = (FIXTURES / "diff" / "llamafactory.yaml").read_text(encoding="utf-8")
LLAMAFACTORY = LLAMAFACTORY.replace("deepspeed: zero3.json", "deepspeed: {zero_optimization: {stage: 3}}")
OLMO = (FIXTURES / "olmo" / "ddp-tiny.yaml").read_text(encoding="utf-8")
OLMO_CORE = (FIXTURES / "fit" / "olmo_core-1x8.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "before", "old", "new", "expected"), [
    ("a.sh", write_command("actor_rollout_ref.actor.kl_loss_type=kl"), "kl_loss_type=kl", "kl_loss_type=mse",
     [("actor_rollout_ref.actor.kl_loss_type", "kl", "mse")]),
    ("a.sh", write_command(), "train.parquet", "other.parquet",
     [("data.train_files", "/data/train.parquet", "/data/other.parquet")]),
    ("a.sh", write_command(), "\n", " reward.custom_reward_function.path=r.py\n",
     [("reward.custom_reward_function.path", None, "r.py")]),
    ("a.sh", write_command(), "\n", " actor_rollout_ref.actor.kl_loss_type=low_var_kl\n", []),  # the default
    ("a.sh", OPENRLHF, "--l2 0.01", "--l2 1e-2", []),
    ("a.sh", OPENRLHF, "data/a.json", "data/b.json", [("--dataset", "data/a.json", "data/b.json")]),
    ("a.sh", OPENRLHF, "--l2 0.01", "", [("--l2", "0.01", 0.0)]),
    ("a.yaml", AXOLOTL, "warmup_ratio: 0.03", "warmup_ratio: 3.0e-2  # a comment", []),
    ("a.yaml", AXOLOTL, "path: data/alpaca.jsonl", "path: data/b.jsonl",
     [("datasets[0].path", "data/alpaca.jsonl", "data/b.jsonl")]),
    ("a.yaml", LLAMAFACTORY, "dataset: alpaca_en", "dataset: identity", [("dataset", "alpaca_en", "identity")]),
    ("a.yaml", LLAMAFACTORY, "{stage: 3}", "{stage: 3}, steps_per_print: 5",
     [("steps_per_print", None, 5)]),
    ("a.yaml", OLMO, "run_name: sprout", "run_name: oak", [("run_name", "sprout", "oak")]),
    ("a.py", OLMO_CORE, "seed=0", "seed=1", [("data_loader.seed", 0, 1)]),
])  # fmt: skip
def test_a_setting_outside_the_plan_is_listed_by_its_effect(
    name: str, before: str, old: str, new: str, expected: list[tuple[str, Any, Any]]
) -> None:
    assert before.count(old) == 1
    compared = compare(name, before, before.replace(old, new))
    assert list_settings(compared) == expected
    assert compared.kind == ("changed" if expected else "same")
    assert not compared.fields


def test_settings_of_a_changed_field_are_not_listed_again() -> None:
    after = AXOLOTL.replace("micro_batch_size: 2", "micro_batch_size: 1").replace("learning_rate: 2e-5", "lr: 1")
    compared = compare("a.yaml", AXOLOTL, after)
    assert {"batch.micro"} < {item.field for item in compared.fields}
    assert list_settings(compared) == [("lr", None, 1)]  # a key that axolotl does not have


def test_nothing_is_listed_between_frameworks() -> None:
    options = api.Options(isolated=True)
    sides = [api.lint(sources={f"{key}.yaml": text}, options=options) for key, text in
             (("a", AXOLOTL), ("b", LLAMAFACTORY))]  # fmt: skip
    (compared,) = api.compare(*sides, is_pair=True).runs
    assert compared.settings == ()


def test_many_and_long_values_are_cut() -> None:
    names = [f"stranger_{number}" for number in range(30)]
    text = f"chat_template_jinja: {'x' * 500}y{'z' * 500}\n" + "".join(f"{name}: 1\n" for name in names)
    compared = compare("a.yaml", AXOLOTL + text, AXOLOTL + text.replace("y", "Y").replace(": 1\n", ": 2\n"))
    comparison = Comparison((compared,), 0)
    assert len(compared.settings) == 31
    for report in (change.render_text, change.render_markdown):
        lines = [line.replace("&#95;", "_").strip(" -") for line in report(comparison)]
        assert "and 11 more settings" in lines
        (line,) = [line for line in lines if "chat_template_jinja" in line]
        assert "y" in line
        assert "Y" in line
        assert len(line) < 200


def test_a_token_is_masked() -> None:
    old, new = (f"{AXOLOTL}wandb_api_key: {letter * 40}\n" for letter in "ab")
    compared = compare("a.yaml", old, new)
    assert not any("aaa" in str(item) or "bbb" in str(item) for item in compared.settings)
    compared = compare("a.yaml", f"{AXOLOTL}db_password: 12345678901\n", f"{AXOLOTL}db_password: 54321678901\n")
    assert compared.settings
    assert not any("678901" in str(item) for item in compared.settings)


@pytest.mark.slow
@pytest.mark.oracle
def test_hydra_confirms_what_differs() -> None:
    """Change one setting of verl's tree: it is listed exactly if Hydra's trees differ and no field shows it."""
    dice, vocabulary = random.Random(11), load("verl")
    keys = sorted(
        (".".join(fact.route), fact.get_schema()) for fact in vocabulary.iterate_keys(vocabulary.newest)
        if not {"*", "_target_"} & {*fact.route} and fact.get_schema().get("type") in ("integer", "number", "boolean")
        and "default" in fact.get_schema()
    )  # fmt: skip
    words = []
    for key, schema in dice.sample(keys, 60):
        default = schema["default"]
        other = (not default) if isinstance(default, bool) else 7 if schema["type"] == "integer" else 0.125
        words.append((key, f"{key}={dice.choice((default, other))}".lower()))
    questions = [{"name": "ppo_trainer", "words": [*WORDS, *added]} for added in [(), *((word,) for _, word in words)]]
    plain, *answers = oracle.judge_questions("verl_config.py", questions, recorded=False)
    listed = 0
    for (key, word), answer in zip(words, answers, strict=True):
        compared = compare("a.sh", write_command(), write_command(word))
        if not answer["values"]:
            continue  # Hydra refuses the word: only a dataclass has the key
        is_different = plain["values"].get(key) != answer["values"].get(key)
        if not is_different:
            assert not compared.settings, word
            assert not compared.fields, word
        elif compared.fields:
            assert {item.key for item in compared.settings} <= {key}, word
        else:
            assert [item.key for item in compared.settings] == [key], word
            listed += 1
    assert listed >= 15
