"""PRF005 needless-checkpointing: activation checkpointing slows down a run that fits without it.

## What it does
Estimates the run on a stated GPU without activation checkpointing. Reports checkpointing if every phase still fits with
a third of the GPU's memory to spare. The note gives the share of a step's computation that you save.

## Why is this bad?
Checkpointing keeps only the inputs of each layer and repeats the layer's forward pass before its backward pass. The
extra forward pass is a quarter of the step's computation if all weights are trained, and a third with an adapter. It
saves memory that the run does not need.

## Example
    # cfglint: gpu=H100
    base_model: Qwen/Qwen2.5-1.5B
    adapter: lora
    gradient_checkpointing: true

## Use instead
    gradient_checkpointing: false

## Fix safety
Unsafe: it replaces a setting that works. The loss, the data and resuming are not affected. PRF005, PRF006, PRF007 and
PRF008 share the free memory in this order, so that all their fixes fit together. A file that several runs share is not
changed.

## When it does not apply
Silent if the GPU is not stated, and for multimodal models whose image tokens the estimate does not cover. Silent if the
fix would save less than a fifth of a step's computation.

## References
Chen et al. 2016, arXiv:1604.06174 (one more forward pass); transformers docs, perf_train_gpu_one (v4.21): 7.75
samples/s without, 5.99 with (23 % less); docs/memory/activations.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.findings.wording import format_changes
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Final
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "PRF005",
    "needless-checkpointing",
    "info",
    fix="unsafe",
    writes=("activations.checkpointing",),
    estimates=("gpu",),
    capacities=("gpu",),
)

_FIELD: Final = "activations.checkpointing"
_MIN_SHARE: Final = 0.2
"""Minimum share of a step's computation that is reported."""


def check(run: Run) -> Iterator[Report]:
    """Yield a report if the run fits without activation checkpointing and would be faster."""
    if run.plan.activations.checkpointing in (None, "none"):
        return
    from cfglint_train.fitting import speedups  # imports the fixer, needed only if activations are recomputed

    share, offer = speedups.compute_recomputation(run), speedups.find_speedup(run, "checkpointing")
    if offer is None or share < _MIN_SHARE:
        return
    yield Report(
        f"activations are recomputed (`{run.spell_key(_FIELD)}`), but without that the run "
        f"needs {format_gib(offer.expected)} of {format_gib(run.hardware.gpu_bytes or 0)} per GPU",
        run.find_place(_FIELD),
        min_certainty="followed",
        fix=Fix("unsafe", format_changes(run, offer.changes), offer.changes, uses_estimate=True),
        notes=(f"estimated gain: {100 * share:.0f} % of the computation of a step (the repeated forward pass)",),
    )
