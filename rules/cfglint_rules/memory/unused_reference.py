"""MEM010 unused-reference: the run loads a reference model, but the KL coefficient is 0.

## What it does
Reports a reference model that the framework loads although the KL penalty has a coefficient of 0. The message gives the
memory or the number of GPUs that the model takes.

## Why is this bad?
The reference model is used only for the KL penalty. With a coefficient of 0, its forward pass over each answer changes
nothing. Its weights still take the memory of a whole model, or separate GPUs.

## Example
    # cfglint: openrlhf=0.5.9
    --init_kl_coef 0

## Use instead
    # cfglint: openrlhf=0.6.0
    --init_kl_coef 0

## When it does not apply
Silent for releases that skip the reference model in this case: OpenRLHF 0.6.0 and later, and axolotl's GRPO trainer if
`beta` is 0.

## References
OpenRLHF 0.5.9 `cli/train_ppo_ray.py` and `cli/train_ppo.py` (a reference model is always loaded), 0.6.0 (not if
`init_kl_coef` is 0), 0.11.2 (only if it is above 0).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.findings.verdicts import judge
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.budget import STEP_PHASES
from cfglint_train.plan.fields import Role
from cfglint_train.runs.run import Run

RULE: Final = Rule("MEM010", "unused-reference", "warning", needs={"model.roles": (), "rollout.kl_coefficient": ()})


def check(run: Run) -> Iterator[Report]:
    """Yield a report if the run loads a reference model that has no effect."""
    coefficient = run.plan.rollout.kl_coefficient
    reference = next((role for role in run.plan.model.roles or () if role.name == "reference"), None)
    if reference is None or coefficient is None or coefficient > 0:
        return
    release, title = run.framework.traits.drops_reference_since, run.framework.title
    yield Report(
        f"the reference model {_describe_cost(run, reference)} but has no effect: "
        f"`{run.spell_key('rollout.kl_coefficient')}` is "
        f"{coefficient:g}",
        run.find_place("rollout.kl_coefficient"),
        help=f"upgrade to {title} {release} or later, which loads no reference model in this case" if release else None,
    )


def _describe_cost(run: Run, reference: Role) -> str:
    """Return the cost of the reference model, as a verb phrase: separate GPUs, or memory on the actor's GPUs."""
    actor = next((role for role in run.plan.model.roles or () if role.name == "actor"), None)
    if actor is not None and reference.pool != actor.pool and reference.nodes and reference.gpus_per_node:
        count = reference.nodes * reference.gpus_per_node
        return f"takes {count} GPU{'s' * (count > 1)}"
    judgement = judge(run, "gpu", STEP_PHASES)
    colocated_models = () if judgement is None else judgement.budget.setup.neighbours
    size = sum(model.bytes for model in colocated_models if model.role == "reference")
    return f"takes {format_gib(int(size))} of each GPU" if size else "is loaded"
