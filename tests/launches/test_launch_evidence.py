"""Evidence in a launch script about the run that it starts: the model behind a variable, and the releases."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cfglint_train.runs.run import Run
from tests.support.configs import AXOLOTL
from tests.support.linting import lint, list_runs

SFT = """\
from trl import ModelConfig, ScriptArguments, SFTConfig, SFTTrainer, TrlParser

script_args, training_args, model_args = TrlParser((ScriptArguments, SFTConfig, ModelConfig)).parse_args_and_config()
SFTTrainer(model=model_args.model_name_or_path, args=training_args, train_dataset=script_args.dataset_name).train()
"""
SCRIPT = """\
import argparse
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--model")
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained(args.model)
Trainer(model=model, args=TrainingArguments("out", per_device_train_batch_size=1), train_dataset=data).train()
"""
OWN_ARGUMENTS = "@dataclass\nclass ScriptArguments:\n    dataset_name: str\n    max_seq_length: int = 1\n"
LLAMAFACTORY = "stage: sft\nfinetuning_type: lora\ntemplate: qwen\nmodel_name_or_path: gpt2\ndataset: a\n"


def read_run(root: Path, files: dict[str, str]) -> Run:
    (root / ".git").mkdir()
    for name, text in files.items():
        (root / name).write_text(text)
    [run] = list_runs(root)
    return run


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("axolotl train run.yaml --base-model {}", {"run.yaml": AXOLOTL}),
        ("axolotl train run.yaml --base-model={}", {"run.yaml": AXOLOTL}),
        ("llamafactory-cli train run.yaml model_name_or_path={}", {"run.yaml": LLAMAFACTORY}),
        ("llamafactory-cli train --stage sft --model_name_or_path {} --dataset a --template qwen", {}),
        ("deepspeed --module openrlhf.cli.train_sft --pretrain {} --dataset a --max_len 2048", {}),
        ("python sft.py --model_name_or_path {} --dataset_name a --output_dir out", {"sft.py": SFT}),
        ("python train.py --model {}", {"train.py": SCRIPT}),
    ],
)
@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("$MODELS/Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B"),
        ('"${MODELS}"/Qwen2.5-7B', "Qwen/Qwen2.5-7B"),
        ("$MODEL", None),
        ("$RUNS/first/checkpoint-400", None),
        ("Qwen/$MODEL", None),
    ],
)
def test_a_path_in_an_unknown_folder_names_the_model(
    tmp_path: Path, command: str, files: dict[str, str], path: str, model: str | None
) -> None:
    run = read_run(tmp_path, {"run.sh": f"{command.format(path)}\n", **files})
    model_config = run.architecture
    assert (model_config and model_config.id) == model
    assert bool(model_config and model_config.folder) == (model is not None)  # assumed, as a note says


@pytest.mark.parametrize(
    ("pragma", "release"),
    [
        ("# cfglint: trl=0.16.1", ("0.16.1", "user")),
        ("# cfglint: gpu=H100", ("0.19.1", "inferred")),
        ("# cfglint: trl=1.0.0", ("1.0.0", "user")),
    ],
)
def test_the_launch_script_states_or_shows_the_release(tmp_path: Path, pragma: str, release: tuple[str, str]) -> None:
    command = "python sft.py --model_name_or_path Qwen/Qwen2.5-7B --dataset_name a --max_seq_length 512"
    run = read_run(tmp_path, {"run.sh": f"{pragma}\n{command}\n", "sft.py": SFT})
    found = run.main.releases.by_package["trl"]
    assert (found.version, found.origin.kind) == release


def test_launch_scripts_that_differ_state_no_release(tmp_path: Path) -> None:
    command = "python sft.py --model_name_or_path Qwen/Qwen2.5-7B --dataset_name a"
    scripts = {
        f"{name}.sh": f"# cfglint: trl={release}\n{command}\n" for name, release in (("a", "0.16.1"), ("b", "1.0.0"))
    }
    run = read_run(tmp_path, {**scripts, "sft.py": SFT})
    assert run.main.releases.by_package["trl"].origin.kind == "assumed"


@pytest.mark.parametrize(
    ("option", "source"),
    [
        ("--max_seq_length $LENGTH", SFT),
        ("--max_length 512", SFT),
        (
            "--max_seq_length 512",
            "from dataclasses import dataclass\n"
            + SFT.replace(
                "\n\n",
                "\n\n@dataclass\nclass ScriptArguments:\n    dataset_name: str\n    max_seq_length: int = 1\n",
                1,
            ),
        ),
    ],
    ids=["of unknown value", "of all releases", "of the script"],
)
def test_options_that_show_no_release(tmp_path: Path, option: str, source: str) -> None:
    command = f"python sft.py --model_name_or_path Qwen/Qwen2.5-7B --dataset_name a {option}"
    run = read_run(tmp_path, {"run.sh": f"{command}\n", "sft.py": source})
    assert run.main.releases.by_package["trl"].origin.kind == "assumed"


def test_a_fresh_installation_refuses_the_launch(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "sft.py").write_text(SFT)
    (tmp_path / "run.sh").write_text("python sft.py --model_name_or_path gpt2 --dataset_name a --max_seq_length 512\n")
    [finding] = [finding for finding in lint(tmp_path).findings if finding.code == "REL002"]
    assert (finding.path, finding.severity) == ("run.sh", "warning")
    assert "refuses this launch (`max_seq_length` was removed in 0.20.0)" in finding.message


def test_one_finding_names_the_keys_that_the_framework_and_transformers_refuse(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "sft.py").write_text(SFT)
    options = "--max_seq_length 512 --evaluation_strategy steps --eval_steps 5"
    (tmp_path / "run.sh").write_text(f"python sft.py --model_name_or_path gpt2 --dataset_name a {options}\n")
    [finding] = [finding for finding in lint(tmp_path).findings if finding.code == "REL002"]
    assert re.match(r"TRL \S+ with transformers \S+ refuses this launch \(`max_seq_length` was", finding.message)
    assert [related.message.partition(" was")[0] for related in finding.related] == ["`evaluation_strategy`"]


@pytest.mark.parametrize(
    "command", ["python -m src.train", "torchrun --nproc_per_node 2 -m src.train", "python src/train.py"]
)
def test_a_script_that_is_started_as_a_module_receives_its_options(tmp_path: Path, command: str) -> None:
    (tmp_path / "src").mkdir()
    run = read_run(tmp_path, {"run.sh": f"{command} --model Qwen/Qwen2.5-7B\n", "src/train.py": SCRIPT})
    assert run.architecture is not None
