"""The models of a reinforcement-learning job that have their own GPUs, and the passes that only score.

Sources: OpenRLHF 0.9.0 and 0.11.2 (cli/train_ppo_ray.py, trainer/ray/ppo_critic.py, models/actor.py and utils.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.foundation.typed import Any
from cfglint_train.memory.colocated_models import find_role_model
from cfglint_train.memory.plan_reader import Reader
from cfglint_train.models.architecture import Architecture
from cfglint_train.plan.fields import Plan, Role
from cfglint_train.plan.names import Field


def generate_groups(plan: Plan, architecture: Architecture) -> Iterator[tuple[Role, Plan, Architecture]]:
    """Yield each model that does not run on the actor's GPUs, with the plan of its GPUs and its architecture.

    Models that train on the actor's GPUs with a batch of their own are yielded, too. The plan of a trained model
    includes the other trained models on its GPUs. Frozen models are yielded one by one, but not if they share GPUs with
    a trained model. Models of unknown architecture are left out.
    """
    roles = plan.model.roles or ()
    actor = next((role for role in roles if role.name == "actor"), None)
    if actor is None or actor.pool is None:
        return
    trained = {role.pool for role in roles if role.trained}
    for role in roles:
        if role.pool == actor.pool:
            if role is not actor and role.trained and (role.micro or role.tokens_per_gpu):
                yield from _generate_second_update(plan, role, actor, architecture)
            continue
        if not role.nodes or not role.gpus_per_node:
            continue
        if not role.trained and role.pool in trained:
            continue
        model = find_role_model(plan.model.id, role.model, architecture)
        if model is None:
            continue
        pool_mates = tuple(other for other in roles if role.trained and other is not role and other.pool == role.pool)
        changes: dict[Field, Any] = {
            "model.id": role.model,
            "model.roles": (role._replace(name="actor"), *pool_mates),
            "launch.nodes": role.nodes,
            "launch.gpus_per_node": role.gpus_per_node,
            "rollout.engine": "none",
            "method.reference_model": "none",
        }
        if role.name != "reference":  # one value per token, or a score of the answer, instead of logits
            model = _replace_head(model)
            changes["method.stage"] = "rm"
        if not role.trained:
            # DeepSpeed's engine for evaluation uses ZeRO-3 or no sharding (deepspeed.py, get_ds_eval_config).
            changes |= {"method.tuning": "freeze", "method.trainable_layers": 0, "parallel.offload_optimizer": "none"}
            offload = plan.method.reference_offload if role.name == "reference" else role.offload
            changes["parallel.offload_params"] = "cpu" if offload else "none"
        yield role, plan.replace(changes), model


def _generate_second_update(
    plan: Plan, role: Role, actor: Role, architecture: Architecture
) -> Iterator[tuple[Role, Plan, Architecture]]:
    """Yield a model that the job updates on the actor's GPUs, unless its architecture is unknown.

    The actor's states stay beside it, as far as they do not sleep.
    """
    model = find_role_model(plan.model.id, role.model, architecture)
    if model is None:
        return
    rollout = plan.rollout
    # The updated model takes the actor's place, so the actor itself needs another name.
    waiting = actor._replace(name="policy", offload=rollout.weights_sleep, states_offload=rollout.train_sleep)
    changes: dict[Field, Any] = {
        "model.id": role.model or plan.model.id,
        "model.roles": (role._replace(name="actor"), waiting),
        "method.stage": "rm",
        "method.tuning": "full",
        "batch.micro": role.micro,
        "batch.tokens_per_gpu": role.tokens_per_gpu,
        "rollout.weights_sleep": role.offload,
        "rollout.train_sleep": role.states_offload,
    }
    yield role, plan.replace(changes), _replace_head(model)


def _replace_head(model: Architecture) -> Architecture:
    """Return the model with a head of one output in place of the output matrix."""
    head = 0 if model.tied else sum(item.elements for item in model.linears if item.part == "head")
    linears = tuple(item for item in model.linears if item.part != "head")
    return model._replace(parameters=model.parameters - head + model.hidden, linears=linears)


def count_scoring_tokens(reader: Reader) -> int | None:
    """Return the number of tokens of a rank in a micro batch of a scoring pass, or None if it is unknown.

    Ranks of context parallelism share its sequences (OpenRLHF 0.8.9, models/actor.py forward; verl 0.9.1,
    workers/engine/fsdp/transformer_impl.py prepare_model_inputs).
    """
    budget = reader.get("rollout.tokens_per_gpu")
    micro, length = reader.get("rollout.micro"), reader.get("sequence.length")
    if budget:
        return int(budget)
    return -(-micro * length // (reader.get("parallel.context") or 1)) if micro and length else None
