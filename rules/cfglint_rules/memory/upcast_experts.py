"""MEM006 upcast-experts: the experts of an MoE model are not quantized, and PEFT casts them to fp32.

## What it does
Reports an MoE model that is loaded in 4 or 8 bits, but whose fused experts stay in 16 bits until PEFT casts them to
fp32. The finding is an error if the step definitely does not fit on the GPU. It is an info if the step fails to fit
only when all samples have the full length, and otherwise a warning.

## Why is this bad?
In transformers 5, the experts of a layer are fused into shared parameters, but bitsandbytes quantizes only linear
layers. Almost all weights of an MoE model belong to experts. Each expert weight then takes four bytes instead of the
half byte of 4-bit weights, twice as much as with plain 16-bit LoRA. The weights of Qwen3-30B-A3B take 110 GiB, or
16 GiB with quantized experts.

## Example
    base_model: Qwen/Qwen3-30B-A3B
    adapter: qlora
    load_in_4bit: true

## Use instead
    base_model: Qwen/Qwen3-30B-A3B
    adapter: qlora
    load_in_4bit: true
    quantize_moe_experts: true

## Fix safety
Unsafe: the adapter is then trained on experts in 4 or 8 bits. axolotl rejects `quantize_moe_experts` together with
`lora_target_linear`, so you need to replace the latter yourself.

## When it does not apply
axolotl does not cast under ZeRO-3, or under FSDP with QLoRA. In transformers 4, experts are linear layers and are
quantized.

## References
PEFT 0.21.2 `utils/other.py`, `prepare_model_for_kbit_training`; axolotl 0.18.0 `loaders/model.py`,
`_prepare_model_for_quantization`, and its page on expert quantization; docs/memory/states.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.findings.verdicts import Judgement, judge
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.budget import STEP_PHASES
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "MEM006",
    "upcast-experts",
    "error",
    fix="unsafe",
    needs={"precision.experts": ("fp32",)},
    writes=("method.quantized_experts",),
    estimates=("gpu",),
)

_FIELD: Final[Field] = "method.quantized_experts"


def check(run: Run) -> Iterator[Report]:
    """Yield a report if PEFT casts unquantized experts to fp32."""
    if run.plan.method.quantized_experts:
        return
    judgement = judge(run, "gpu", STEP_PHASES)
    if judgement is None:
        return
    weights = judgement.budget.setup.frozen_weights
    quantized = judge(run.replace_fields({_FIELD: True}), "gpu", STEP_PHASES)
    if quantized is None or not weights.fp32:
        return
    yield Report(
        f"the experts are cast to fp32 instead of being quantized: {format_gib(weights.fp32 * 4)} of the "
        f"{format_gib(judgement.budget.expected)} in "
        f"{judgement.phase.title}, {format_gib(judgement.capacity)} available",
        run.find_place(_FIELD, "method.quantization"),
        judgement.severity,
        notes=("PEFT's `prepare_model_for_kbit_training` casts every unquantized 16-bit weight to fp32",),
        find_remedy=partial(_find_remedy, run, judgement, quantized),
        grounds=judgement.grounds,
        quantity=judgement.quantity,
    )


def _find_remedy(run: Run, before: Judgement, after: Judgement) -> tuple[Fix | None, str]:
    """Return the fix that quantizes the experts (None if it cannot be written), and the advice to set the key."""
    from cfglint_train.fitting import words  # imports the fixer, needed only if something is wrong
    from cfglint_train.fitting.moves import explain_refusal, find_move

    changes, key = {_FIELD: True}, run.spell_key(_FIELD)
    move, reason = find_move(run, _FIELD), explain_refusal(run, changes)
    advice = (
        f"set `{key}: true` to quantize them ({format_gib(after.budget.expected)} expected)"
        f"{'' if reason is None else f'; {reason}'}"
    )
    if move is None:
        return None, advice
    return Fix(
        "unsafe", f"{key}: true ({words.format_drop(before, after)}); gives up: {move.gives_up}", changes
    ), advice
