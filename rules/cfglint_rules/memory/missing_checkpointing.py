"""MEM002 missing-activation-checkpointing: activations are kept although the step does not fit without that.

## What it does
Fires where activation checkpointing (gradient checkpointing) is off, the step does not fit the GPU or is tight, and
recomputing activations lowers the peak. It is driven by the estimate, not by the absence of a key: a small model
needs none, and LLaMA-Factory has it on by default. It is an error where the activations decide: where the estimate
with checkpointing is below the one without, intervals included.

## Why is this bad?
Without checkpointing every decoder layer keeps what its backward pass needs: for Llama-3.1-8B about 200 kB per
token and layer in bf16, against 8 kB with it. The job dies of CUDA out of memory.

## Example
    base_model: meta-llama/Llama-3.2-3B
    micro_batch_size: 8
    sequence_len: 4096
    plugins: [axolotl.integrations.liger.LigerPlugin]
    liger_fused_linear_cross_entropy: true

## Use instead
    gradient_checkpointing: true

## Fix safety
The fix is the smallest change that fits (`cfglint fit`), all of it or nothing, and is there where that includes
activation checkpointing. Safe: the loss is the same, a step takes about a third longer. Where the step is merely tight
(it is expected to fit), the fix is unsafe. It is not offered where the framework refuses it (MPT in axolotl, for one),
with the reason.

## References
docs/memory/activations.md; docs/fit.md; Chen et al. 2016, arXiv:1604.06174.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from cfglint_rules.memory.fitting import find_remedy_with
from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import SEVERITIES, Report
from cfglint_train.findings.verdicts import STEP_PHASES, judge
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Final
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "MEM002",
    "missing-activation-checkpointing",
    "error",
    fix="safe",
    needs={"activations.checkpointing": ("none",)},
    estimates=("gpu",),
)

_FIELD: Final = "activations.checkpointing"


def check(run: Run) -> Iterator[Report]:
    """Yield a report if checkpointing is off and would help."""
    judgement = judge(run, "gpu", STEP_PHASES)
    if judgement is None or judgement.verdict == "fits":
        return
    from cfglint_train.fitting.moves import explain_refusal  # imports the fixer, needed only if something is wrong

    checkpointed = judge(run.replace_fields({_FIELD: "full"}), "gpu", STEP_PHASES)
    if checkpointed is None or checkpointed.budget.expected >= judgement.budget.expected:
        return  # it would not help: the peak is elsewhere
    is_sufficient = checkpointed.budget.high < judgement.budget.low  # otherwise something else exceeds the memory
    severity = judgement.severity if is_sufficient else max(judgement.severity, "warning", key=SEVERITIES.index)
    reason = explain_refusal(run, {_FIELD: "full"})
    place = run.find_place(_FIELD, "batch.micro")
    if reason is not None:
        message = f"the step does not fit without activation checkpointing, but {reason}"
        yield Report(message, place, severity, min_certainty=judgement.min_certainty, grounds=judgement.grounds)
        return
    peak = "" if checkpointed.phase.title == judgement.phase.title else f"{checkpointed.phase.title} "
    yield Report(
        f"activation checkpointing is off (`{run.spell_key(_FIELD)}`): {judgement.phase.title} needs "
        f"{format_gib(judgement.budget.expected)} per GPU, {peak}{format_gib(checkpointed.budget.expected)} with it; "
        f"{format_gib(judgement.capacity)} available",
        place,
        severity,
        min_certainty=judgement.min_certainty,
        find_remedy=partial(find_remedy_with, run, _FIELD),
        grounds=judgement.grounds,
    )
