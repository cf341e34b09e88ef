"""Companions that only some launches of a script use, or that one of its switches selects."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.linting import lint

SWITCHED = """\
import argparse
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--verbose", action="store_true")
parser.add_argument("--use_deepspeed", action="store_true")
parser.add_argument("--ds_config", default="ds.json")
parser.add_argument("--decay", type=float, default=0.0)
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")
path = args.ds_config if args.use_deepspeed else None
training = TrainingArguments("out", bf16=True, weight_decay=args.decay, learning_rate=2e-4, deepspeed=path)
Trainer(model=model, args=training, train_dataset=data).train()
"""
ADAM = '{"optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": %s}}, "zero_optimization": {"stage": 2}}'
PLAIN, DEEPSPEED = "python train.py\n", "deepspeed train.py --use_deepspeed\n"


@pytest.mark.parametrize(
    ("launches", "severity", "note"),
    [
        ({}, "warning", "assumes the script is started with `--use_deepspeed` (line 6)"),
        ({"a.sh": PLAIN}, "warning", "assumes the script is started with `--use_deepspeed` (line 6)"),
        ({"a.sh": PLAIN, "b.sh": DEEPSPEED}, "error", "applies to the launch in b.sh"),
        (
            {"README.md": f"```bash\n{PLAIN}```\n\n```bash\n{DEEPSPEED}```\n"},
            "warning",
            "assumes the value of `deepspeed` from README.md; another launch may set a different one",
        ),
    ],
)
def test_the_file_of_launches_that_switch_deepspeed_on_is_judged(
    tmp_path: Path, launches: dict[str, str], severity: str, note: str
) -> None:
    """Judge the file with the settings of those launches, and leave the memory to the run of all launches."""
    for name, text in {"train.py": SWITCHED, "ds.json": ADAM % "0.0", **launches}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / ".git").mkdir()
    result = lint(tmp_path)
    (finding,) = [item for item in result.findings if item.code == "XFL001"]
    assert (finding.path, finding.severity) == ("ds.json", severity)
    assert finding.notes[-1].startswith(note)
    assert result.run_count == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('lr": 1e-4', 'lr": 2e-4'),
        ("--decay 0.1", "--decay 0.1 --ds_config missing.json"),
    ],
)
def test_a_switched_run_that_agrees_with_its_file_is_silent(tmp_path: Path, old: str, new: str) -> None:
    texts = {"train.py": SWITCHED, "ds.json": ADAM % "0.1", "a.sh": PLAIN, "b.sh": DEEPSPEED}
    texts["b.sh"] = texts["b.sh"].replace("--use_deepspeed", "--use_deepspeed --decay 0.1")
    for name, text in texts.items():
        (tmp_path / name).write_text(text.replace(old, new))
    assert [item for item in lint(tmp_path).findings if item.code == "XFL001"] == []


def test_what_is_wrong_in_the_file_itself_stays_an_error_under_a_switch(tmp_path: Path) -> None:
    text = '{"zero_optimization": {"offload_optimizer": false}, "fp16": {"enabled": true}, "bf16": {"enabled": true}}'
    (tmp_path / "ds.json").write_text(text)
    alone = [(item.code, item.severity, item.start) for item in lint(tmp_path).findings]
    (tmp_path / "train.py").write_text(SWITCHED)
    switched = [(item.code, item.severity, item.start) for item in lint(tmp_path).findings if item.path == "ds.json"]
    assert "error" in {severity for _, severity, _ in alone}
    assert {*alone} <= {*switched}
    assert len(switched) == len({*switched})
