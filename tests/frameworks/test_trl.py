"""TRL recipes: recognition, the trainer that they are for, and the plans that their settings produce."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.trl.settings import find_trainer
from tests.support import laws
from tests.support.corpus import REPOSITORY
from tests.support.laws import build_config, parse_document
from tests.support.linting import build_options, lint, list_runs

SFT = """\
model_name_or_path: Qwen/Qwen2.5-0.5B
dataset_name: trl-lib/Capybara
packing: true
per_device_train_batch_size: 2
learning_rate: 2e-5
output_dir: out
"""
GRPO = """\
model_name_or_path: Qwen/Qwen2.5-0.5B
dataset_name: trl-lib/tldr
scale_rewards: group
per_device_train_batch_size: 8
output_dir: out
"""


def read_values(text: str, release: str = "1.16.0") -> dict[str, Any]:
    return {field: value.value for field, value in laws.read_plan(build_config("trl", text, trl=release))}


@pytest.mark.parametrize(
    "text",
    [
        "model_name_or_path: gpt2\ndataset_name: wikitext\nper_device_train_batch_size: 8\n",
        "model_name_or_path: gpt2\ndataset_name: glue\ntask_name: mrpc\nmax_length: 128\npacking: true\n",
        "model_name_or_path: x\nstage: sft\ntemplate: qwen\ndataset: a\npacking: true\nlora_alpha: 2\noutput_dir: x\n",
        "base_model: x\ndataset_name: a\npacking: true\nlora_r: 8\noutput_dir: x\n",
        "dataset_name: x\nlora_r: 8\nuse_peft: true\nlearning_rate: 1\n",
        "model_name_or_path: x\nlora_r: 8\nuse_peft: true\noutput_dir: x\n" + "".join(f"own{i}: 1\n" for i in range(9)),
    ],
)
def test_files_of_others_are_left_alone(text):
    assert frameworks.recognise("trl", parse_document(text, "yaml")) == []


@pytest.mark.parametrize("text", [SFT, GRPO])
def test_recipes_are_known(text):
    assert len(frameworks.recognise("trl", parse_document(text, "yaml"))) == 1


@pytest.mark.parametrize(
    ("text", "path", "trainer"),
    [
        (SFT, "x.yaml", "sft"),
        (GRPO, "x.yaml", "grpo"),
        ("model_name_or_path: x\nuse_peft: true\n", "recipes/dpo/config_full.yaml", "dpo"),
        ("model_name_or_path: x\nuse_peft: true\n", "grpo_demo.yaml", "grpo"),
        ("model_name_or_path: x\nuse_peft: true\n", "config.yaml", None),
        (SFT + "desirable_weight: 1.0\n", "x.yaml", None),
    ],
)
def test_the_trainer_by_keys_or_names(text, path, trainer):
    assert find_trainer(build_config("trl", text, path=path)) == trainer


@pytest.mark.parametrize("command", ["trl dpo --config r.yaml", "python trl/scripts/dpo.py --config r.yaml",
                                     "accelerate launch my/run_dpo.py --config r.yaml"])  # fmt: skip
def test_the_trainer_by_the_launch(tmp_path, command):
    (tmp_path / ".git").mkdir()
    (tmp_path / "r.yaml").write_text(SFT.replace("packing", "use_peft"))
    (tmp_path / "run.sh").write_text(f"{command}\n")
    (run,) = list_runs(tmp_path)
    assert run.plan.method.stage == "dpo"


@pytest.mark.parametrize(
    ("text", "release", "field", "value"),
    [
        (SFT, "1.16.0", "sequence.length", 1024),
        (SFT + "max_seq_length: 2048\n", "0.19.1", "sequence.length", 2048),
        (SFT, "0.12.2", "sequence.length", 1024),
        (SFT + "max_seq_length: 2048\nmax_length: 512\n", "0.19.1", "sequence.length", 2048),
        (SFT + "max_seq_length: 2048\nmax_length: 512\n", "0.12.2", "sequence.length", 2048),
        (SFT + "max_seq_length: 2048\nmax_length: 512\n", "0.24.0", "sequence.length", 512),
        (SFT + "max_seq_length: null\n", "0.12.2", "sequence.length", 1024),
        (SFT + "max_length: null\n", "0.24.0", "sequence.length", None),
        (SFT.replace("packing", "reference_free"), "0.12.2", "sequence.length", 512),
        (SFT, "1.16.0", "optimizer.learning_rate", 2e-5),
        (SFT.replace("learning_rate: 2e-5\n", ""), "1.16.0", "optimizer.learning_rate", 2e-5),
        (SFT.replace("learning_rate: 2e-5\n", ""), "0.9.2", "optimizer.learning_rate", 5e-5),
        (SFT, "0.24.0", "activations.checkpointing", "full"),
        (SFT, "0.19.1", "activations.checkpointing", "none"),
        (SFT, "0.24.0", "precision.compute", "bf16"),
        (SFT, "0.18.2", "precision.autocast", False),
        (SFT + "use_peft: 'yes'\nlora_r: '32'\n", "1.16.0", "method.lora_rank", 32),
        (SFT + "load_in_4bit: true\n", "1.16.0", "method.quantization", "nf4"),
        (GRPO, "0.18.2", "rollout.kl_coefficient", 0.04),
        (GRPO, "1.16.0", "rollout.kl_coefficient", 0.0),
        (GRPO, "1.9.0", "rollout.new_tokens", 256),
        (GRPO, "1.16.0", "rollout.new_tokens", 512),
        (GRPO + "use_vllm: true\n", "1.16.0", "rollout.mode", "colocate"),
        (GRPO + "use_vllm: true\n", "0.24.0", "rollout.mode", "server"),
        (GRPO + "use_vllm: true\n", "0.16.1", "rollout.mode", "server"),
        (GRPO, "1.16.0", "rollout.gathers", True),
        (GRPO + "ds3_gather_for_generation: false\n", "1.16.0", "rollout.gathers", False),
    ],
)
def test_defaults_are_those_of_the_release_and_the_trainer(text, release, field, value):
    assert read_values(text, release).get(field) == value


@pytest.mark.parametrize(
    ("release", "command", "level"),
    [
        ("0.12.2", "trl sft", "error"),
        ("0.16.1", "trl sft", "warning"),
        ("0.18.2", "trl sft", "error"),
        ("1.16.0", "trl sft", "error"),
        ("1.16.0", "python trl/scripts/sft.py", "warning"),
        ("0.24.0", "trl dpo", "warning"),
        ("0.20.0", "trl dpo", "error"),
        ("0.20.0", "python trl/scripts/dpo.py", "error"),
        ("1.0.0", "trl dpo", "error"),
    ],
)
def test_an_unknown_key_is_refused_or_dropped(tmp_path, release, command, level):
    (tmp_path / ".git").mkdir()
    (tmp_path / "r.yaml").write_text(f"# cfglint: trl={release}\n{SFT.replace('packing', 'use_peft')}lora_rnk: 8\n")
    (tmp_path / "run.sh").write_text(f"{command} --config r.yaml\n")
    findings = lint(tmp_path, build_options(select=["KEY001"])).findings
    assert [finding.severity for finding in findings] == [level]


@pytest.mark.parametrize(("text", "release", "key"), [
    (SFT, "0.12.2", "max_seq_length"),
    (SFT, "1.16.0", "max_length"),
    (GRPO, "0.24.0", "max_prompt_length + max_completion_length"),
    (GRPO, "1.16.0", "max_completion_length"),
])  # fmt: skip
def test_advice_names_the_limits_that_the_release_has(tmp_path, text, release, key):
    (tmp_path / "r.yaml").write_text(f"# cfglint: trl={release}\n{text}")
    (run,) = list_runs(tmp_path)
    assert run.spell_key("sequence.length") == key


@pytest.mark.parametrize("release", ["0.9.6", "0.12.2", "0.16.1"])
@pytest.mark.parametrize(("command", "found"), [
    ("python scripts/run_sft.py r.yaml", []),  # alignment-handbook's script, which declares its own settings
    ("accelerate launch src/open_r1/sft.py --config r.yaml", []),
    ("trl sft --config r.yaml", ["dataset_splits", "preprocessing_num_workers", "reward_funcs", "system_prompt"]),
])  # fmt: skip
def test_keys_of_another_script_are_its_own(tmp_path, release, command, found):
    (tmp_path / ".git").mkdir()
    script_keys = (
        "dataset_splits: [train]\npreprocessing_num_workers: 12\nreward_funcs: [format]\nsystem_prompt: Think.\n"
    )
    (tmp_path / "r.yaml").write_text(f"# cfglint: trl={release}\n{SFT}{script_keys}")
    (tmp_path / "run.sh").write_text(f"{command}\n")
    places = [place.place for place in lint(tmp_path, build_options(select=["KEY001", "KEY002"])).findings]
    assert [place.document.get_text(place.span).partition(":")[0] for place in places] == found


@pytest.mark.parametrize(("recipe", "words", "ranks"), [
    ("", "--accelerate_config zero3", 8),
    ("", "--accelerate_config zero3 --num_processes 2", 2),
    ("accelerate_config: zero3\nnum_processes: 4\n", "", 4),
    ("num_processes: 4\n", "", 4),
])  # fmt: skip
def test_the_launchers_file_and_its_processes(tmp_path, recipe, words, ranks):
    (tmp_path / ".git").mkdir()
    (tmp_path / "r.yaml").write_text(f"# cfglint: trl=1.16.0\n{SFT}{recipe}")
    (tmp_path / "run.sh").write_text(
        f"trl sft {words} --config r.yaml --learning_rate 1e-4 --no_gradient_checkpointing\n"
    )
    (run,) = list_runs(tmp_path)
    assert run.plan.world_size == ranks
    assert (run.plan.parallel.zero_stage == 3) == ("zero3" in recipe + words)
    assert run.plan.optimizer.learning_rate == 1e-4
    assert run.plan.activations.checkpointing == "none"


def test_options_alone_are_a_run(tmp_path):
    (tmp_path / "run.sh").write_text(
        "trl sft --model_name_or_path Qwen/Qwen2.5-0.5B --dataset_name d --packing --learning_rate 1e-4 "
        "--max-length 2048 --lora_target_modules q_proj v_proj --use_peft --output_dir out\n"
    )
    (run,) = list_runs(tmp_path)
    plan = run.plan
    assert (plan.sequence.length, plan.sequence.packing, plan.optimizer.learning_rate) == (2048, True, 1e-4)
    assert plan.method.lora_targets == ("q_proj", "v_proj")


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        (GRPO, "none"),
        (GRPO + "beta: 0.04\n", "full"),
        (GRPO + "beta: 0.04\nuse_peft: true\n", "adapter-off"),
    ],
)
def test_the_reference_model_follows_beta(tmp_path, text, reference):
    (tmp_path / "r.yaml").write_text(f"# cfglint: trl=1.16.0 nodes=1 gpus-per-node=8\n{text}")
    (run,) = list_runs(tmp_path)
    assert run.plan.method.reference_model == reference


@pytest.fixture(scope="module")
def fixtures():
    return [run for run in list_runs(REPOSITORY / "fixtures" / "trl") if run.main.framework == "trl"]


def test_writing_what_is_read_changes_nothing(fixtures):
    assert len(fixtures) == 6
    for run in fixtures:
        assert laws.check_get_put(run.main) > 10


@pytest.mark.parametrize(
    "changes",
    [
        {"batch.micro": 4},
        {"batch.accumulation": 2},
        {"sequence.length": 512},
        {"activations.checkpointing": "none"},
        {"activations.offload": "cpu"},
        {"optimizer.name": "adamw", "optimizer.implementation": "bitsandbytes", "optimizer.paged": True,
         "optimizer.state_bits": 8},
        {"checkpoint.model_only": True},
        {"method.lora_rank": 64},
    ],
)  # fmt: skip
def test_what_is_written_is_read(fixtures, changes):
    """Give a reason for everything that cannot be written."""
    assert [run for run in fixtures if laws.check_put_get(run.main, changes) is not None]


@pytest.mark.parametrize(
    ("written", "targets", "pattern"),
    [
        ("[q_proj, v_proj]", ("q_proj", "v_proj"), None),
        ("all-linear", ("all-linear",), None),
        ("[ALL-LINEAR]", ("all-linear",), None),
        ("lm_head", (), "lm_head"),
        ("'.*_proj'", (), ".*_proj"),
        ("['.*_proj']", (), ".*_proj"),
        ("[q_proj]", (), "q_proj"),
        ("q_proj,v_proj", (), "q_proj,v_proj"),
    ],
)
def test_targets_of_an_adapter_as_peft_gets_them(written, targets, pattern):
    """Read a string as a pattern over whole paths, as PEFT does; `ModelConfig` unwraps a list of one item."""
    config = build_config("trl", SFT + f"use_peft: true\nlora_target_modules: {written}\n", trl="1.16.0")
    reading = laws.read_plan(config)
    assert (reading.get("method.lora_targets"), reading.get("method.lora_target_pattern")) == (targets, pattern)


@pytest.mark.parametrize("given", ["--config r.yaml", "--model_name_or_path Qwen/Qwen2.5-7B --dataset_name x/y"])
@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("orpo", "no release of `trl` has the command `orpo`; start TRL's `examples/scripts/orpo.py`"),
        ("cpo", "no release of `trl` has the command `cpo`; start TRL's `examples/scripts/cpo.py`"),
        ("distillation", "no rule covers `trl distillation`"),
        ("chat", None),
        ("vllm-serve", None),
    ],
)
def test_commands_that_are_not_read_are_named(tmp_path, command, why, given):
    """Cover the commands of trl 0.9.2 to 1.16.0; ORPO and CPO have only scripts."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "run.sh").write_text(f"trl {command} {given} --learning_rate 1e-6 --beta 0.1 --output_dir out\n")
    messages = [finding.message for finding in lint(tmp_path, build_options(("CHK005", "MEM", "CHK001"))).findings]
    assert messages == ([] if why is None else [f"run not checked: {why}"])


@pytest.mark.parametrize(
    ("losses", "release", "refused"),
    [
        ("[sigmoid, sft]", "1.16.0", None),
        ("[sigmoid, bogus]", "1.16.0", '"bogus"'),
        ("[sigmoid, aot_pair]", "0.27.2", None),
        ("[sigmoid, aot_pair]", "1.16.0", '"aot_pair"'),
        ("bogus", "1.16.0", '"bogus"'),
        ("[sigmoid]", "0.19.1", "a list"),
    ],
)
def test_every_loss_of_a_list_is_checked(tmp_path: Path, losses: str, release: str, refused: str | None) -> None:
    (tmp_path / "dpo.yaml").write_text(f"model_name_or_path: a\ndataset_name: b\nbeta: 0.1\nloss_type: {losses}\n")
    (tmp_path / "requirements.txt").write_text(f"trl=={release}\n")
    options = build_options(select=["KEY004"])
    assert not lint(tmp_path, options).findings  # a script of the user may know more losses
    (tmp_path / "run.sh").write_text("trl dpo --config dpo.yaml\n")
    messages = [finding.message for finding in lint(tmp_path, options).findings]
    assert [f"not {refused}: it is refused" in message for message in messages] == ([True] if refused else [])
