"""Settings that a launch script lays over a file: fixes change them in the script."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.linting import build_options, fix, lint, read_contents

AXOLOTL = """\
base_model: meta-llama/Llama-3.1-8B
datasets:
  - path: data/meadow.jsonl
    type: chat_template
sequence_len: 8192
gradient_checkpointing: true
sample_packing: true
pad_to_sequence_len: true
bf16: true
optimizer: adamw_torch
learning_rate: 1.0e-5
output_dir: out
deepspeed: z3.json
{batch}"""
LLAMAFACTORY = """\
model_name_or_path: meta-llama/Llama-3.1-8B
stage: sft
do_train: true
finetuning_type: full
dataset: meadow
template: llama3
cutoff_len: 8192
packing: true
bf16: true
output_dir: out
deepspeed: z3.json
{batch}"""
AXOLOTL_BATCH = "micro_batch_size: {}\ngradient_accumulation_steps: {}\n"
LLAMAFACTORY_BATCH = "per_device_train_batch_size: {}\ngradient_accumulation_steps: {}\n"
ZERO = '{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": true}}\n'
CHOSEN = {"gpu": "H100", "nodes": "1", "gpus_per_node": "8"}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            AXOLOTL.format(batch=AXOLOTL_BATCH.format(1, 1)),
            "axolotl train conf/run.yaml --micro-batch-size {} --gradient-accumulation-steps={}",
        ),
        (
            LLAMAFACTORY.format(batch=LLAMAFACTORY_BATCH.format(1, 1)),
            "llamafactory-cli train conf/run.yaml per_device_train_batch_size={} gradient_accumulation_steps={}",
        ),
        (
            AXOLOTL.format(batch=AXOLOTL_BATCH.format(1, 2)),
            "axolotl train conf/run.yaml --micro-batch-size {} ",
        ),
    ],
)
def test_the_script_gets_the_numbers_that_the_file_would_get(tmp_path: Path, text: str, line: str) -> None:
    alone, launched = tmp_path / "alone", tmp_path / "launched"
    for folder in (alone, launched):
        (folder / ".git").mkdir(parents=True)
        (folder / "conf").mkdir()
        (folder / "conf" / "z3.json").write_text(ZERO)
    (launched / "conf" / "run.yaml").write_text(text)
    (launched / "run.sh").write_text(line.format(16, 2) + "\n")
    (alone / "conf" / "run.yaml").write_text(
        text.replace("_size: 1\n", "_size: 16\n").replace("steps: 1\n", "steps: 2\n")
    )
    chosen = build_options(select=["MEM001"], **CHOSEN)
    fix(alone, chosen)
    fix(launched, chosen)
    [expected], [actual] = lint(alone, chosen).runs, lint(launched, chosen).runs
    assert expected.plan.batch.micro < 16
    assert (actual.plan.batch.micro, actual.plan.batch.accumulation) == (
        expected.plan.batch.micro,
        expected.plan.batch.accumulation,
    )
    assert (launched / "run.sh").read_text() == line.format(
        actual.plan.batch.micro, actual.plan.batch.accumulation
    ) + "\n"
    once = read_contents(launched)
    fix(launched, chosen)
    assert read_contents(launched) == once


@pytest.mark.parametrize("value", ["$MICRO", "16 --micro-batch-size $MICRO"])
def test_what_the_script_does_not_decide_is_left(tmp_path: Path, value: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "z3.json").write_text(ZERO)
    (tmp_path / "run.yaml").write_text(AXOLOTL.format(batch=AXOLOTL_BATCH.format(1, 1)))
    (tmp_path / "run.sh").write_text(f"axolotl train run.yaml --micro-batch-size {value}\n")
    before = read_contents(tmp_path)
    fix(tmp_path, build_options(select=["MEM001"], **CHOSEN))
    assert read_contents(tmp_path) == before


def test_two_scripts_that_agree_are_left(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "z3.json").write_text(ZERO)
    (tmp_path / "run.yaml").write_text(AXOLOTL.format(batch=AXOLOTL_BATCH.format(1, 1)))
    for name in ("a.sh", "b.sh"):
        (tmp_path / name).write_text("axolotl train run.yaml --micro-batch-size 16\n")
    before = read_contents(tmp_path)
    fix(tmp_path, build_options(select=["MEM001"], **CHOSEN))
    assert read_contents(tmp_path) == before
