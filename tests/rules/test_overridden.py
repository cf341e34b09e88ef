"""Values that a command line sets over those of a file: findings point at the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.corpus import REPOSITORY
from tests.support.linting import build_options, lint


def test_the_command_line_is_shown_where_its_value_counts() -> None:
    """Report XFL001 for `trl sft --config recipe.yaml --per_device_train_batch_size 2`."""
    folder = REPOSITORY / "fixtures" / "rules" / "XFL001" / "fires" / "overridden"
    findings = lint(folder, build_options(select=["XFL001"])).findings
    [finding] = [finding for finding in findings if "per_device_train_batch_size" in finding.message]
    [command_line] = [related for related in finding.related if related.message == "the command line"]
    document, span = command_line.place.document, command_line.place.span
    assert document.path.endswith("go.sh")
    assert document.get_text(span).startswith("--per_device_train_batch_size")


_PROGRAM = """\
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

(arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("huggyllama/llama-7b")
Trainer(model=model, args=arguments, train_dataset=[]).train()
"""
_LAUNCH = (
    "torchrun --nproc_per_node=8 train.py --output_dir out --save_strategy steps --bf16 True "
    "--fsdp 'full_shard auto_wrap' --fsdp_transformer_layer_cls_to_wrap LlamaDecoderLayer\n"
)


@pytest.mark.parametrize(
    ("release", "refusal"),
    [("4.35.0", "transformers 4.35.0 has no `save_only_model`"), ("4.36.0", "only the launch (run.sh) can set")],
)
def test_a_launch_is_not_told_to_pass_a_key_that_the_release_lacks(tmp_path: Path, release: str, refusal: str) -> None:
    files = {"train.py": _PROGRAM, "run.sh": _LAUNCH, "requirements.txt": f"transformers=={release}\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    [finding] = lint(tmp_path, build_options(select=["CKP002"])).findings
    assert finding.fix is not None
    assert refusal in (finding.fix.refused or "")
