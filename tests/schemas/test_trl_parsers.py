"""TRL's own dataclasses and parser as judges of random recipes: rejected keys and the value of every setting."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from cfglint_rules import registry
from cfglint_rules.vocabulary.survey import KeyOccurrence, list_key_occurrences
from cfglint_schemas.status import PRESENT, Context
from cfglint_schemas.vocabulary import load
from cfglint_train.frameworks.hf_trainer.arguments import OLDER_BATCH_KEYS
from cfglint_train.runs.run import Run
from tests.support.corpus import REPOSITORY
from tests.support.linting import list_runs
from tests.support.releases import fetch_source

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

ORACLE = REPOSITORY / "tests" / "oracles" / "trl_parser.py"
NEWEST = load("trl").newest
RECIPES = {NEWEST: 1000, "1.0.0": 100, "0.24.0": 100, "0.19.1": 100, "0.16.1": 100, "0.12.2": 100}
TRAINERS = ("sft", "dpo", "grpo", "kto", "rloo", "reward")
STRANGERS = ("stranger", "per_device_batch", "max_len", "lora_rank_r", "micro_batch")
# Fields of the filled dataclasses, by the plan field that is read from each.
VALUES = {
    "model.id": "model_name_or_path",
    "model.revision": "model_revision",
    "method.lora_rank": "lora_r",
    "method.lora_alpha": "lora_alpha",
    "method.lora_dropout": "lora_dropout",
    "optimizer.learning_rate": "learning_rate",
    "optimizer.clipping": "max_grad_norm",
    "batch.micro": "per_device_train_batch_size",
    "batch.accumulation": "gradient_accumulation_steps",
    "batch.eval_micro": "per_device_eval_batch_size",
    "checkpoint.model_only": "save_only_model",
    "data.workers": "dataloader_num_workers",
    "rollout.samples_per_prompt": "num_generations",
    "rollout.new_tokens": "max_completion_length",
    "rollout.kl_coefficient": "beta",
}
WORDS = {
    "int": (1, 4, 8, "4", " 16 ", "1_0", "4.0", "four"),
    "float": (0.5, 1, "0.5", "1e-5", "nan", "half"),
    "bool": (True, False, "true", "No", "1", "on", "maybe"),
}
# Switches of keys that are typed even when they have no effect, which no rule reports.
SWITCHES = ("use_peft", "load_in_4bit", "use_vllm")
# Fields that the Trainer's own class and PyTorch check (the oracle omits them), or that hold no scalar.
LEFT_OUT = (
    *SWITCHES, "load_in_8bit", "bf16", "fp16", "fsdp", "fsdp_config", "deepspeed", "output_dir", "datasets",
    "accelerator_config", "config", "auto_find_batch_size", "num_processes", "env", "batch_size", "total_episodes",
    "per_gpu_train_batch_size",
)  # fmt: skip


def draw_recipes(release: str, count: int) -> list[dict[str, Any]]:
    """Draw recipes with keys of the trainer at the release, of other releases and of no release.

    Values are of all kinds.
    """
    vocabulary, dice, recipes = load("trl"), random.Random(release), []
    trainers = [candidate for candidate in TRAINERS if has_script(release, candidate)]
    for _ in range(count):
        trainer = dice.choice(trainers)
        context = Context(entry=trainer)
        names = [
            *vocabulary.list_names((), release, context),
            *vocabulary.list_names((), dice.choice(vocabulary.releases), context),
            *STRANGERS,
        ]
        config: dict[str, Any] = {
            "model_name_or_path": "Qwen/Qwen2.5-0.5B",
            "output_dir": "out",
            "dataset_name": "mine",
        }
        config |= {name: True for name in SWITCHES if name in names}
        for name in dice.sample(sorted({*names} - {*LEFT_OUT}), dice.randint(2, 10)):
            fact = vocabulary.find_fact((name,), release, context)
            kinds = [] if fact is None else [kind.name for kind in fact.list_kinds() if kind.name in WORDS]
            is_plain = fact is None or {kind.name for kind in fact.list_kinds()} <= {*WORDS, "null"}
            if is_plain:
                config[name] = dice.choice(WORDS[kinds[0]] if kinds else (1, "x"))
        for name in ("per_device_train_batch_size", "num_generations"):
            if dice.random() < 0.5 and vocabulary.find_fact((name,), release, context) is not None:
                config[name] = dice.choice((2, 4, 6, 8, 16))
        recipes.append({"trainer": trainer, "ranks": dice.choice((1, 2, 3, 8)), "config": config})
    return recipes


def has_script(release: str, trainer: str) -> bool:
    """Return whether the release has the trainer and a script that passes its arguments to TrlParser."""
    first = {"sft": "0.9", "dpo": "0.9", "kto": "0.13", "grpo": "0.14", "rloo": "0.22", "reward": "0.24"}[trainer]
    return tuple(map(int, release.split(".")[:2])) >= tuple(map(int, first.split(".")))


def run_parser(release: str, recipes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if find_spec("transformers") is None:
        pytest.skip("transformers is not installed (tests/oracles/requirements.txt)")
    command = [sys.executable, str(ORACLE), str(fetch_source("trl", release, "trl"))]
    lines = "".join(json.dumps(recipe) + "\n" for recipe in recipes)
    process = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr[-2000:]
    return [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]


def read_runs(folder: Path, release: str, recipes: list[dict[str, Any]]) -> list[Run]:
    """Return the runs of the recipes, each started by its own command."""
    (folder / ".git").mkdir()
    pragma = f"# cfglint: trl={release} transformers={version('transformers')} nodes=1"
    commands = []
    for number, recipe in enumerate(recipes):
        text = yaml.safe_dump(recipe["config"], sort_keys=False)
        defaults = {"num_train_epochs": 1, "dataset_train_split": "train", "dataset_test_split": "test"}
        rest = yaml.safe_dump({name: value for name, value in defaults.items() if name not in recipe["config"]})
        name = f"recipe{number:04}.yaml"
        (folder / name).write_text(f"{pragma} gpus-per-node={recipe['ranks']}\n{text}{rest}")
        commands.append(f"trl {recipe['trainer']} --config {name}\n")
    (folder / "run.sh").write_text("".join(commands))
    runs = {Path(run.main.document.path).name: run for run in list_runs(folder)}
    return [runs[f"recipe{number:04}.yaml"] for number in range(len(recipes))]


def list_errors(run: Run, *codes: str) -> list[str]:
    """Return the messages of some rules' errors."""
    errors = []
    for code in codes:
        rule = registry.RULES[code]
        subject: Any = run.main if rule.scope == "config" else run
        errors += [
            report.message for report in registry.get_checker(rule)(subject) if (report.severity or "error") == "error"
        ]
    return errors


