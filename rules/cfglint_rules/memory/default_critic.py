"""MEM009 default-critic: the critic is as large as the actor, because no model is stated for it.

## What it does
Reports a trained critic whose model the framework takes from the actor, where its weights, gradients and optimizer
states take a tenth of a GPU or more.

## Why is this bad?
Proximal policy optimisation trains two models. Where no model is stated for the second one, it is a copy of the first
with a value head, and needs as much memory for its states: 16 bytes per parameter in mixed precision. A critic of
a smaller size, or an estimator of advantages that needs none, leaves that memory to longer answers.

## Example
    --actor.model_name_or_path Qwen/Qwen2.5-7B --algo.advantage.estimator gae --train.colocate_all

## Use instead
    --actor.model_name_or_path Qwen/Qwen2.5-7B --algo.advantage.estimator reinforce_baseline --train.colocate_all

## When it does not apply
Silent for a critic on GPUs of its own (MEM005 checks whether it fits there), and for one that starts from a stated
reward model.

## References
OpenRLHF 0.11.2 and 0.6.0 `cli/train_ppo_ray.py` (the critic's model defaults to the reward model, else to the actor's);
docs/memory/states.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.findings.verdicts import STEP_PHASES, judge
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Final
from cfglint_train.runs.run import Run

RULE: Final = Rule("MEM009", "default-critic", "info", needs={"model.roles": ()}, estimates=("gpu",))

_MIN_SHARE: Final = 0.1
"""Smallest share of a GPU that is reported."""


def check(run: Run) -> Iterator[Report]:
    """Yield a report if the critic takes at least a tenth of a GPU."""
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
        help=f"set `{critic.unstated}` to a smaller model, or a `{run.spell_key('rollout.advantage')}` without a "
        "critic",
    )
