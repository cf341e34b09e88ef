"""PRF006 sharded-across-nodes: weights are gathered over the network, and a copy per node would fit.

## What it does
Estimates a run on several stated nodes with a stated GPU whose weights are sharded over all ranks. Where it also fits
with the weights sharded inside each node (FSDP's hybrid sharding, `zero_hpz_partition_size` of DeepSpeed), and that
saves a quarter or more of the bytes between nodes, it reports the bytes before and after.

## Why is this bad?
Full sharding gathers each layer's weights for the forward and for the backward pass, and between nodes that goes over
a network which is several times slower than the links inside a node. With a copy per node only gradients cross it
(FSDP), or only the gathering of the forward pass (ZeRO++).

## Example
    # cfglint: gpu=H100 nodes=2 gpus-per-node=8
    {"zero_optimization": {"stage": 3}}

## Use instead
    {"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}}

## Fix safety
Unsafe: it replaces a choice that works, and checkpoints of FSDP's sharded format may not be resumed with another
sharding. Free memory is offered once, in the order PRF005, PRF006, PRF007, PRF008, so that all these fixes together
fit. A file that several runs share is not rewritten.

## When it does not apply
Silent where no file states the GPU or the number of nodes, where the host's memory is not stated and saving or loading
would need more of it (checkpoints in shards), and for settings that cannot be rewritten alone: the FSDP1 section of
axolotl, `fsdp` of LLaMA-Factory and TRL, and FSDP2 in accelerate's file, whose `parallelism_config` must multiply to
the number of GPUs.

## References
PyTorch FSDP, arXiv:2304.11277, section 3.2.2 (hybrid sharding); ZeRO++, arXiv:2306.10209, section 3.2 (hpZ);
docs/memory/sharding.md.
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
    "PRF006",
    "sharded-across-nodes",
    "info",
    fix="unsafe",
    writes=("parallel.replicas", "parallel.secondary_partition", "parallel.sharding"),
    estimates=("gpu",),
)


def check(run: Run) -> Iterator[Report]:
    """Yield a report if a copy per node fits."""
    if (run.plan.launch.nodes or 1) < 2:
        return
    from cfglint_train.fitting import speedups  # imports the fixer, needed only with several nodes

    offer = speedups.find_speedup(run, "hybrid")
    if offer is None:
        return
    before, after = speedups.compute_node_traffic(offer.before), speedups.compute_node_traffic(offer.after)
    yield Report(
        f"weights are gathered over {offer.before.ranks.nodes} nodes, and a copy per node fits: "
        f"{format_gib(offer.expected)} "
        f"expected per GPU, {format_gib(run.hardware.gpu_bytes or 0)} available",
        run.find_place("parallel.sharding", "parallel.zero_stage", "parallel.strategy"),
        min_certainty="followed",
        fix=Fix("unsafe", format_changes(run, offer.changes), offer.changes, uses_estimate=True),
        notes=(
            f"estimated gain: {format_gib(int(after))} instead of {format_gib(int(before))} from other nodes per node "
            "and step",
        ),
    )