def is_unknown(occurrence: KeyOccurrence) -> bool:
    """Return whether the release lacks a key."""
    status = occurrence.status
    return status is None or (status.kind not in (PRESENT, "gated") and status.effect == "error")


@pytest.mark.parametrize("release", sorted(RECIPES))
def test_trl_takes_refuses_and_fills_in_the_same(release: str, tmp_path: Path) -> None:
    recipes = draw_recipes(release, RECIPES[release])
    answers = run_parser(release, recipes)
    refused = 0
    for recipe, answer, run in zip(recipes, answers, read_runs(tmp_path, release, recipes), strict=True):
        unknown = sorted(occurrence.name for occurrence in list_key_occurrences(run.main) if is_unknown(occurrence))
        if answer["why"] is not None:
            assert list_errors(run, "KEY004", "KEY006", "BAT002"), (recipe, answer["why"])
            refused += 1
            continue
        assert unknown == answer["unused"], recipe
        assert not list_errors(run, "KEY004"), recipe
        filled = answer["values"]
        if filled:
            for field, name in VALUES.items():
                # An older spelling that the release rejects is read as its author intended.
                value = run.resolved_plan.get(field)
                if value is not None and name in filled and OLDER_BATCH_KEYS.get(name) not in unknown:
                    assert value == filled[name], (field, recipe)
    assert refused > len(recipes) // 20
