"""MEM006 upcast-experts: the experts of a mixture are not quantised, and are cast to fp32.

## What it does
Fires where a mixture is loaded in 4 or 8 bits, its fused experts are left out of that, and PEFT casts what is left in
16 bits to fp32. An error where the step does not fit the GPU for certain, else a warning.

## Why is this bad?
From transformers 5 on the experts of a layer are one parameter, and bitsandbytes quantises linear layers only. Nearly
all of a mixture's weights are experts: instead of half a byte each takes four, twice what plain LoRA needs.
Qwen3-30B-A3B takes 110 GiB for its weights, with quantised experts 16 GiB.

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
Unsafe: the experts learn with 4 or 8 bits. axolotl refuses the key beside `lora_target_linear`, which is then for
you to replace.

## When it does not apply
Under FSDP with QLoRA and under ZeRO-3 axolotl does not cast; transformers 4 has experts as linear layers.

## References
PEFT 0.21.2 `utils/other.py`, `prepare_model_for_kbit_training`; axolotl 0.18.0 `loaders/model.py`,
`_prepare_model_for_quantization`, and its page on the quantisation of experts; docs/memory/states.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.findings.verdicts import STEP_PHASES, Judgement, judge
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Final
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
    """Yield a report if the model has experts in fp32."""
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
        f"the experts are cast to fp32 instead of quantised: {format_gib(weights.fp32 * 4)} of the "
        f"{format_gib(judgement.budget.expected)} in {judgement.phase.title}, {format_gib(judgement.capacity)} "
        "available",
        run.find_place(_FIELD, "method.quantization"),
        judgement.severity,
        notes=("PEFT's prepare_model_for_kbit_training casts every 16-bit weight that is not quantised to fp32",),
        find_remedy=partial(_find_remedy, run, judgement, quantized),
        grounds=judgement.grounds,
    )


def _find_remedy(run: Run, before: Judgement, after: Judgement) -> tuple[Fix | None, str]:
    """Return the fix that quantises the experts, and the reason if it cannot be written."""
    from cfglint_train.fitting import words  # imports the fixer, needed only if something is wrong
    from cfglint_train.fitting.moves import explain_refusal, find_move

    changes, key = {_FIELD: True}, run.spell_key(_FIELD)
    move, reason = find_move(run, _FIELD), explain_refusal(run, changes)
    advice = (
        f"set `{key}: true` to quantise them: {format_gib(after.budget.expected)} "
        f"expected{'' if reason is None else f'; {reason}'}"
    )
    if move is None:
        return None, advice
    return Fix(
        "unsafe", f"{key}: true ({words.format_drop(before, after)}); gives up: {move.gives_up}", changes
    ), advice
