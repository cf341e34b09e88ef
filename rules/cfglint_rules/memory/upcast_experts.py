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
from cfglint_train.findings.verdicts import STEP, Judgement, judge
from cfglint_train.foundation.sizes import gib
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
    """One report where experts in fp32 are a part of the model."""
    if run.plan.method.quantized_experts:
        return
    judgement = judge(run, "gpu", STEP)
    if judgement is None:
        return
    weights = judgement.budget.subject.frozen_weights
    after = judge(run.changed({_FIELD: True}), "gpu", STEP)
    if after is None or not weights.fp32:
        return
    yield Report(
        f"the experts are cast to fp32 instead of quantised: {gib(weights.fp32 * 4)} of the "
        f"{gib(judgement.budget.expected)} in {judgement.phase.title}, {gib(judgement.capacity)} available",
        run.place(_FIELD, "method.quantization"),
        judgement.severity,
        notes=("PEFT's prepare_model_for_kbit_training casts every 16-bit weight that is not quantised to fp32",),
        remedy=partial(_remedy, run, judgement, after),
        grounds=judgement.grounds,
    )


def _remedy(run: Run, before: Judgement, after: Judgement) -> tuple[Fix | None, str]:
    """The experts quantised, and why that cannot be written where the files have something against it."""
    from cfglint_train.fitting import words  # with the fixer, and only where something is wrong
    from cfglint_train.fitting.moves import of_field, refusal

    changes, key = {_FIELD: True}, run.spell(_FIELD)
    move, why = of_field(run, _FIELD), refusal(run, changes)
    help_ = (
        f"set `{key}: true` to quantise them: {gib(after.budget.expected)} expected{'' if why is None else f'; {why}'}"
    )
    if move is None:
        return None, help_
    return Fix("unsafe", f"{key}: true ({words.drop(before, after)}); gives up: {move.gives_up}", changes), help_
