"""MEM009 default-critic: the critic is as large as the actor because its model is not set.

## What it does
Reports a trained critic that gets the actor's model by default and takes at least a tenth of each GPU's memory.

## Why is this bad?
PPO trains two models. If you set no model for the critic, the framework copies the actor's model and adds a value head.
The critic then needs as much memory as the actor: 16 bytes per parameter in mixed precision. A smaller critic, or an
advantage estimator without one, leaves that memory for longer answers.

## Example
    --actor.model_name_or_path Qwen/Qwen2.5-7B --algo.advantage.estimator gae --train.colocate_all

## Use instead
    --actor.model_name_or_path Qwen/Qwen2.5-7B --algo.advantage.estimator reinforce_baseline --train.colocate_all

## When it does not apply
Silent if the critic has its own GPUs (MEM005 checks whether it fits there), or starts from a stated reward model.

## References
OpenRLHF 0.11.2 and 0.6.0 `cli/train_ppo_ray.py` (the critic's model defaults to the reward model, else to the actor's);
docs/memory/states.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.findings.verdicts import judge
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.budget import STEP_PHASES
from cfglint_train.runs.run import Run

RULE: Final = Rule("MEM009", "default-critic", "info", needs={"model.roles": ()}, estimates=("gpu",))

_MIN_SHARE: Final = 0.1
"""Minimum share of a GPU's memory that is reported."""


def check(run: Run) -> Iterator[Report]:
    """Yield a report if a critic with the actor's model takes at least a tenth of each GPU's memory."""
    roles = run.plan.model.roles or ()
    critic = next((role for role in roles if role.name == "critic" and role.unstated), None)
    if critic is None or critic.model != run.plan.model.id:
        return
    judgement = judge(run, "gpu", STEP_PHASES)
    if judgement is None:
        return
    size = sum(model.bytes for model in judgement.budget.setup.neighbours if model.role == "critic")
    if size < _MIN_SHARE * judgement.capacity:
        return
    yield Report(
        f"the critic takes {format_gib(int(size))} of each GPU: `{critic.unstated}` defaults to the actor's model",
        run.find_place("rollout.advantage", "model.id"),
        help=f"set `{critic.unstated}` to a smaller model, or set `{run.spell_key('rollout.advantage')}` to an "
        "estimator without a critic",
    )
