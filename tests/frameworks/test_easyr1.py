"""EasyR1: its dataclasses refuse what they lack, and its code decides what becomes of the settings in the plan."""

from __future__ import annotations

import json
import lzma
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cfglint_train.frameworks.framework import load
from tests.support.cases import for_each
from tests.support.command import run_cfglint
from tests.support.configs import nest_settings
from tests.support.corpus import REPOSITORY
from tests.support.linting import build_options, lint, list_runs

ANSWERS = REPOSITORY / "tests" / "oracles" / "easyr1_settings.json.xz"
"""Random settings with the answers of EasyR1's own code at four releases, by `tests/oracles/easyr1_settings.py`."""
CHOICES = ("adv_estimator", "dtype", "loss_avg_mode", "lr_scheduler_type", "reward_type", "strategy")
"""Names of settings whose words only the training code checks."""
SETTINGS = {
    "data.max_prompt_length": 1024,
    "data.max_response_length": 3072,
    "data.rollout_batch_size": 256,
    "algorithm.adv_estimator": "grpo",
    "worker.actor.global_batch_size": 64,
    "worker.actor.micro_batch_size_per_device_for_update": 4,
    "worker.actor.micro_batch_size_per_device_for_experience": 8,
    "worker.actor.model.model_path": "Qwen/Qwen2.5-7B-Instruct",
    "worker.rollout.n": 8,
    "trainer.n_gpus_per_node": 8,
}


def nest(settings: dict[str, Any]) -> dict[str, Any]:
    """Return dotted settings as a tree with the sections of EasyR1."""
    return nest_settings(settings, data={}, worker={"actor": {}, "rollout": {}}, trainer={})


def write_run(folder: Path, settings: dict[str, Any], *words: str, release: str = "0.3.3.dev0") -> Path:
    """Write a file and the command that starts it; a setting of None is left out."""
    stated = {name: value for name, value in {**SETTINGS, **settings}.items() if value is not None}
    text = yaml.safe_dump(nest(stated), sort_keys=False)
    (folder / "run.yaml").write_text(f"# cfglint: easyr1={release}\n{text}")
    (folder / "run.sh").write_text(" ".join(("python3 -m verl.trainer.main config=run.yaml", *words)) + "\n")
    return folder / "run.yaml"


def read_plan(folder: Path, settings: dict[str, Any], *words: str, release: str = "0.3.3.dev0") -> Any:
    write_run(folder, settings, *words, release=release)
    (run,) = list_runs(folder)
    assert run.main.framework == "easyr1"
    return run.plan


@for_each(("command", "is_file_read"), [
    ("config=run.yaml", True),
    ("config=run.yaml trainer.nnodes=2", True),
    ("config=run.yaml +trainer.nnodes=2", True),
    ("config=run.yaml ++trainer.nnodes=2", True),
    ("config=run.yaml ~trainer.nnodes", True),
    ("config=run.yaml --trainer.nnodes=2", True),
    ("config=run.yaml --local_rank=0", True),
    ("config=run.yaml trainer.nnodes = 2", True),
    ("config=run.yaml trainer.nnodes =2", True),
    ("config=run.yaml trainer.nnodes= 2", True),
    ("--config run.yaml trainer.nnodes=2", False),
    ("run.yaml trainer.nnodes=2", False),
])  # fmt: skip
def test_words_are_refused_as_omegaconf_refuses_them(command, is_file_read, tmp_path):
    omegaconf = pytest.importorskip("omegaconf")
    write_run(tmp_path, {"trainer.nnodes": 1})
    (tmp_path / "run.sh").write_text(f"python3 -m verl.trainer.main {command}\n")
    words = omegaconf.OmegaConf.from_cli([word for word in command.split() if word != "config=run.yaml"])
    tree = omegaconf.OmegaConf.create(nest({**SETTINGS, "trainer.nnodes": 1}))
    omegaconf.OmegaConf.set_struct(tree, True)
    is_refused = False
    try:
        omegaconf.OmegaConf.merge(tree, words)
    except omegaconf.errors.ConfigKeyError:
        is_refused = True
    errors = lint(tmp_path, build_options(select=["KEY001", "KEY006"])).findings
    assert bool(errors) is is_refused
    assert is_file_read is not any("EasyR1 reads its file" in error.message for error in errors)


