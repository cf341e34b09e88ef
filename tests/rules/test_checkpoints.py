"""Checkpoint rules: cases that the fixtures of a single rule do not cover."""

from __future__ import annotations

import pytest

from tests.support.corpus import REPOSITORY
from tests.support.linting import build_options, fix, lint

RUN = """\
model_name_or_path: Qwen/Qwen2.5-7B
stage: sft
do_train: true
finetuning_type: full
dataset: alpaca
template: qwen
output_dir: out
per_device_train_batch_size: 1
bf16: true
deepspeed: z3.json
"""
SHARDS = """\
{
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto",
  "bf16": {"enabled": "auto"},
  "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": false}
}
"""


@pytest.mark.parametrize(("after", "count"), [("", 1), ("python out/zero_to_fp32.py out out/whole\n", 0)])
def test_a_script_that_converts_the_shards_needs_no_gathering(after, count, tmp_path):
    (tmp_path / "run.yaml").write_text(RUN)
    (tmp_path / "z3.json").write_text(SHARDS)
    (tmp_path / "train.sh").write_text(f"llamafactory-cli train run.yaml\n{after}")
    findings = lint(tmp_path, build_options(("KEY006",))).findings
    assert len([finding for finding in findings if "ZeRO-3 shards" in finding.message]) == count


def test_of_a_resumed_run_whose_host_is_too_small_nothing_is_changed(tmp_path):
    """Check that nothing is fixed: CKP006 would save optimizer states that do not fit; CKP003 must not drop them."""
    text = (REPOSITORY / "fixtures" / "rules" / "CKP003" / "fires" / "resumed.yaml").read_text()
    (tmp_path / "run.yaml").write_text(f"{text}save_only_model: true\n")
    outcome = fix(tmp_path, build_options(("CKP003", "CKP006")), unsafe=True)
    assert (outcome.applied, outcome.result.troubles) == ((), ())
    assert [(fix_refused.code, fix_refused.reason.split(":")[0]) for fix_refused in outcome.refused] == [
        ("CKP006", "it would cause CKP003")
    ]
    (tmp_path / "run.yaml").write_text(text)
    outcome = fix(tmp_path, build_options(("CKP003", "CKP006")), unsafe=True)
    assert (outcome.applied, outcome.result.troubles) == ((), ())
    assert [finding.code for finding in outcome.result.findings] == ["CKP003"]
