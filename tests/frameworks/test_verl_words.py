"""Hydra and verl's own validation as judges of commands: cfglint refuses what they refuse, and reads what they read.

The answers for the newest release are recorded (`tests/support/oracle.py`).
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cfglint_train.documents.shell.composed import find_config_name
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.frameworks.lens_types import StatedValue
from cfglint_train.frameworks.verl.options import find_late_override, find_unknown_options
from cfglint_train.frameworks.verl.settings import look_up
from tests.support import oracle
from tests.support.linting import build_options, change_directory, lint
from tests.support.releases import fetch_source

SETS = 1000
OLDER = ("0.3.0.post1", "0.4.1", "0.5.0", "0.6.1", "0.8.0")
FILES = 25
"""Number of scripts in a folder."""

A, R, F, M = (f"actor_rollout_ref.{name}." for name in ("actor", "rollout", "ref", "model"))
BASE: Mapping[str, object] = {
    f"{R}name": "vllm",
    f"{A}ppo_micro_batch_size_per_gpu": 4,
    f"{R}log_prob_micro_batch_size_per_gpu": 4,
    f"{F}log_prob_micro_batch_size_per_gpu": 4,
    "critic.ppo_micro_batch_size_per_gpu": 4,
    "data.train_batch_size": 256,
}
"""Settings that nearly every command has."""
CHOICES: Mapping[str, tuple[object, ...]] = {
    "data.train_batch_size": (64, 96, 100, 128, 256, 512, 1000, 1024),
    "data.max_prompt_length": (512, 1024),
    "data.max_response_length": (1024, 2048),
    "data.filter_overlong_prompts": ("True",),
    "data.truncation": ("error", "left"),
    "data.stranger": ("x",),
    f"{A}ppo_mini_batch_size": (16, 32, 48, 64, 128, 256, 512, 2048),
    f"{A}ppo_micro_batch_size_per_gpu": (1, 2, 4, 8, "null"),
    f"{A}ppo_micro_batch_size": ("null", 8, 16, 32),
    f"{A}use_dynamic_bsz": ("true", "false"),
    f"{A}ppo_max_token_len_per_gpu": (4096, 16384, 24000),
    f"{A}ulysses_sequence_parallel_size": (1, 2, 4),
    f"{A}use_kl_loss": ("true", "false"),
    f"{A}loss_agg_mode": ("token-mean", "seq-mean-token-sum", "sequence-mean"),
    f"{A}strategy": ("fsdp",),
    f"{A}fsdp_config.param_offload": ("true", "false"),
    f"{A}fsdp_config.optimizer_offload": ("True", "False"),
    f"{A}checkpoint.contents": ("[model]",),
    f"{A}checkpoint.save_contents": ("['model','optimizer','extra']",),
    f"{A}clip_ratio_high": (0.28,),
    f"{A}optim.lr": ("1e-6", 3e-7),
    f"{A}entropy_coeff": (0, 0.001),
    f"{A}ppo_epochs": (1, 2),
    f"{A}grad_clip": (1.0,),
    f"{A}stranger": (1,),
    f"{R}log_prob_micro_batch_size_per_gpu": (1, 4, 8, "null"),
    f"{R}log_prob_micro_batch_size": ("null", 16, 32),
    f"{R}n": (1, 4, 5, 8),
    f"{R}tensor_model_parallel_size": (1, 2, 4),
    f"{R}mode": ("async", "sync"),
    f"{R}name": ("vllm", "sglang"),
    f"{R}gpu_memory_utilization": (0.4, 0.6, 0.9),
    f"{R}val_kwargs.do_sample": ("true", "false"),
    f"{R}temperature": (1.0, 0.7),
    f"{R}free_cache_engine": ("true", "false"),
    f"{R}max_num_seqs": (128, 256),
    f"{R}enable_chunked_prefill": ("true", "false"),
    f"{R}max_num_batched_tokens": (8192, 16384),
    f"{R}stranger": (2,),
    f"{F}log_prob_micro_batch_size_per_gpu": (1, 4, "null"),
    f"{F}log_prob_micro_batch_size": ("null", 16),
    f"{M}use_remove_padding": ("true", "false"),
    f"{M}lora_rank": (0, 32, 64),
    f"{M}override_config.attn_implementation": ("flash_attention_2",),
    f"{M}enable_gradient_checkpointing": ("True",),
    f"{M}stranger": (1,),
    "critic.ppo_micro_batch_size_per_gpu": (1, 4, "null"),
    "critic.ppo_micro_batch_size": ("null", 8, 16),
    "critic.ppo_mini_batch_size": (64, 256, 2048),
    "critic.use_dynamic_bsz": ("true", "false"),
    "critic.model.fsdp_config.param_offload": ("true",),
    "critic.fsdp.param_offload": ("true",),
    "critic.stranger": (1,),
    "algorithm.adv_estimator": ("gae", "grpo", "rloo", "reinforce_plus_plus"),
    "algorithm.use_kl_in_reward": ("true", "false"),
    "algorithm.kl_ctrl.kl_coef": (0.001,),
    "trainer.nnodes": (1, 2, 3),
    "trainer.n_gpus_per_node": (4, 8),
    "trainer.save_freq": (-1, 20),
    "trainer.val_before_train": ("True", "False"),
    "trainer.total_epochs": (3, 15),
    "trainer.logger": ("['console','wandb']", "console"),
    "trainer.log_val_generations": (10,),
    "trainer.val_generations_to_log_to_wandb": (10,),
    "trainer.critic_warmup": (0,),
    "trainer.stranger": (1,),
    "custom_reward_function.path": ("r.py",),
    "reward.custom_reward_function.path": ("r.py",),
}
DELETED = (
    f"{R}max_num_seqs",
    f"{R}stranger",
    f"{A}ppo_micro_batch_size",
    "critic.fsdp.param_offload",
    "data.filter_overlong_prompts",
    "trainer.save_freq",
    "trainer.stranger",
    "trainer.val_generations_to_log_to_wandb",
)
"""Settings to delete: absent ones, and those that neither the validation nor an interpolation reads."""
OPTIONS = (
    "a.b=1", "b=2", "c=3", "--config-name run", "--config-name=run", "-cn run", "--config-nam run", "--multirun", "-m",
    "--mult", "-r", "--config-nme run", "--config-pth=conf", "--conf=run", "--package actor", "-x", "-xy", "--stranger",
    "-- d=4", "-p x", "-px", "-cjob", "--config_name=run", "--run",
)  # fmt: skip
"""Options of Hydra, abbreviations and misspellings among overrides."""
CHOSEN = (
    *(("main_ppo", "ppo_trainer", f"{group}@{place}={file}")
      for group, place in (("actor", A[:-1]), ("ref", F[:-1]), ("model", M[:-1]), ("model", "critic.model"))
      for file in ("dp_actor", "dp_ref", "hf_model", "dp_actr", "stranger")),
    *(("main_ppo", "ppo_trainer", f"model_engine={file}") for file in ("dp", "megatron", "veomni", "megatrn")),
    *(("main_ppo", "ppo_trainer", f"{sign}{word}")
      for sign in ("+", "++")
      for word in ("model_engine=dp", f"actor@{A[:-1]}=dp_actor")),
    ("main_ppo", "ppo_trainer", "+actor@actor_rollout_ref.other=dp_actor"),
    ("sft_trainer", "sft_trainer_engine", "+optim=megatron"),
    *(("sft_trainer", "sft_trainer_engine", f"{group}={file}")
      for group in ("engine", "optim", "model")
      for file in ("fsdp", "megatron", "automodel", "hf_model", "fsdp2")),
)  # fmt: skip
"""Programs, the trees that they compose, and words that choose a file of a group."""
REFUSALS = re.compile("Could not find|Multiple values|more than once|force-add of config groups")
"""Reasons for which Hydra refuses words that choose a file."""
LATER = ("does not divide", "data-parallel ranks", "rank's share", "sequence", "sample", "engine", "GPUs")
"""Words of messages about what stops a run after the validation, which the judge does not see."""


def build_sets(release: str, count: int) -> list[list[str]]:
    """Return lists of words as people write them: most settings exist, some are of another release or made up."""
    dice, names, sets = random.Random(f"words {release}"), list(CHOICES), []
    for _ in range(count):
        words = [f"{name}={value}" for name, value in BASE.items() if dice.random() > 0.06]
        for name in dice.sample(names, dice.randint(1, 6)):
            sign = dice.choice((*[""] * 12, "+", "+", "++"))
            if name.endswith(("stranger", "attn_implementation")) and dice.random() < 0.8:
                sign = dice.choice(("+", "++"))
            words.append(f"{sign}{name}={dice.choice(CHOICES[name])}")
        if dice.random() < 0.06:
            words.append("~" + dice.choice(DELETED))
        if dice.random() < 0.15:
            words += _delete_in_order(dice)
        sets.append(words)
    return sets


def _delete_in_order(dice: random.Random) -> list[str]:
    """Return words that set a setting, delete it, and often set it again: Hydra applies them in order."""
    name = dice.choice([name for name in DELETED if name in CHOICES])
    first = dice.choice(("+", "++")) if name.endswith("stranger") else dice.choice(("", "++"))
    words = [f"{first}{name}={dice.choice(CHOICES[name])}", f"~{name}"]
    if dice.random() < 0.6:
        words.append(f"{dice.choice(('', '+', '++'))}{name}={dice.choice(CHOICES[name])}")
    return words


def lint_commands(folder: Path, release: str, sets: list[list[str]]) -> Iterator[tuple[list[str], Any]]:
    """Yield the messages of errors and the configuration of each command, in order."""
    for start in range(0, len(sets), FILES):
        place = folder / str(start)
        (place / ".git").mkdir(parents=True)
        (place / "requirements.txt").write_text(f"verl=={release}\n", encoding="utf-8")
        part = sets[start : start + FILES]
        for number, words in enumerate(part):
            command = " ".join(map(shlex.quote, words))
            (place / f"{number:02}.sh").write_text(f"python3 -m verl.trainer.main_ppo {command}\n", encoding="utf-8")
        with change_directory(place):
            result = lint(place, build_options(select=["KEY", "BAT"]))
        assert result.troubles == ()
        errors: dict[str, list[str]] = {}
        for finding in result.findings:
            if finding.severity == "error":
                errors.setdefault(finding.path, []).append(finding.message)
        configs = {run.main.document.path: run.main for run in result.runs}
        for number in range(len(part)):
            name = f"{number:02}.sh"
            yield errors.get(name, []), configs[name]


def check_sets(folder: Path, release: str, sets: list[list[str]], answers: list[dict[str, Any]]) -> None:
    disagreements = []
    values = accepted = 0
    for words, answer, (errors, config) in zip(sets, answers, lint_commands(folder, release, sets), strict=True):
        early = [message for message in errors if not any(word in message for word in LATER)]
        if answer["accepted"] == bool(early) and (answer["accepted"] or not errors):
            disagreements.append((words, answer["why"], errors))
        if not answer["accepted"]:
            continue
        accepted += 1
        for name, expected in answer["values"].items():
            result = look_up(config, tuple(name.split(".")))
            if isinstance(result, StatedValue):
                values += 1
                if result.value != expected:
                    disagreements.append((words, f"{name}={expected!r}", [repr(result.value)]))
    assert not disagreements, f"{len(disagreements)} of {len(sets)}: {disagreements[:5]}"
    assert len(sets) // 10 < accepted < len(sets) * 9 // 10
    assert values > 5 * accepted


@pytest.mark.slow
@pytest.mark.recorded
def test_commands_are_refused_and_read_as_hydra_and_verl_do(tmp_path: Path) -> None:
    release = oracle.read_releases()["verl"]
    sets = build_sets(release, SETS)
    questions = [{"name": "ppo_trainer", "words": words} for words in sets]
    check_sets(tmp_path, release, sets, oracle.judge_questions("verl_config.py", questions))


@pytest.mark.oracle
@pytest.mark.parametrize("release", OLDER)
def test_commands_of_older_releases_are_too(release: str, tmp_path: Path) -> None:
    oracle.require_module("hydra")
    sets = build_sets(release, SETS // 10)
    command = [sys.executable, str(oracle.ORACLES / "verl_config.py"), str(fetch_source("verl", release, "verl"))]
    lines = "".join(json.dumps({"name": "ppo_trainer", "words": words}) + "\n" for words in sets)
    process = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr[-2000:]
    check_sets(tmp_path, release, sets, [json.loads(line) for line in process.stdout.splitlines()])


@pytest.mark.oracle
def test_options_are_refused_as_the_parser_of_hydra_refuses_them() -> None:
    oracle.require_module("hydra")
    from hydra._internal.utils import get_args_parser

    dice, verdicts = random.Random("options"), []
    for _ in range(2000):
        words = [word for text in dice.choices(OPTIONS, k=dice.randint(1, 5)) for word in text.split()]
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors), contextlib.suppress(SystemExit):
            options = get_args_parser().parse_args(words)
        script = ShellDocument("run.sh", f"python3 -m verl.trainer.main_ppo {' '.join(words)}\n".encode())
        invocation = script.invocations[-1]
        is_refused = bool([*find_unknown_options(invocation)]) or find_late_override(invocation) is not None
        assert is_refused is bool(errors.getvalue()), (words, errors.getvalue())
        name = find_config_name(invocation)
        assert is_refused or (name and name.text) == options.config_name, words
        verdicts.append(is_refused)
    assert 0.2 < sum(verdicts) / len(verdicts) < 0.9


@pytest.mark.oracle
@pytest.mark.parametrize("release", ["0.4.1", "0.7.1", "0.9.0"])
def test_files_of_groups_are_missing_where_hydra_does_not_find_them(release: str, tmp_path: Path) -> None:
    oracle.require_module("hydra")
    import hydra

    configs = fetch_source("verl", release, "verl") / "verl" / "trainer" / "config"
    (tmp_path / ".git").mkdir()
    (tmp_path / "requirements.txt").write_text(f"verl=={release}\n", encoding="utf-8")
    missing = set()
    for number, (program, tree, word) in enumerate(CHOSEN):
        if not (configs / f"{tree}.yaml").is_file():
            continue
        text = f"python3 -m verl.trainer.{program} {word} data.train_batch_size=256\n"
        (tmp_path / f"{number}.sh").write_text(text, encoding="utf-8")
        with hydra.initialize_config_dir(str(configs), version_base=None):
            try:
                hydra.compose(tree, [word])
            except hydra.errors.HydraException as problem:
                if REFUSALS.search(str(problem)) or word.startswith("model_engine="):
                    missing.add(f"{number}.sh")
    with change_directory(tmp_path):
        result = lint(tmp_path, build_options(select=["KEY002", "KEY004", "KEY006"]))
    errors = [finding for finding in result.findings if finding.severity == "error"]
    assert {item.path for item in errors if re.search("config group|`model_engine`", item.message)} == missing
    assert missing
