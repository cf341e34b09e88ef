"""PAR001 placement-exceeds-cluster: the job requests more GPUs than the cluster has and waits forever.

## What it does
Adds up the GPUs that the groups of a Ray job request, and compares the sum with the stated cluster. The groups are the
trained models, the reference model, the reward model and the inference engines. GPUs that several groups share count
once.

## Why is this bad?
Ray does not reject the job. Without a message, the job waits for a placement group that the cluster can never provide,
until it is cancelled.

## Symptoms
Waits forever for resources, Ray placement group pending, hangs.

## Example
    # cfglint: nodes=1 gpus-per-node=8
    --actor_num_gpus_per_node 8 --critic_num_gpus_per_node 8 --ref_num_gpus_per_node 8 --reward_num_gpus_per_node 8
    --vllm_num_engines 8

## Use instead
    --colocate_all_models --vllm_enable_sleep --deepspeed_enable_sleep

## When it does not apply
Silent unless the number of nodes and GPUs per node is stated. Ignore the rule on a cluster that scales on demand.

## References
OpenRLHF 0.9.0 `cli/train_ppo_ray.py`, `trainer/ray/launcher.py` (ray.get(pg.ready())); OpenRLHF/OpenRLHF#930, #566.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.foundation.typed import Final
from cfglint_train.runs.run import Run

RULE: Final = Rule("PAR001", "placement-exceeds-cluster", "error", needs={"launch.groups": ()})


def check(run: Run) -> Iterator[Report]:
    """Yield a report if the cluster is too small for the job."""
    groups, (nodes, per_node) = run.plan.launch.groups, run.cluster
    if groups is None or nodes is None or per_node is None:
        return
    requested = sum(gpus for _, gpus in groups)
    if requested > nodes * per_node:
        yield Report(
            f"the job requests {requested} GPUs from Ray, but the cluster has {nodes * per_node}: it waits forever",
            run.find_place("launch.groups"),
            help=f"share GPUs between the models, or start {-(-requested // per_node)} nodes of {per_node} GPUs",
            notes=tuple(f"{name}: {gpus} GPUs" for name, gpus in groups),
        )
