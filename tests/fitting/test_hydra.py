"""`cfglint fit --write` on Hydra's words and on YAML that verl composes: verl accepts the result and reads it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from cfglint_train import api
from tests.support import oracle
from tests.support.command import run_cfglint
from tests.support.configs import nest_settings

START = "python3 -m verl.trainer.main_ppo"
MICRO = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"
CHECKPOINTING = "actor_rollout_ref.model.enable_gradient_checkpointing"
RESPONSE = "data.max_response_length"
SLEEP = "actor_rollout_ref.actor.fsdp_config.optimizer_offload"
STRATEGY = "actor_rollout_ref.actor.strategy"
POLICY = "actor_rollout_ref.actor.fsdp_config.offload_policy"
SETTINGS: dict[str, Any] = {
    "algorithm.adv_estimator": "grpo",
    "actor_rollout_ref.model.path": "Qwen/Qwen2.5-14B-Instruct",
    "data.train_batch_size": 256,
    "data.max_prompt_length": 1024,
    RESPONSE: 4096,
    "actor_rollout_ref.actor.ppo_mini_batch_size": 64,
    MICRO: 8,
    "actor_rollout_ref.rollout.name": "vllm",
    "actor_rollout_ref.rollout.n": 8,
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 8,
    "trainer.n_gpus_per_node": 8,
    "trainer.save_freq": 50,
}
"""Settings of a run that does not fit."""


def write_run(folder: Path, form: str, settings: dict[str, Any]) -> Path:
    """Write the run as words or as a file that a command composes; return the file that has the settings."""
    (folder / ".git").mkdir()
    if form == "words":
        words = " \\\n    ".join(f"{name}={value}" for name, value in settings.items())
        (folder / "run.sh").write_text(f"{START} \\\n    {words}\n")
        return folder / "run.sh"
    (folder / "conf").mkdir()
    tree = {"defaults": ["ppo_trainer", "_self_"], **nest_settings(settings)}
    (folder / "conf" / "run.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))
    (folder / "run.sh").write_text(f'{START} --config-path="$PWD/conf" --config-name=run\n')
    return folder / "conf" / "run.yaml"


def build_question(file: Path) -> dict[str, Any]:
    """Return the composition of a run as a question to the judge."""
    text = file.read_text()
    if file.suffix == ".yaml":
        return {"name": "run", "words": [], "files": {"run.yaml": text}}
    return {"name": "ppo_trainer", "words": shlex.split(text.replace("\\\n", " "))[3:]}


@pytest.mark.oracle
@pytest.mark.parametrize("form", ["words", "yaml"])
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, MICRO),
        ({MICRO: 1, RESPONSE: 512, "gpu": "A6000"}, SLEEP),
        ({MICRO: 1, CHECKPOINTING: False}, CHECKPOINTING),
        ({MICRO: 1, RESPONSE: 512, STRATEGY: "fsdp2", "trainer.n_gpus_per_node": 2}, POLICY),
        ({MICRO: 1, RESPONSE: 512, STRATEGY: "fsdp2", "trainer.n_gpus_per_node": 2, SLEEP: True}, POLICY),
    ],
)
def test_verl_accepts_and_reads_what_fit_writes(
    form: str, changes: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    gpu = changes.get("gpu", "A100-80GB")
    file = write_run(tmp_path, form, {**SETTINGS, **{name: changes[name] for name in changes if "." in name}})
    options = api.Options(isolated=True, gpu=gpu, host_memory="2TB", releases={"verl": "0.9.1"})
    before = build_question(file)
    (run,) = api.fit(str(tmp_path), options).runs
    assert run.solution is not None
    words = ("--isolated", "--gpu", gpu, "--host-memory", "2TB", "--release", "verl=0.9.1")
    run_cfglint("fit", *words, "--write", str(tmp_path), cwd=tmp_path)
    (fitted,) = api.fit(str(tmp_path), options).runs
    assert fitted.expected == run.solution.expected
    old, new = oracle.judge_questions("verl_config.py", [before, build_question(file)], recorded=False)
    assert old["accepted"], old["why"]
    assert new["accepted"], new["why"]
    changed = {name for name in {*old["values"], *new["values"]} if old["values"].get(name) != new["values"].get(name)}
    assert changed == {expected}
