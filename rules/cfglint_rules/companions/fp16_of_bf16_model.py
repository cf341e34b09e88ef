"""XFL004 fp16-of-bf16-model: fp16 is used for a model that was trained in bf16.

## What it does
Reports training in fp16 if the published weights of the model are in bf16 and the GPU supports bf16. The finding is a
warning for models whose activations are known to overflow (Gemma, Qwen2 and Qwen2.5), and an info for all others.

## Why is this bad?
bf16 has the range of fp32, but the largest fp16 value is 65,504. Some models that were trained in bf16 have larger
activations. The loss can then become NaN or 0 after a few steps, or the loss scaler skips one step after another. Other
models (Llama 3, Mistral) train in fp16 without trouble; for them, bf16 is only the safer format.

## Symptoms
Loss is NaN, loss is 0, overflow, loss scale at its minimum.

## Example
    base_model: google/gemma-3-12b-it
    fp16: true

## Use instead
    bf16: true

## When it does not apply
Silent for models with fp16 or fp32 weights (Llama 2). Silent for GPUs without bf16, because fp16 is their only 16-bit
format. If the GPU is not stated, a file name or comment that names a GPU without bf16 (T4, V100) also silences the
rule.

## References
Gemma: huggingface/transformers#36822, #37226. Qwen2: QwenLM/Qwen3#670, #868, hiyouga/LLaMA-Factory#4278,
huggingface/transformers#33294. LLaMA-Factory's own examples of mid-2024 train Llama 3 in fp16. The format of the
weights is `torch_dtype` of the model's config.json.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cfglint_rules.companions.bf16_cards import build_card_ground, may_lack_bf16
from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final
from cfglint_train.runs.run import Run

RULE: Final = Rule("XFL004", "fp16-of-bf16-model", "warning", needs={"precision.compute": ("fp16",)})

_OVERFLOWING_MODELS: Final = compile_on_use(r"gemma|qwen2(?!\d)", re.I)
"""Pattern for models whose activations exceed the range of fp16.

Qwen1.5 is not among them, although it shares Qwen2's architecture.
"""


def check(run: Run) -> Iterator[Report]:
    """Yield a report if fp16 is stated for a bf16 model, unless the GPU has no bf16."""
    model = run.architecture
    if model is None or model.dtype != "bf16" or run.plan.model.from_scratch or not run.is_stated("precision.compute"):
        return
    if may_lack_bf16(run):
        return
    key = run.spell_key("precision.compute")
    statement = f"`{key}` trains a bf16 model in fp16"
    is_overflowing = _OVERFLOWING_MODELS.search(model.id) is not None
    yield Report(
        f"{statement}: activations above 65,504 overflow, and the loss can become NaN or 0"
        if is_overflowing
        else f"{statement}: its range ends at 65,504; bf16 has the range of fp32",
        run.find_place("precision.compute"),
        None if is_overflowing else "info",
        help="train in bf16",
        grounds=build_card_ground(run),
    )