@for_each(("main", "count"), [
    ("OmegaConf.from_cli()", 1),
    ("OmegaConf.from_cli(parser.parse_known_args()[1])", 0),
    ("parser.parse_args()", 0),
])  # fmt: skip
def test_a_copy_with_another_parser_may_read_other_words(main, count, tmp_path):
    write_run(tmp_path, {})
    (tmp_path / "run.sh").write_text("python3 -m verl.trainer.main --config run.yaml\n")
    for name, text in {
        "verl/__init__.py": "",
        "verl/trainer/config.py": "@dataclass\nclass PPOConfig:\n    seed: int = 1\n",
        "verl/trainer/main.py": f"def main():\n    words = {main}\n",
        "verl/workers/config.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    errors = [item.message for item in lint(tmp_path, build_options(select=["KEY006"])).findings]
    assert len([error for error in errors if "EasyR1 reads its file" in error]) == count


def test_easyr1_refuses_and_accepts_the_same_files(tmp_path):
    rows = json.loads(lzma.decompress(ANSWERS.read_bytes()))
    for number, (release, _, tree, _) in enumerate(rows):
        (tmp_path / f"{number}.yaml").write_text(f"# cfglint: easyr1={release}\n{yaml.safe_dump(tree)}")
    findings = lint(tmp_path, build_options(select=["KEY001", "KEY002", "KEY004", "KEY005"])).findings
    errors = {finding.path: finding.message for finding in findings if finding.severity == "error"}
    replaced = {finding.path for finding in findings if finding.code == "KEY005"}
    disagreements = []
    for number, (release, name, _, answer) in enumerate(rows):
        message = errors.get(f"{number}.yaml", "")
        if answer is None:  # the training code refuses some words later
            agrees = not message or (name.endswith(CHOICES) and "must be one of" in message)
        else:  # types of settings that others replace are not checked
            agrees = bool(message) or f"{number}.yaml" in replaced
        if not agrees:
            disagreements.append((release, name, answer, message))
    assert 200 < len(errors) < len(rows) - 200
    assert disagreements == []


@for_each(("settings", "words", "refused"), [
    ({"worker.actor.ppo_mini_batch_size": 8}, (), "worker.actor.ppo_mini_batch_size"),
    ({}, ("worker.actor.ppo_mini_batch_size=8",), "worker.actor.ppo_mini_batch_size"),
    ({"trainer.logger": ["file", "console", "wandb"]}, ("data.seed=3",), ""),
    ({"worker.actor.optim.strategy": "adam"}, (), "worker.actor.optim.strategy"),
    ({}, ("worker.actor.fsdp.torch_dtype=bf16", "worker.actor.optim.strategy=adamw_bf16"), ""),
    ({}, ("worker.actor.fsdp.torch_dtype=half",), "worker.actor.fsdp.torch_dtype"),
])  # fmt: skip
def test_keys_of_the_file_and_of_the_words_are_checked(settings, words, refused, tmp_path):
    write_run(tmp_path, settings, *words)
    findings = lint(tmp_path, build_options(select=["KEY"])).findings
    assert [refused in finding.message for finding in findings if finding.severity == "error"] == [True] * bool(refused)


@for_each(("settings", "words", "refused"), [
    ({"trainer.logger": ["console", "file"]}, (), []),
    ({"trainer.logger": ["console", "files"]}, (), ["trainer.logger"]),
    ({"algorithm.kl_penalty": "low_var"}, (), ["algorithm.kl_penalty"]),
    ({"algorithm.kl_type": "fix"}, (), ["algorithm.kl_type"]),
    ({"algorithm.kl_penalty": "low_var", "algorithm.disable_kl": True}, (), []),
    ({"algorithm.kl_penalty": "low_var"}, ("algorithm.disable_kl=true",), []),
    ({"algorithm.kl_penalty": "low_var"}, ("trainer.val_only=true",), []),
])  # fmt: skip
def test_words_that_only_some_settings_check(settings, words, refused, tmp_path):
    write_run(tmp_path, settings, *words)
    messages = [finding.message for finding in lint(tmp_path, build_options(select=["KEY004"])).findings]
    assert [message.split("`")[1] for message in messages] == refused


def test_releases_of_easyr1_are_not_those_of_verl(tmp_path):
    file = write_run(tmp_path, {"worker.actor.ulysses_sequence_parallel_size": 2}, release="0.3.1")
    (finding,) = lint(tmp_path, build_options(select=["KEY"])).findings
    assert (finding.code, finding.severity) == ("KEY002", "error")
    assert "EasyR1 0.3.1" in finding.message
    file.write_text(file.read_text().replace("easyr1=0.3.1", "verl=0.3.0"))
    (run,) = list_runs(tmp_path)  # the keys show the release
    assert run.main.release == "0.3.0"
    assert run.plan.parallel.context == 2


CLASSES = """\
from dataclasses import dataclass, field

@dataclass
class ActorConfig:
    global_batch_size: int = 256
    entropy_bonus: float = 0.0

@dataclass
class WorkerConfig:
    actor: ActorConfig = field(default_factory=ActorConfig)
    rollout: dict = field(default_factory=dict)

@dataclass
class PPOConfig:
    data: dict = field(default_factory=dict)
    worker: WorkerConfig = field(default_factory=WorkerConfig)
    trainer: dict = field(default_factory=dict)
"""


@for_each(("setting", "refused"), [("entropy_bonus", False), ("entropy_bonuss", True), ("padding_free", True)])
def test_a_copy_is_its_own_vocabulary(setting, refused, tmp_path):
    for package in ("verl", "verl/trainer", "verl/workers"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text('__version__ = "0.3.2"\n')
    (tmp_path / "verl" / "trainer" / "config.py").write_text(CLASSES)
    (tmp_path / ".git").mkdir()
    (tmp_path / "run.yaml").write_text(
        yaml.safe_dump(nest({f"worker.actor.{setting}": 1, "data.rollout_batch_size": 8}))
    )
    findings = lint(tmp_path, build_options(select=["KEY"])).findings
    assert [(finding.code, finding.severity) for finding in findings] == [("KEY001", "error")] * refused


@for_each(("settings", "fields"), [
    ({}, {"parallel.strategy": "fsdp1", "parallel.sharding": "full_shard", "precision.params": "fp32",
          "precision.frozen": "bf16", "optimizer.name": "adamw", "optimizer.implementation": "fused",
          "optimizer.state_bits": 32, "batch.global_": 512, "batch.micro": None, "batch.tokens_per_gpu": 16384,
          "rollout.tokens_per_gpu": 32768, "rollout.weights_sleep": False, "rollout.sleep_discards": False,
          "rollout.utilization": 0.6, "rollout.tensor": 2, "checkpoint.strategy": "no", "checkpoint.final": True,
          "checkpoint.keep": "all", "activations.fused_loss": "policy_scaled", "method.stage": "grpo"}),
    ({"worker.actor.dynamic_batching": False, "worker.actor.padding_free": False},
     {"batch.micro": 4, "batch.tokens_per_gpu": None, "rollout.micro": 8, "sequence.padding": "max_length",
      "activations.fused_loss": "policy_cut"}),
    ({"worker.actor.fsdp.torch_dtype": "bf16", "worker.actor.optim.strategy": "adamw_bf16"},
     {"precision.params": "bf16", "precision.grads": "bf16", "optimizer.name": "kahan_adamw",
      "optimizer.state_bits": 16}),
    ({"worker.actor.fsdp.fsdp_size": 4, "worker.actor.fsdp.enable_full_shard": False},
     {"parallel.sharding": "hybrid_shard_zero2", "parallel.shard_size": 4, "parallel.replicas": 2}),
    ({"worker.actor.fsdp.enable_cpu_offload": True},
     {"parallel.offload_params": "cpu", "parallel.offload_optimizer": "cpu"}),
    ({"worker.actor.fsdp.enable_rank0_init": False}, {"precision.loaded": "fp32"}),
    ({"worker.actor.offload.offload_params": True, "worker.actor.offload.offload_optimizer": True},
     {"rollout.weights_sleep": True, "rollout.train_sleep": True}),
    ({"worker.actor.model.lora.rank": 16, "worker.actor.model.lora.target_modules": "q_proj, v_proj"},
     {"method.tuning": "lora", "method.lora_rank": 16, "method.lora_alpha": 64, "precision.adapter": "fp32",
      "method.lora_targets": ("q_proj", "v_proj"), "method.reference_model": "adapter-off"}),
    ({"worker.actor.ulysses_size": 2}, {"parallel.context": 2, "rollout.tokens_per_gpu": 16384}),
    ({"trainer.save_freq": 5, "trainer.save_limit": 3, "trainer.save_model_only": True},
     {"checkpoint.strategy": "steps", "checkpoint.interval": 5, "checkpoint.keep": 3, "checkpoint.model_only": True}),
    ({"algorithm.disable_kl": True}, {"rollout.kl_coefficient": 0}),
    ({"algorithm.kl_coef": 0.01}, {"rollout.kl_coefficient": 0.01}),
    ({"algorithm.kl_coef": 0.0}, {"rollout.kl_coefficient": None}),
])  # fmt: skip
def test_settings_become_the_plan(settings, fields, tmp_path):
    plan = read_plan(tmp_path, settings)
    assert {field: plan.get(field) for field in fields} == fields


@for_each(("release", "fields"), [
    ("0.3.0", {"batch.micro": 4, "sequence.packing": False, "rollout.wakes_first": False, "precision.loaded": "fp32"}),
    ("0.3.1", {"batch.micro": 4, "sequence.packing": True, "rollout.wakes_first": True, "precision.loaded": "none"}),
    ("0.3.2", {"batch.micro": None, "batch.tokens_per_gpu": 16384}),
])  # fmt: skip
def test_defaults_are_those_of_the_release(release, fields, tmp_path):
    plan = read_plan(tmp_path, {}, release=release)
    assert {field: plan.get(field) for field in fields} == fields


@for_each(("settings", "expected"), [
    ({}, [("actor", True, None), ("reference", False, False)]),
    ({"worker.ref.fsdp.enable_cpu_offload": True}, [("actor", True, None), ("reference", False, True)]),
    ({"worker.ref.offload.offload_params": True}, [("actor", True, None), ("reference", False, True)]),
    ({"algorithm.disable_kl": True}, [("actor", True, None)]),
    ({"worker.actor.model.lora.rank": 8}, [("actor", True, None)]),
    ({"algorithm.adv_estimator": "gae", "worker.critic.model.model_path": "Qwen/Qwen2.5-7B-Instruct",
      "worker.critic.offload.offload_params": True},
     [("actor", True, None), ("reference", False, False), ("critic", True, True)]),
])  # fmt: skip
def test_models_share_the_gpus(settings, expected, tmp_path):
    plan = read_plan(tmp_path, settings)
    assert [(role.name, role.trained, role.offload) for role in plan.model.roles] == expected


@for_each(("settings", "words", "says"), [
    ({}, (), ""),
    ({"data.rollout_batch_size": 250}, (), "`data.rollout_batch_size` 250"),
    ({}, ("worker.actor.global_batch_size=96",), "`worker.actor.global_batch_size` 96"),
    ({"worker.actor.micro_batch_size_per_device_for_update": 3}, (), "a rank's share, 64 x 8 / 8 = 64 answers,"),
    ({"algorithm.adv_estimator": "gae", "worker.critic.global_batch_size": 48}, (), "`worker.critic.global_batch_"),
    ({"worker.critic.global_batch_size": 48}, (), ""),
    ({"algorithm.adv_estimator": "gae",
      "worker.critic.micro_batch_size_per_device_for_update": 5}, (), "the critic's share"),
    ({"algorithm.adv_estimator": "gae", "worker.critic.ulysses_size": 8,
      "worker.critic.micro_batch_size_per_device_for_update": 512}, (), ""),
    ({"worker.critic.micro_batch_size_per_device_for_update": 5}, (), ""),
    ({"worker.actor.global_batch_size": 1, "worker.rollout.n": 4}, (), "data-parallel ranks: EasyR1 refuses"),
    ({"data.rollout_batch_size": 256, "trainer.n_gpus_per_node": 7}, (), "the 7 GPUs"),
    ({"trainer.n_gpus_per_node": 7, "data.mini_rollout_batch_size": 7}, (), "a rank's share"),
])  # fmt: skip
def test_batches_must_divide(settings, words, says, tmp_path):
    write_run(tmp_path, settings, *words)
    messages = [finding.message for finding in lint(tmp_path, build_options(select=["BAT002"])).findings]
    assert any(says in message for message in messages) if says else messages == []


@for_each(("settings", "release", "gpu", "fits"), [
    ({"worker.actor.model.model_path": "Qwen/Qwen2.5-32B-Instruct"}, "0.3.1", "A100-80GB", False),
    ({"worker.actor.offload.offload_params": True, "worker.actor.offload.offload_optimizer": True,
      "worker.actor.micro_batch_size_per_device_for_update": 1}, "0.3.1", "A100-80GB", True),
    # README.md of EasyR1: 7B in bf16 on 4 x 40 GB.
    ({"worker.actor.fsdp.torch_dtype": "bf16", "worker.actor.optim.strategy": "adamw_bf16",
      "worker.actor.offload.offload_params": True, "worker.actor.offload.offload_optimizer": True,
      "worker.actor.micro_batch_size_per_device_for_update": 1, "trainer.n_gpus_per_node": 4,
      "worker.ref.fsdp.enable_cpu_offload": True, "worker.actor.micro_batch_size_per_device_for_experience": 2},
     "0.3.3.dev0", "A100-40GB", True),
])  # fmt: skip
def test_memory_is_estimated(settings, release, gpu, fits, tmp_path):
    write_run(tmp_path, settings, release=release)
    findings = lint(tmp_path, build_options(select=["MEM001", "CHK001"], gpu=gpu, host_memory="2TB")).findings
    assert [(finding.code, finding.severity) for finding in findings] == [("MEM001", "error")] * (not fits)


@for_each(("settings", "expected"), [
    ({"worker.critic.fsdp.enable_cpu_offload": True}, (True, True)),
    ({"worker.critic.offload.offload_params": True}, (True, False)),
    ({}, (False, False)),
])  # fmt: skip
def test_either_setting_keeps_the_critic_on_the_host(settings, expected, tmp_path):
    plan = read_plan(tmp_path, {"algorithm.adv_estimator": "gae", **settings})
    (critic,) = (role for role in plan.model.roles if role.name == "critic")
    assert (critic.offload, critic.states_offload) == expected


def test_a_validation_is_no_run(tmp_path):
    write_run(tmp_path, {"trainer.val_only": True})
    assert not list_runs(tmp_path)


@pytest.mark.parametrize("place", ["file", "word"])
def test_fit_writes_the_file_or_the_words(place, tmp_path):
    (tmp_path / ".git").mkdir()
    name = "worker.actor.micro_batch_size_per_device_for_update"
    settings, words = ({name: 64}, ()) if place == "file" else ({}, (f"{name}=64",))
    file = write_run(tmp_path, settings, *words, release="0.3.1")
    result = run_cfglint("fit", str(file), "--gpu", "A100-80GB", "--host-memory", "2TB", "--write", cwd=tmp_path)
    assert result.code == 0, result.out + result.err
    (run,) = list_runs(tmp_path)
    assert run.plan.batch.micro < 64
    shown = file if place == "file" else tmp_path / "run.sh"
    words = (f"{name.rpartition('.')[2]}: {run.plan.batch.micro}", f"{name}={run.plan.batch.micro}")
    assert words[place == "word"] in re.split(r"\n *| (?=worker)", shown.read_text())
    options = build_options(select=["MEM", "KEY", "BAT"], gpu="A100-80GB", host_memory="2TB")
    assert [finding.message for finding in lint(tmp_path, options).findings if finding.severity == "error"] == []


@for_each(("name", "says"), [("run.yaml", ""), ("runs.yaml", "`runs.yaml` was not found, so the launch fails")])
def test_the_file_of_a_command_is_its_word_without_the_name(name, says, tmp_path):
    (tmp_path / ".git").mkdir()
    write_run(tmp_path, {})
    (tmp_path / "run.sh").write_text(f"python3 -m verl.trainer.main config={name}\n")
    messages = [finding.message for finding in lint(tmp_path, build_options(select=["CHK004"])).findings]
    assert messages == [says] * bool(says)


def test_the_newest_release_is_that_of_the_repository(tmp_path):
    file = write_run(tmp_path, {"worker.actor.model.lora.rank": 8})
    file.write_text(file.read_text().partition("\n")[2])
    assert lint(tmp_path, build_options(select=["REL"])).findings == ()
    (run,) = list_runs(tmp_path)
    assert run.main.release == load("easyr1").default_release
