"""The other models of a reinforcement-learning job that share the actor's GPUs."""

from __future__ import annotations

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.memory.formats import Formats
from cfglint_train.memory.plan_reader import Reader
from cfglint_train.memory.ranks import Ranks, read_model_part
from cfglint_train.models.architecture import Architecture


class ColocatedModel(Frozen):
    """Another model of the job on the same GPUs."""

    role: str
    bytes: float
    """Bytes on one GPU."""
    elements: int = 0
    """Elements of the model, or of the part of it that one rank holds."""
    trained: bool = False
    offloaded: bool = False
    """True if its shards stay on the host until they are used."""
    sleeps: bool = False
    """True if its optimizer states stay on the host until its update (verl's `optimizer_offload`)."""
    keeps_root: bool = False
    """True if FSDP1's root unit stays gathered after its passes; the model has the actor's architecture."""


def find_colocated_models(
    reader: Reader, architecture: Architecture, ranks: Ranks, formats: Formats, optimizer: float | None
) -> tuple[ColocatedModel, ...]:
    """Return the other models on the actor's GPUs, or nothing if the roles or the actor's pool are unknown.

    A model of unknown size is left out, and `model.roles` is added to `reader.missing`. `architecture`: the rank's part
    of the actor. `optimizer`: bytes of optimizer state per element.
    """
    roles = reader.get("model.roles")
    if not roles:
        return ()
    actor = next((role for role in roles if role.name == "actor"), None)
    if actor is None or actor.pool is None:
        return ()
    models: list[ColocatedModel] = []
    for role in roles:
        if role is actor or role.pool != actor.pool:
            continue
        elements = _count_rank_elements(reader, role.model, architecture, ranks)
        if elements is None:
            reader.missing.append("model.roles")
            continue
        if role.trained:
            sleeps, offloaded = ranks.fsdp and bool(role.states_offload), ranks.fsdp and bool(role.offload)
            states = formats.master + (optimizer or 0)
            if sleeps or reader.is_offloaded("parallel.offload_optimizer"):
                states = 0.0
            element_bytes = 0.0 if offloaded else formats.held / ranks.parameter_shards
            element_bytes += states / ranks.optimizer_shards
            if ranks.zero_stage == 3 and states:
                element_bytes += formats.gradient / ranks.gradient_shards
            size = elements * element_bytes
            if not ranks.fsdp and reader.get("rollout.train_sleep"):
                # Only one trained model is awake at a time (OpenRLHF 0.9.0, ppo_trainer.py ppo_train): both keep their
                # 16-bit weights, beside the states of the larger model (deepspeed_utils.py, offload_deepspeed_states).
                asleep = formats.held / ranks.parameter_shards
                size = elements * asleep + max(0, elements - architecture.parameters) * (element_bytes - asleep)
            models.append(ColocatedModel(role.name, size, elements, True, offloaded, sleeps))
        else:
            # Under DeepSpeed, offload works only under ZeRO-3; other stages put the whole model on every GPU. FSDP's
            # CPU offload gathers unit by unit.
            offload = role.offload or (role.name == "reference" and reader.get("method.reference_offload"))
            offloaded = (ranks.zero_stage == 3 or ranks.fsdp) and bool(offload)
            size = 0.0 if offloaded else elements * formats.unquantized / (ranks.parameter_shards or 1)
            keeps_root = bool(role.keeps_root) and ranks.strategy == "fsdp1" and ranks.parameter_shards > 1
            models.append(ColocatedModel(role.name, size, elements, offloaded=offloaded, keeps_root=keeps_root))
    return tuple(models)


def _count_rank_elements(reader: Reader, model: str | None, architecture: Architecture, ranks: Ranks) -> int | None:
    """Return the elements of one rank's part of a role's model, or None if the model is unknown.

    OpenRLHF splits every model by tensor parallelism (0.8.9, deepspeed.py: _ds_init_train_model, ds_init_eval_model).
    """
    actor = reader.get("model.id")
    if model is None or model == actor:
        return architecture.parameters
    whole = find_role_model(actor, model, architecture)
    return None if whole is None else read_model_part(reader, ranks, whole, 1, last=False)[0].parameters


def count_role_elements(actor: str | None, model: str | None, architecture: Architecture) -> int | None:
    """Return the elements of a role's model (the actor's if none is stated), or None if it is unknown."""
    role_model = architecture if model is None else find_role_model(actor, model, architecture)
    return None if role_model is None else role_model.parameters


def find_role_model(actor: str | None, model: str | None, architecture: Architecture) -> Architecture | None:
    """Return the architecture of a role's model, or None if unstated or unknown; `architecture` is the actor's."""
    if model is None:
        return None
    if model == actor:
        return architecture
    from cfglint_train.models.lookup import find_entry

    return find_entry(model)
