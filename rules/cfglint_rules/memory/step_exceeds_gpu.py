"""MEM001 step-exceeds-gpu: the training step needs more memory than a GPU has.

## What it does
Estimates the peak of the forward pass, the backward pass and the optimizer step on the worst GPU and compares it
with the GPU's memory. An error means that even the lower bound of the estimate is larger; a warning that the
interval includes the limit. The message shows what the peak is made of.

## Why is this bad?
The job dies of CUDA out of memory (OOM), usually in the first or second step: optimizer states are allocated lazily and
ZeRO-3 gathers ahead only from the second forward pass on, so that a first step that runs proves nothing.

## Example
    base_model: meta-llama/Llama-3.1-8B      # full fine-tuning on one 80 GB GPU
    micro_batch_size: 8
    gradient_accumulation_steps: 2
    sequence_len: 8192
    gradient_checkpointing: true
    plugins: [axolotl.integrations.liger.LigerPlugin]
    liger_fused_linear_cross_entropy: true

## Use instead
    micro_batch_size: 2
    gradient_accumulation_steps: 8

## Fix safety
The fix is the smallest change with which the step is expected to fit, the one that `cfglint fit` shows: it fills in
what the files leave unsaid (activation checkpointing, a fused loss), then replaces what they state (a smaller micro
batch with more accumulation; the effective batch stays). That is safe: a run that cannot fit could not have used the
larger micro batch. Where only something that gives up more makes it fit (offloading, another ZeRO stage, and last a
change of the optimisation such as LoRA or shorter sequences), the fix is unsafe and says what is given up. All of it is
written or nothing. Where the step is merely tight (it is expected to fit), a fix that costs time is unsafe.

## When it does not apply
Unknown models, unknown lengths and architectures without a formula are left alone. Where the GPU or the number of
nodes is not stated, 80 GB and one node of 8 GPUs are assumed, the message names the assumption, and the finding is a
warning at most. Where samples are put end to end and no more than one of a micro batch may be taken to have the full
length, what only all of them exceed is information.

## References
The pages of docs/memory-model.md derive every term; docs/fit.md has the changes and what they cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.findings.verdicts import STEP_PHASES, Judgement, describe_verdict, format_breakdown, judge
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.memory.components import ENGINE, GRADIENTS
from cfglint_train.plan.origin import Place
from cfglint_train.runs.run import Run

if TYPE_CHECKING:
    from cfglint_train.fitting.smallest import Solution

RULE: Final = Rule("MEM001", "step-exceeds-gpu", "error", fix="safe", estimates=("gpu",))


def check(run: Run) -> Iterator[Report]:
    """Yield a report if the step does not fit, or is tight on stated hardware."""
    judgement = judge(run, "gpu", STEP_PHASES)
    if judgement is None or judgement.verdict == "fits":
        return
    yield Report(
        f"{judgement.phase.title} {describe_verdict(judgement)}",
        _find_place(run, judgement),
        judgement.severity,
        notes=_list_notes(run, judgement),
        min_certainty=judgement.min_certainty,
        find_remedy=partial(_find_remedy, run, judgement),
        grounds=judgement.grounds,
    )


def _find_remedy(run: Run, judgement: Judgement) -> tuple[Fix | None, str | None]:
    """Return the smallest change with which the step fits, and alternatives."""
    from cfglint_train.fitting.smallest import find_smallest  # imports the fixer, needed only if something is wrong

    solution = find_smallest(run)
    return None if solution is None else solution.fix, _build_help(run, judgement, solution)


def _note_casts(judgement: Judgement) -> tuple[str, ...]:
    """Return a note with the sizes of the allocations that a ZeRO-3 optimizer step needs for casts."""
    from cfglint_train.memory.transients import compute_gradient_casts

    sizes = compute_gradient_casts(judgement.budget.setup) if judgement.phase.name == "optimizer step" else None
    if sizes is None:
        return ()
    return (
        f"gradients are cast to fp32 one sub-group at a time, {format_gib(sizes[0])} each and {format_gib(sizes[1])} "
        "the last",
    )


def _note_awake_engine(run: Run, judgement: Judgement) -> tuple[str, ...]:
    """Return a note if the inference engine stays on the GPU during training although it could sleep."""
    engine_bytes = sum(size for component, size in judgement.budget.sizes if component is ENGINE)
    if (
        not engine_bytes
        or run.plan.rollout.sleep is not False
        or run.framework.explain_unwritable("rollout.sleep") is not None
    ):
        return ()
    return (
        f"the engine keeps {format_gib(engine_bytes)} of the GPU while the model is trained, unless "
        f"`{run.spell_key('rollout.sleep')}` "
        "is on",
    )


def _find_place(run: Run, judgement: Judgement) -> Place:
    """Return the place of the sharding settings if the largest component is sharded, else that of the batch."""
    if judgement.budget.largest.spread:
        return run.find_place("parallel.zero_stage", "parallel.strategy", "model.id", "batch.micro")
    return run.find_place("batch.micro", "sequence.length", "model.id")


_MIN_SHARE: Final = 0.01
"""Share of the peak below which gradients (of adapters) are not worth a note."""


def _list_notes(run: Run, judgement: Judgement) -> tuple[str, ...]:
    """Return the breakdown of the step, and notes on memory that settings could save.

    FSDP keeps whole gradients while it accumulates them.
    """
    notes = (format_breakdown(judgement.budget), *_note_awake_engine(run, judgement), *_note_casts(judgement))
    gradient_bytes = sum(size for component, size in judgement.budget.sizes if component is GRADIENTS)
    if not judgement.budget.setup.sharding.defers_reduction or gradient_bytes < judgement.budget.expected * _MIN_SHARE:
        return notes
    return (
        *notes,
        f"FSDP keeps whole gradients on every GPU between micro batches (`no_sync`): {format_gib(gradient_bytes)} on "
        "any number of "
        f"GPUs, none with `{run.spell_key('batch.accumulation')}: 1`",
    )


def _build_help(run: Run, judgement: Judgement, solution: Solution | None) -> str | None:
    """Return alternatives if no safe change is certain to make the step fit."""
    if judgement.budget.expected <= judgement.capacity:
        return None
    is_safe = solution is not None and solution.applicability == "safe"
    if solution is not None and is_safe and solution.after.verdict == "fits":
        return None
    from cfglint_train.fitting import offload, states
    from cfglint_train.fitting.hardware_needed import find_hardware_needed

    advice = offload.describe_offload(run, solution.changes if solution is not None and is_safe else {})
    if is_safe:
        return advice
    hardware = find_hardware_needed(run)
    parts = [advice or states.describe_smaller_states(run), f"else {hardware.description}" if hardware else ""]
    return "; ".join(part for part in parts if part).removeprefix("else ") or None
