"""`cfglint estimate` and `cfglint fit` on files without an estimate: exit code 2 and one reason on standard error."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import pytest

from tests.support.command import run_cfglint

TEXT = """\
base_model: Qwen/Qwen2.5-0.5B
datasets: [{path: data/train.jsonl, type: alpaca}]
learning_rate: 0.0002
micro_batch_size: 2
gradient_accumulation_steps: 4
"""
SCRIPT = """\
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

args = SFTConfig(output_dir="out", max_length=1024, per_device_train_batch_size=2)
SFTTrainer(model="Qwen/Qwen2.5-0.5B", train_dataset=load_dataset("a")["train"], args=args).train()
"""
DEEPSPEED = '{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 1}\n'
BADAM = """\
model_name_or_path: Qwen/Qwen2.5-0.5B
stage: sft
do_train: true
finetuning_type: full
use_badam: true
badam_mode: ratio
dataset: alpaca_en_demo
template: qwen
cutoff_len: 1024
"""
"""A run of which only the load phase is estimated: no optimizer is known."""
FILES = {
    "good.yaml": TEXT,
    "model.yaml": TEXT.replace("Qwen/Qwen2.5-0.5B", "acme/secret-9b"),
    "length.yaml": TEXT + "sequence_len: ${LENGTH}\n",
    "method.yaml": BADAM,
    "ds.json": DEEPSPEED,
    "other.yaml": "cars: 3\n",
}
REASONS = {
    "model.yaml": "error: model.yaml: not estimated: `acme/secret-9b` is not in the catalogue of models; pass ",
    "length.yaml": "error: length.yaml: not estimated: the value of `sequence_len` (sequence_len: ${LENGTH}) cannot ",
    "method.yaml": "error: method.yaml: not estimated: the value of `optim` (use_badam: true) is unknown to cfglint; ",
    "ds.json": "error: ds.json: not estimated: the file does not describe a training run by itself; name ",
    "other.yaml": "other.yaml: not recognised as a training configuration (",
}
COMMANDS = (("estimate", "text"), ("estimate", "json"), ("estimate", "html"), ("fit", "text"), ("fit", "json"))


@pytest.fixture
def here(tmp_path) -> Path:
    (tmp_path / ".git").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(("command", "form"), COMMANDS)
@pytest.mark.parametrize("name", REASONS)
def test_the_reason_is_on_standard_error(here, command, form, name):
    outcome = run_cfglint(command, "--format", form, name, cwd=here)
    assert outcome.code == 2
    assert outcome.err.startswith(REASONS[name])
    assert len(outcome.err.splitlines()) == 1 + (name == "other.yaml")
    if name == "other.yaml":
        return
    reason = REASONS[name].removeprefix(f"error: {name}: not estimated: ").partition("; ")[0].rstrip()
    if form == "json":
        (run,) = json.loads(outcome.out)["runs"]
        assert run["not_checked"]["message"].startswith(reason)
        assert run["not_checked"]["help"]
    elif form == "html":
        assert f"Not estimated: {reason.replace('`', '')}" in re.sub("<[^>]*>", "", unescape(outcome.out))
        assert ">To get an estimate</h2>" in outcome.out
    else:
        assert outcome.out.startswith(f"not estimated: {reason}")
        assert f"  memory not checked: {reason}" in outcome.out
        assert "no change needed" not in outcome.out


@pytest.mark.parametrize("command", ["estimate", "fit"])
def test_of_several_files_those_without_an_estimate_are_named(here, command):
    assert run_cfglint(command, "good.yaml", cwd=here).code == 0
    outcome = run_cfglint(command, "good.yaml", *REASONS, cwd=here)
    assert outcome.code == 2
    assert [sum(line.startswith(text) for line in outcome.err.splitlines()) for text in REASONS.values()] == [1] * 5
    assert "good.yaml: not" not in outcome.err


@pytest.mark.parametrize("command", ["estimate", "fit"])
def test_a_companion_in_a_folder_is_no_run_beside_others(here, command):
    for name in ("model.yaml", "length.yaml", "method.yaml"):
        (here / name).unlink()
    outcome = run_cfglint(command, ".", cwd=here)
    assert (outcome.code, outcome.err) == (0, "")


def test_a_plan_names_what_it_lacks(tmp_path):
    (tmp_path / "plan.json").write_text('{"model.id": "Qwen/Qwen2.5-0.5B", "method.tuning": "full"}')
    outcome = run_cfglint("estimate", "--plan", "plan.json", cwd=tmp_path)
    assert outcome.code == 2
    (line,) = outcome.err.splitlines()
    assert line.startswith("error: plan.json: not estimated: how the model is sharded (")
    assert line.endswith(" are not known; add what is missing to the plan")


def test_an_unknown_length_leaves_the_save_on_host_and_disk(here):
    text = run_cfglint("estimate", "length.yaml", cwd=here).out
    assert "\n  one host\n    save " in text
    assert "\n  disk\n    save " in text
    (run,) = json.loads(run_cfglint("estimate", "--format", "json", "length.yaml", cwd=here).out)["runs"]
    (save,) = (phase for phase in run["phases"] if phase["name"] == "save")
    assert save["host"]["expected"] > 0
    assert save["disk"]["expected"] > 0
    assert run["missing"] == ["sequence.length"]
    page = run_cfglint("estimate", "--format", "html", "length.yaml", cwd=here).out
    assert ">host, save</th>" in page
    assert ">disk, save</th>" in page


JOB = "resources: {accelerators: 'H100:2'}\nrun: |\n  axolotl train good.yaml\n"
MAKEFILE = "train:\n\taxolotl train good.yaml\n"
CALL = """import subprocess

subprocess.run(["accelerate", "launch", "--num_processes", "2", "-m", "axolotl.cli.train", "good.yaml"], check=True)
"""


@pytest.mark.parametrize("command", ["", "estimate", "fit"])
@pytest.mark.parametrize(
    ("name", "text", "started"),
    [
        ("run.sh", "accelerate launch -m axolotl.cli.train good.yaml\n", "good.yaml"),
        ("run.sh", "python train.py\n", "train.py"),
        ("launch.py", CALL, "good.yaml"),
        ("job.yaml", JOB, "good.yaml"),
        ("Makefile", MAKEFILE, "good.yaml"),
    ],
)
def test_a_launch_script_stands_for_what_it_starts(here, command, name, text, started):
    (here / name).write_text(text)
    (here / "train.py").write_text(SCRIPT)
    outcome = run_cfglint(*([command] if command else []), name, cwd=here)
    assert (outcome.code, outcome.err) == (0, "")
    if command:
        assert f"\n{started}  (" in outcome.out
    else:
        assert outcome.out.splitlines()[-1].startswith("No findings in ")


def test_a_launch_of_what_cannot_be_read_says_so(here):
    (here / "run.sh").write_text("deepspeed --num_gpus 4 run_clm.py --do_train --output_dir o --deepspeed ds.json\n")
    for command in ("estimate", "fit"):
        outcome = run_cfglint(command, "run.sh", cwd=here)
        assert outcome.code == 2
        assert outcome.err.splitlines()[0] == (
            "error: run.sh: not estimated: it starts `run_clm.py`, which was not found"
        )
