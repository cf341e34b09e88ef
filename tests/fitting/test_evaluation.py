"""The same evaluation batch in the lint and in `cfglint fit` if no batch is stated."""

from __future__ import annotations

import pytest

from cfglint_train import api

TEXT = """\
# cfglint: gpu=H100 gpus-per-node=1 nodes=1 llamafactory=0.9.4
model_name_or_path: Qwen/Qwen2.5-7B-Instruct
stage: sft
do_train: true
finetuning_type: lora
lora_target: all
dataset: tickets
template: qwen
cutoff_len: {length}
packing: true
enable_liger_kernel: true
output_dir: out
per_device_train_batch_size: {batch}
gradient_accumulation_steps: 8
bf16: true
val_size: 0.1
eval_strategy: steps
"""


@pytest.mark.parametrize(("batch", "length", "expected"), [(1, 8192, 1), (2, 8192, 2), (4, 8192, 2)])
def test_lint_and_fit_take_one_batch(batch: int, length: int, expected: int) -> None:
    options, texts = api.Options(isolated=True), {"sft.yaml": TEXT.format(batch=batch, length=length)}
    [finding] = [item for item in api.lint("sft.yaml", options, texts).findings if item.code == "MEM011"]
    assert finding.fix is not None
    assert f"per_device_eval_batch_size: {expected}," in finding.fix.message
    [run] = api.fit("sft.yaml", options, texts).runs
    assert run.solution is not None
    assert run.solution.settings == (f"per_device_eval_batch_size: 8 -> {expected}",)
