"""PRF006 sharded-across-nodes: weights are gathered over the network although a copy per node would fit.

## What it does
Checks runs that shard weights over all ranks of several nodes, if the nodes and the GPU are stated. It estimates the
run with weights sharded only within each node: FSDP's hybrid sharding, or DeepSpeed's `zero_hpz_partition_size`. It
reports the traffic before and after if the run still fits and at least a quarter of the traffic between nodes is saved.

## Why is this bad?
Full sharding gathers the weights of each layer for the forward and the backward pass. Between nodes, this traffic uses
a network that is several times slower than the links inside a node. With a copy per node, FSDP sends only gradients
over the network. ZeRO++ still sends gradients and the weights for the forward pass, but not those for the backward
pass.

## Example
    # cfglint: gpu=H100 nodes=2 gpus-per-node=8
    {"zero_optimization": {"stage": 3}}

## Use instead
    {"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}}

## Fix safety
Unsafe: it replaces a setting that works. With the new sharding, the run may not be able to resume from FSDP's sharded
checkpoints. PRF005, PRF006, PRF007 and PRF008 share the free memory in this order, so that all their fixes fit
together. A file that several runs share is not changed.

## When it does not apply
The rule is silent:

- if the GPU or the number of nodes is not stated
- if saving or loading sharded checkpoints would need more host memory, and the host memory is not stated
- for settings that cannot be changed on their own: axolotl's FSDP1 section, and `fsdp` in LLaMA-Factory and TRL

FSDP2 in an accelerate file cannot be changed on its own either, because the sizes in its `parallelism_config` must
multiply to the number of GPUs.

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
    capacities=("gpu",),
)


def check(run: Run) -> Iterator[Report]:
    """Yield a report if a copy of the weights per node fits and saves enough traffic between nodes."""
    if (run.plan.launch.nodes or 1) < 2:
        return
    from cfglint_train.fitting import speedups  # imports the fixer, needed only with several nodes

    offer = speedups.find_speedup(run, "hybrid")
    if offer is None:
        return
    before, after = speedups.compute_node_traffic(offer.before), speedups.compute_node_traffic(offer.after)
    yield Report(
        f"weights are gathered across {offer.before.ranks.nodes} nodes, but a copy per node would fit: "
        f"{format_gib(offer.expected)} expected per GPU, {format_gib(run.hardware.gpu_bytes or 0)} available",
        run.find_place("parallel.sharding", "parallel.zero_stage", "parallel.strategy"),
        min_certainty="followed",
        fix=Fix("unsafe", format_changes(run, offer.changes), offer.changes, uses_estimate=True),
        notes=(
            f"estimated gain: {format_gib(int(after))} instead of {format_gib(int(before))} received from other "
            "nodes per node and step",
        ),
    )
