"""MEM004 replicated-model: every GPU holds the whole model, and the model is larger than a GPU.

## What it does
Reports unsharded weights that exceed the GPU's memory on their own, without any gradients or optimizer states. The
weights are unsharded on a single GPU, under data parallelism, and with ZeRO stages 0 to 2. An unsharded reference model
counts as well.

## Why is this bad?
More GPUs do not help, because each GPU has to hold all weights. Without `deepspeed` or `fsdp`, LLaMA-Factory
loads the whole model onto every GPU (LLaMA-Factory #4253, #257). ZeRO-1 and ZeRO-2 shard only gradients and optimizer
states (axolotl #2217).

## Example
    model_name_or_path: Qwen/Qwen2-72B       # LoRA on 8 GPUs of 80 GB, no deepspeed
    finetuning_type: lora

## Use instead
    deepspeed: examples/deepspeed/ds_z3_config.json

## When it does not apply
Quantized base weights count with their quantized size. Silent for unknown models.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.findings.verdicts import judge
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.budget import STEP_PHASES
from cfglint_train.runs.run import Run

RULE: Final = Rule("MEM004", "replicated-model", "error", estimates=("gpu",))


def check(run: Run) -> Iterator[Report]:
    """Yield a report if the weights alone do not fit on a GPU and nothing shards them."""
    parallel = run.plan.parallel
    is_replicated = parallel.strategy in ("none", "ddp") or (
        parallel.strategy == "zero" and parallel.zero_stage in (0, 1, 2)
    )
    judgement = judge(run, "gpu", STEP_PHASES)
    if not is_replicated or judgement is None:
        return
    weights = sum(size for component, size in judgement.budget.sizes if component.weights)
    if weights <= judgement.capacity:
        return
    subject = f"ZeRO stage {parallel.zero_stage} does not shard" if parallel.strategy == "zero" else "nothing shards"
    yield Report(
        f"the weights alone do not fit: {format_gib(weights)} on every GPU, {format_gib(judgement.capacity)} "
        f"available; {subject} them",
        run.find_place("parallel.zero_stage", "parallel.strategy", "model.id"),
        "error",
        find_remedy=partial(_find_remedy, run),
        quantity=judgement.quantity,
    )


def _find_remedy(run: Run) -> tuple[Fix | None, str]:
    """Return no fix, and the advice to shard or quantize, with the settings for 4 bits if the files have any."""
    from cfglint_train.fitting.states import (
        list_four_bit_settings,
    )  # imports the fixer, needed only if something is wrong

    settings = list_four_bit_settings(run)
    return None, "shard the weights with ZeRO stage 3 or FSDP, or quantize them" + (
        f" (`{', '.join(settings)}`)" if settings else ""
    )
