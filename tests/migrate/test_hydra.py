"""Migrated words of Hydra and YAML that verl composes, judged by Hydra and verl's own validation at the target."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from cfglint_train.front.migrate.goal import parse_goal
from cfglint_train.front.migrate.rewrite import MigratedFile, migrate
from cfglint_train.settings.settings import Settings
from tests.support import oracle
from tests.support.linting import change_directory

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
BASE = (
    f"{ROLLOUT}.name=vllm",
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=4",
    f"{ACTOR}.ppo_micro_batch_size_per_gpu=4",
    "critic.ppo_micro_batch_size_per_gpu=4",
)
MOVED = (
    ("trainer.val_generations_to_log_to_wandb=10", {"trainer.log_val_generations": 10}),
    (
        f"{ACTOR}.checkpoint.contents=\"['model']\"",
        {f"{ACTOR}.checkpoint.{part}_contents": ["model"] for part in ("save", "load")},
    ),
    (f"{ROLLOUT}.multi_turn.max_turns=3", {f"{ROLLOUT}.multi_turn.max_assistant_turns": 3}),
    ("ray_init.num_cpus=8", {"ray_kwargs.ray_init.num_cpus": 8}),
    ("critic.model.fsdp_config.param_offload=True", {"critic.fsdp.param_offload": True}),
    ("++critic.model.fsdp_config.optimizer_offload=True", {"critic.fsdp.optimizer_offload": True}),
    ("+trainer.val_before_train=False", {"trainer.val_before_train": False}),
    ("'~trainer.val_generations_to_log_to_wandb'", {}),
    ("data.train_batch_size=512", {"data.train_batch_size": 512}),
    ("reward_model.sandbox_fusion.url=http://sandbox/run", {"reward.sandbox_fusion.url": "http://sandbox/run"}),
    ("critic.model.fsdp_config.wrap_policy.min_num_params=9", {"critic.fsdp.wrap_policy.min_num_params": 9}),
    (
        "trainer.worker_nsight_options.trace=cuda",
        {"global_profiler.global_tool_config.nsys.worker_nsight_options.trace": "cuda"},
    ),
    ("+custom_reward_function.reward_kwargs.a=1", {"reward.custom_reward_function.reward_kwargs.a": 1}),
    ("custom_reward_function.path=reward.py", {"reward.custom_reward_function.path": "reward.py"}),
    ("reward_model.reward_manager=dapo", {"reward.reward_manager.name": "dapo"}),
)
"""Words that 0.3.0 accepts, or a later release, each with what the newest release must read."""
YAML = """\
defaults: [ppo_trainer, _self_]
actor_rollout_ref:
  actor:
    ppo_micro_batch_size_per_gpu: 4
    checkpoint:
      contents: [model]  # no optimizer
  rollout:
    name: vllm
    log_prob_micro_batch_size_per_gpu: 4
    multi_turn: {max_turns: 3}
critic:
  ppo_micro_batch_size_per_gpu: 4
  model:
    fsdp_config:
      param_offload: true  # the critic sleeps
      optimizer_offload: true
ray_init: {num_cpus: 8}
custom_reward_function: {path: reward.py}
trainer:
  val_generations_to_log_to_wandb: 10  # a few
"""


def migrate_file(folder: Path, name: str, text: str) -> MigratedFile:
    (folder / ".git").mkdir()
    (folder / name).write_text(text)
    with change_directory(folder):
        goal = parse_goal(["verl=0.9.1"], ["verl=0.3.0.post1"])
        (file,) = migrate([name], goal, lambda _: Settings(os.getcwd())).files
    return file


def judge(question: dict[str, Any]) -> dict[str, Any]:
    (answer,) = oracle.judge_questions("verl_config.py", [question])
    assert answer["accepted"], answer["why"]
    values: dict[str, Any] = answer["values"]
    return values


@pytest.mark.recorded
@pytest.mark.parametrize(("word", "expected"), MOVED)
def test_verl_reads_a_migrated_word(word: str, expected: dict[str, Any], tmp_path: Path) -> None:
    file = migrate_file(tmp_path, "run.sh", " \\\n    ".join(("python3 -m verl.trainer.main_ppo", *BASE, word)) + "\n")
    assert [item.message for item in file.items if item.kind == "human"] == []
    assert ("++" in file.source.decode()) is word.startswith("++")
    words = shlex.split(file.source.decode().replace("\\\n", " "))[3:]
    start = judge({"name": "ppo_trainer", "words": list(BASE)})
    values = judge({"name": "ppo_trainer", "words": words})
    assert {name: value for name, value in values.items() if start.get(name) != value} == expected


@pytest.mark.recorded
def test_verl_reads_a_migrated_file(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text('python3 -m verl.trainer.main_ppo --config-path="$PWD" --config-name=run\n')
    file = migrate_file(tmp_path, "run.yaml", YAML)
    assert [item.message for item in file.items if item.kind == "human"] == []
    text = file.source.decode()
    assert text.count("# ") == YAML.count("# ")
    assert "    param_offload: true  # the critic sleeps\n" in text
    start = judge({"name": "ppo_trainer", "words": list(BASE)})
    values = judge({"name": "run", "words": [], "files": {"run.yaml": text}})
    expected = {name: value for word, moved in (*MOVED[:6], MOVED[-2]) for name, value in moved.items()}
    assert {name: value for name, value in values.items() if start.get(name) != value} == expected
