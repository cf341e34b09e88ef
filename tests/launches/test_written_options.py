"""Options that a script's parser accepts and that a fix adds to the launch."""

from __future__ import annotations

from pathlib import Path

from tests.support.linting import build_options, fix, lint

SCRIPT = """\
from trl import ModelConfig, ScriptArguments, SFTConfig, SFTTrainer, TrlParser

parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))
script_args, training_args, model_args = parser.parse_args_and_config()
SFTTrainer(model=model_args.model_name_or_path, args=training_args, train_dataset=script_args.dataset_name).train()
"""
LAUNCH = """\
# cfglint: gpu=A100-80GB nodes=1 gpus-per-node=1
accelerate launch sft.py --model_name_or_path Qwen/Qwen2.5-0.5B-Instruct --dataset_name orchard --packing \\
  --max_seq_length 16384 --per_device_train_batch_size 8 --gradient_checkpointing --bf16 --output_dir out
"""


def write(folder: Path, *launches: str) -> None:
    (folder / ".git").mkdir()
    (folder / "requirements.txt").write_text("trl==0.16.0\ntransformers==4.49.0\n", encoding="utf-8")
    (folder / "sft.py").write_text(SCRIPT, encoding="utf-8")
    for number, launch in enumerate(launches):
        (folder / f"run{number}.sh").write_text(launch, encoding="utf-8")


def test_a_fix_adds_an_option_to_the_only_launch(tmp_path: Path) -> None:
    write(tmp_path, LAUNCH)
    fix(tmp_path, build_options(("MEM001",)), unsafe=True)
    text = (tmp_path / "run0.sh").read_text(encoding="utf-8")
    assert "--per_device_train_batch_size 2" in text or "--per_device_train_batch_size 1" in text
    assert "--output_dir out --gradient_accumulation_steps " in text


def test_a_fix_adds_no_option_to_one_of_several_launches(tmp_path: Path) -> None:
    write(tmp_path, LAUNCH, LAUNCH)
    [finding] = lint(tmp_path, build_options(("MEM001",))).findings
    assert finding.fix is None or not finding.fix.edits
