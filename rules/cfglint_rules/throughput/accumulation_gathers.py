"""PRF007 accumulation-gathers: sharded weights are gathered for every micro batch, and larger micro batches would fit.

## What it does
Checks runs with sharded weights (FSDP, ZeRO-3) on a stated GPU. It estimates larger micro batches with the same
effective batch, and reports the largest one that fits. The rule is silent if that saves less than a quarter of the
traffic between ranks.

## Why is this bad?
Each micro batch gathers all weights for its forward pass and again for its backward pass. It also reduces its
gradients, unless FSDP defers that to the last micro batch. Without that deferral, eight micro batches of one sequence
move eight times as many bytes as one micro batch of eight sequences.

## Example
    # cfglint: gpu=H100 nodes=1 gpus-per-node=8
    micro_batch_size: 1
    gradient_accumulation_steps: 8

## Use instead
    micro_batch_size: 4
    gradient_accumulation_steps: 2

## Fix safety
Unsafe: it replaces a setting that works. If samples are padded to the longest in their batch, larger batches also
contain more padding. The effective batch stays the same. PRF005, PRF006, PRF007 and PRF008 share the free memory in
this order, so that all their fixes fit together. A file that several runs share is not changed.

## When it does not apply
Silent on a single rank, if the GPU or the number of ranks is not stated, or if the weights are not sharded. Silent for
batches that are filled up to a number of tokens.

## References
ZeRO, arXiv:1910.02054, section 7 (what each stage communicates); PyTorch FSDP, arXiv:2304.11277, section 3.3.4
(accumulation with and without communication); docs/memory/sharding.md.
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
    "PRF007",
    "accumulation-gathers",
    "info",
    fix="unsafe",
    writes=("batch.accumulation", "batch.micro"),
    estimates=("gpu",),
    capacities=("gpu",),
)


def check(run: Run) -> Iterator[Report]:
    """Yield a report if larger micro batches with less accumulation fit and save enough traffic."""
    if (run.plan.batch.accumulation or 1) < 2:
        return
    from cfglint_train.fitting import speedups  # imports the fixer, needed only if gradients are accumulated

    offer = speedups.find_speedup(run, "accumulation")
    if offer is None:
        return
    before, after = speedups.compute_rank_traffic(offer.before), speedups.compute_rank_traffic(offer.after)
    yield Report(
        f"weights are gathered for each of {offer.before.batch.accumulation} micro batches per step; "
        f"{offer.after.batch.accumulation} larger {'one' if offer.after.batch.accumulation == 1 else 'ones'} would "
        f"need {format_gib(offer.expected)} of {format_gib(run.hardware.gpu_bytes or 0)} per GPU",
        run.find_place("batch.accumulation", "batch.micro"),
        min_certainty="followed",
        fix=Fix("unsafe", format_changes(run, offer.changes), offer.changes, uses_estimate=True),
        notes=(
            f"estimated gain: {format_gib(int(after))} instead of {format_gib(int(before))} received from other "
            "ranks per GPU and step",
        ),
    )
