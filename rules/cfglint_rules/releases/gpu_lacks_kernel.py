"""REL004 gpu-lacks-kernel: the stated GPU is too old for the data type or the attention kernel.

## What it does
Compares the compute capability of the stated GPU with the capability that the run needs. FlashAttention 2 and bf16 need
8.0 (Ampere), FP8 needs 8.9 (Ada; Hopper has 9.0).

## Why is this bad?
FlashAttention 2 and FP8 stop the run after the model has been loaded. bf16 is rejected as well, or torch emulates it in
software, many times slower than fp16.

## Example
    # cfglint: gpu=V100-32GB
    flash_attn: fa2
    bf16: true

## Use instead
    flash_attn: sdpa
    fp16: true

## Fix safety
Only FlashAttention 2 has a fix: sdpa. It is safe, because the run could not have started. It is not offered if samples
are packed, or may be, because packing may depend on the kernel.

## When it does not apply
Silent if no GPU is stated. For bf16, silent unless the configuration states it.

## References
transformers 5.23.0 `modeling_utils.py` (FlashAttention 2 asks for compute capability 8.0), `training_args.py` ("Your
setup doesn't support bf16/gpu"); Dao-AILab/flash-attention 2.8 README (Ampere, Ada or Hopper); torch 2.13
`torch._scaled_mm` (8.9); huggingface/trl#1173, hiyouga/LLaMA-Factory#7147, #5077. Compute capabilities of the GPUs:
`lint/cfglint_train/hardware/gpus.json`, from developer.nvidia.com/cuda-gpus.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.companions.bf16_cards import AMPERE
from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.foundation.typed import Final
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "REL004",
    "gpu-lacks-kernel",
    "error",
    fix="safe",
    capacities=("gpu",),
    writes=("activations.attention",),
    rests_on_release=True,
)

ADA: Final = 8.9


def check(run: Run) -> Iterator[Report]:
    """Yield a report for every kernel or data type that the GPU does not support."""
    capability = run.hardware.compute_capability
    if capability is None:
        return
    gpu_text = f"{run.hardware.gpu} has {capability}"
    compute, key = run.plan.precision.compute, run.spell_key("precision.compute")
    if run.plan.activations.attention == "flash" and capability < AMPERE:
        kernel, is_packed = run.spell_key("activations.attention"), run.plan.sequence.packing is not False
        yield Report(
            f"FlashAttention 2 (`{kernel}`) needs compute capability 8.0 (Ampere), but {gpu_text}: it is rejected",
            run.find_place("activations.attention"),
            fix=None if is_packed else Fix("safe", "use sdpa attention", {"activations.attention": "sdpa"}),
            help="use sdpa, without packing" if is_packed else None,
        )
    if compute == "bf16" and capability < AMPERE and run.is_stated("precision.compute"):
        yield Report(
            f"`{key}`: bf16 needs compute capability 8.0 (Ampere), but {gpu_text}: it is refused or slowly emulated",
            run.find_place("precision.compute"),
            "warning",
            help="use fp16 with a model trained in fp16, or an Ampere or newer GPU",
        )
    if compute == "fp8" and capability < ADA:
        yield Report(
            f"`{key}`: FP8 needs compute capability 8.9 (Ada), but {gpu_text}: the run is refused",
            run.find_place("precision.compute"),
            help="train in bf16" if capability >= AMPERE else "use fp16 or fp32, or an Ada or newer GPU",
        )
