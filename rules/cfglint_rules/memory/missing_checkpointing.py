"""MEM002 missing-activation-checkpointing: activation checkpointing is off, and the step does not fit without it.

## What it does
Reports disabled activation checkpointing (gradient checkpointing) if the step does not fit on the GPU or is tight, and
if checkpointing lowers the peak. The rule relies on the estimate, not on a missing key: a small model needs no
checkpointing, and LLaMA-Factory enables it by default.

The finding is an error only if the estimate with checkpointing is clearly lower: the two intervals do not overlap.

## Why is this bad?
Without checkpointing, every decoder layer keeps the activations that its backward pass needs. For Llama-3.1-8B in bf16
that is about 200 kB per token and layer, compared to 8 kB with checkpointing. The job fails with CUDA out of memory.

## Symptoms
CUDA out of memory, gradient checkpointing, activation recomputation.

## Example
    base_model: meta-llama/Llama-3.2-3B
    micro_batch_size: 8
    sequence_len: 4096
    plugins: [axolotl.integrations.liger.LigerPlugin]
    liger_fused_linear_cross_entropy: true

## Use instead
    gradient_checkpointing: true

## Fix safety
The fix is the smallest change that makes the step fit (`cfglint fit`), applied as a whole. It is offered only if that
change includes activation checkpointing. MEM001 then says it in the same finding. Safe: the loss is the same, and a
step takes about a third longer. Unsafe if the step is only tight, because the run is then expected to work without it.

If the framework rejects checkpointing for the model (axolotl does for MPT), the message gives the reason instead.

## References
docs/memory/activations.md; docs/fit.md; Chen et al. 2016, arXiv:1604.06174.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from cfglint_rules.memory.fitting import find_remedy_with
from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import SEVERITIES, Report
from cfglint_train.findings.verdicts import judge
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.budget import STEP_PHASES
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
    """Yield a report if activation checkpointing is off, the step does not fit, and checkpointing would help."""
    judgement = judge(run, "gpu", STEP_PHASES)
    if judgement is None or judgement.verdict == "fits":
        return
    from cfglint_train.fitting.moves import explain_refusal  # imports the fixer, needed only if something is wrong

    checkpointed = judge(run.replace_fields({_FIELD: "full"}), "gpu", STEP_PHASES)
    if checkpointed is None or checkpointed.budget.expected >= judgement.budget.expected:
        return  # checkpointing would not help: the peak is elsewhere
    is_sufficient = checkpointed.budget.high < judgement.budget.low  # otherwise the gain is within the estimate's error
    severity = judgement.severity if is_sufficient else max(judgement.severity, "warning", key=SEVERITIES.index)
    reason = explain_refusal(run, {_FIELD: "full"})
    place = run.find_place(_FIELD, "batch.micro")
    if reason is not None:
        message = f"the step does not fit without activation checkpointing, but {reason}"
        yield Report(
            message,
            place,
            severity,
            min_certainty=judgement.min_certainty,
            assumed_severity=judgement.assumed_severity,
            grounds=judgement.grounds,
            quantity=judgement.quantity,
        )
        return
    peak = "" if checkpointed.phase.title == judgement.phase.title else f" in {checkpointed.phase.title}"
    yield Report(
        f"activation checkpointing is off (`{run.spell_key(_FIELD)}`): {judgement.phase.title} needs "
        f"{format_gib(judgement.budget.expected)} of {format_gib(judgement.capacity)} per GPU",
        place,
        severity,
        notes=(f"with checkpointing, the peak is {format_gib(checkpointed.budget.expected)}{peak}",),
        min_certainty=judgement.min_certainty,
        assumed_severity=judgement.assumed_severity,
        find_remedy=partial(find_remedy_with, run, _FIELD),
        grounds=judgement.grounds,
        quantity=judgement.quantity,
    )
