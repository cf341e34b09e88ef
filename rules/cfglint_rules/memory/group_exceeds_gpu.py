"""MEM005 group-exceeds-gpu: a model trained on its own GPUs, or in its own step, does not fit there.

## What it does
Estimates a training step for each model with its own group of GPUs (the critic, for example), or with its own micro
batch on the actor's GPUs. It includes the models that share those GPUs, and compares the result with the GPU's memory.

## Why is this bad?
The critic is often larger than the actor because it starts from the reward model, and its group is often smaller. The
job fails with CUDA out of memory when it creates the critic's optimizer states, after everything else has been loaded.

## Symptoms
CUDA out of memory in the critic, reward or reference model, OOM.

## Example
    --pretrain meta-llama/Llama-3.2-1B --reward_pretrain meta-llama/Meta-Llama-3-8B-Instruct
    --critic_num_nodes 1 --critic_num_gpus_per_node 1

## Use instead
    --critic_num_nodes 1 --critic_num_gpus_per_node 8

## When it does not apply
Silent if the group's model, nodes or GPUs are unknown. A critic that shares the actor's GPUs and batch is part of
MEM001. The estimate uses the actor's settings for the group, so the finding is an info unless even the lower bound does
not fit.

## References
OpenRLHF 0.9.0 `cli/train_ppo_ray.py`, `trainer/ray/ppo_critic.py`; verl 0.9.1 `workers/engine/base.py`;
docs/memory/states.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.findings.verdicts import name_quantity
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Final
from cfglint_train.runs.run import Run

RULE: Final = Rule("MEM005", "group-exceeds-gpu", "error", needs={"model.roles": ()}, estimates=("gpu",))


def check(run: Run) -> Iterator[Report]:
    """Yield a report for every trained model whose own step does not fit."""
    capacity, roles = run.hardware.gpu_bytes, run.plan.model.roles or ()
    pool = next((role.pool for role in roles if role.name == "actor"), None)
    for role in roles:
        phase = run.estimate.find_phase(role.name) if role.trained else None
        if phase is None or phase.gpu is None or capacity is None or phase.gpu.expected <= capacity:
            continue
        is_certain, is_beside = phase.gpu.low > capacity, role.pool == pool
        place = "beside the actor" if is_beside else "on its own GPUs"
        remedy = f"use smaller micro batches for the {role.name}" if is_beside else f"give the {role.name} more GPUs"
        yield Report(
            f"the {role.name} {'does' if is_certain else 'probably does'} not fit {place}: "
            f"{format_gib(phase.gpu.expected)} per GPU expected, "
            f"{format_gib(capacity)} available",
            run.find_place("model.roles", "launch.gpus_per_node"),
            "error" if is_certain else "info",
            notes=(f"{role.model} on {role.nodes} x {role.gpus_per_node} GPUs",),
            help=f"{remedy}, or offload its optimizer states",
            min_certainty="assumed" if is_certain else "followed",
            quantity=name_quantity("gpu", (role.name,)),
        )
