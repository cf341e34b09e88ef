"""MEM001 step-exceeds-gpu: the training step needs more memory than the GPU has.

## What it does
Estimates the peak memory of the forward pass, backward pass and optimizer step on the GPU that needs the most, and
compares it with the GPU's memory. The finding is an error if even the lower bound of the estimate exceeds that
memory, and a warning if the interval includes it. The message breaks the peak down into its parts. Loading the model
and saving a checkpoint are reported, as warnings, if they need more than the step: no measurement covers them. They
are a part of the finding on the step if there is one.

## Why is this bad?
The job fails with CUDA out of memory (OOM), usually in the first or second step. A successful first step proves
nothing: optimizer states are allocated lazily, and ZeRO-3 prefetches weights only from the second forward pass on.

## Symptoms
CUDA out of memory, OOM, `torch.OutOfMemoryError`, GPU memory, VRAM.

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
The fix is the smallest change that makes the step fit, as shown by `cfglint fit`. It first sets what the files leave
open (activation checkpointing, a fused loss). Then it changes stated values: a smaller micro batch with more
accumulation, so that the effective batch stays the same. This is safe, because the run could not have used the larger
micro batch.

The fix is unsafe if you give up more: with offloading, another ZeRO stage or, as a last resort, LoRA or shorter
sequences. Its message then names what you give up. If the step is only tight, a fix that costs time is unsafe. The fix
is always applied as a whole.

## When it does not apply
Silent for unknown models, unknown lengths and architectures without a formula. If the GPU is not stated, the rule
assumes 80 GB. If the number of nodes or GPUs is not stated, it assumes the fewest nodes of 8 GPUs that the stated
parallelism needs. The message then names the assumption, and the finding is at most a warning. If the expected peak
exceeds a stated GPU, but the lower bound does not, a finding that rests on another assumption is an info.

If samples are concatenated without padding, cfglint may assume only one full-length sample per micro batch. If the step
exceeds the memory only when all samples have the full length, the finding is an info. It is a warning if the release is
not stated and a candidate release fills all packs to the full length, as TRL does before 0.19.0.

## References
The pages of docs/memory-model.md derive every term; docs/fit.md lists the changes and their costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import SEVERITIES, Fix, Report
from cfglint_train.findings.verdicts import (
    EDGE_PHASES,
    Judgement,
    describe_own_runs,
    describe_verdict,
    format_breakdown,
    judge,
)
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.memory.budget import STEP_PHASES, VERDICTS
from cfglint_train.memory.components import ENGINE, GRADIENTS
from cfglint_train.plan.origin import Place
from cfglint_train.runs.run import Run

if TYPE_CHECKING:
    from cfglint_train.fitting.smallest import Solution

RULE: Final = Rule("MEM001", "step-exceeds-gpu", "error", fix="safe", estimates=("gpu",))


_MIN_SHARE: Final = 0.01
"""Share of the peak below which a part gets no note. The gradients of adapters are usually smaller."""


def check(run: Run) -> Iterator[Report]:
    """Yield a report if the step does not fit or is tight, and another if loading or saving is worse."""
    step, edge = judge(run, "gpu", STEP_PHASES), judge(run, "gpu", EDGE_PHASES)
    if step is not None and step.verdict != "fits":
        yield _build_report(run, step, _find_place(run, step), partial(_find_remedy, run, step))
    if edge is None or edge.verdict in ("fits", "tight"):
        return
    if step is None or _get_rank(edge) > _get_rank(step):
        report = _build_report(run, edge, run.find_place("model.id"), partial(_find_edge_remedy, run))
        yield report._replace(severity=max(edge.severity, "warning", key=SEVERITIES.index), left_to=RULE.code)


def _get_rank(judgement: Judgement) -> tuple[int, int]:
    return VERDICTS.index(judgement.verdict), judgement.budget.expected


def _build_report(
    run: Run, judgement: Judgement, place: Place, find_remedy: Callable[[], tuple[Fix | None, str | None]]
) -> Report:
    return Report(
        f"{judgement.phase.title} {describe_verdict(judgement)}",
        place,
        judgement.severity,
        notes=_list_notes(run, judgement),
        min_certainty=judgement.min_certainty,
        assumed_severity=judgement.assumed_severity,
        find_remedy=find_remedy,
        grounds=judgement.grounds,
        quantity=judgement.quantity,
    )


def _find_edge_remedy(run: Run) -> tuple[Fix | None, str | None]:
    """Return the smallest change with which the step, loading and saving fit, or None; the help is None."""
    if run.is_scenario:
        return None, None
    from cfglint_train.fitting.smallest import find_smallest_for  # imports the fixer, needed only if something is wrong

    solution = find_smallest_for(run, (*STEP_PHASES, *EDGE_PHASES))
    return None if solution is None else solution.fix, None


def _find_remedy(run: Run, judgement: Judgement) -> tuple[Fix | None, str | None]:
    """Return the smallest change with which the step fits, or None, and a help that lists alternatives, or None."""
    from cfglint_train.fitting.smallest import find_smallest  # imports the fixer, needed only if something is wrong

    solution = find_smallest(run)
    return None if solution is None else solution.fix, _build_help(run, judgement, solution)


def _note_casts(judgement: Judgement) -> tuple[str, ...]:
    """Return a note with the sizes of the fp32 gradient buffers if the peak is a ZeRO-3 optimizer step."""
    from cfglint_train.memory.transients import compute_gradient_casts

    sizes = compute_gradient_casts(judgement.budget.setup) if judgement.phase.name == "optimizer step" else None
    if sizes is None:
        return ()
    return (
        f"gradients are cast to fp32 one sub-group at a time: {format_gib(sizes[0])} each, {format_gib(sizes[1])} for "
        "the last one",
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
        f"the engine keeps {format_gib(engine_bytes)} of GPU memory during training unless "
        f"`{run.spell_key('rollout.sleep')}` is enabled",
    )


def _note_kept_inputs(judgement: Judgement) -> tuple[str, ...]:
    """Return a note if bitsandbytes keeps the inputs of frozen matrices, which other weights would not need."""
    from cfglint_train.memory.activations import compute_kept_inputs

    size = compute_kept_inputs(judgement.budget.setup)
    if size < judgement.budget.expected * _MIN_SHARE:
        return ()
    return (
        f"bitsandbytes keeps the inputs of frozen matrices: {format_gib(size)}; 16-bit weights or "
        "activation checkpointing avoid them",
    )


def _find_place(run: Run, judgement: Judgement) -> Place:
    """Return the place of the sharding settings if the largest component is sharded, else that of the batch."""
    if judgement.budget.largest.spread:
        return run.find_place("parallel.zero_stage", "parallel.strategy", "model.id", "batch.micro")
    return run.find_place("batch.micro", "sequence.length", "model.id")


def _list_notes(run: Run, judgement: Judgement) -> tuple[str, ...]:
    """Return the breakdown of the step, and notes on memory that a setting could free.

    One note is about the full gradients that FSDP keeps between micro batches.
    """
    own_runs = describe_own_runs(judgement.budget)
    notes = (
        format_breakdown(judgement.budget),
        *((f"interval: {own_runs}",) if own_runs else ()),
        *_note_awake_engine(run, judgement),
        *_note_casts(judgement),
        *_note_kept_inputs(judgement),
    )
    gradient_bytes = sum(size for component, size in judgement.budget.sizes if component is GRADIENTS)
    if not judgement.budget.setup.sharding.defers_reduction or gradient_bytes < judgement.budget.expected * _MIN_SHARE:
        return notes
    return (
        *notes,
        f"FSDP keeps full gradients on every GPU between micro batches (`no_sync`): {format_gib(gradient_bytes)} on "
        f"any number of GPUs, or none with `{run.spell_key('batch.accumulation')}: 1`",
    )


def _build_help(run: Run, judgement: Judgement, solution: Solution | None) -> str | None:
    """Return alternatives if no safe change is sure to make the step fit, or None. A tight step gets no help."""
    if judgement.budget.expected <= judgement.capacity:
        return None
    is_safe = solution is not None and solution.applicability == "safe"
    if solution is not None and is_safe and solution.after.verdict == "fits":
        return None
    from cfglint_train.fitting import offload, states
    from cfglint_train.fitting.hardware_needed import find_hardware_needed

    if solution is not None and is_safe:
        return offload.describe_offload(run, solution.changes)
    sufficient = offload.find_sufficient(run)
    advice = offload.describe_offload(run, {}) if sufficient is None else sufficient.text
    hardware = find_hardware_needed(run)
    smaller, larger = advice or states.describe_smaller_states(run), hardware.description if hardware else ""
    separator = "; or " if larger.startswith("use ") else "; "
    return separator.join(filter(None, (smaller, larger))) or None
