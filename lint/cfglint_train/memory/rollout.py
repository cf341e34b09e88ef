"""Generation during training: memory of an inference engine that shares the GPU with the training job."""

from __future__ import annotations

from cfglint_train.foundation.typed import Final
from cfglint_train.memory import transients
from cfglint_train.memory.calibration import load_table
from cfglint_train.memory.setup import Setup
from cfglint_train.memory.size import label_count
from cfglint_train.models.architecture import Architecture
from cfglint_train.plan.fields import Plan


def compute_engine_pool(plan: Plan, capacity: float | None) -> float | None:
    """Return the bytes of an awake engine on a shared GPU (its share of the capacity), or None if unknown.

    vLLM is sized for an empty GPU, regardless of the memory that training uses, unless `rollout.includes_training`.
    The result is 0 if no engine shares the GPU.
    """
    rollout = plan.rollout
    if rollout.engine in (None, "none", "hf") or rollout.mode != "colocate":
        return 0.0
    if rollout.utilization is None or capacity is None:
        return None
    return rollout.utilization * capacity


BYTES_PER_WEIGHT: Final = 2
"""Bytes per weight in an engine, which loads 16-bit weights."""


def compute_engine_weights(plan: Plan, architecture: Architecture | None) -> float | None:
    """Return the bytes of weights that vLLM must fit into its share of a GPU; None if unknown or if it shares none."""
    rollout = plan.rollout
    if rollout.engine != "vllm" or rollout.mode not in ("colocate", "pool") or not rollout.tensor:
        return None
    if architecture is None or architecture.quantization is not None:
        return None
    return _divide_weights(plan, architecture)


def _divide_weights(plan: Plan, architecture: Architecture) -> float:
    """Return the bytes of weights on each rank of an engine.

    With expert parallelism, the routed experts are divided among more ranks than the other weights (verl 0.9.1
    workers/config/rollout.py: expert_parallel_size is the tensor parallel size x the data parallel size).
    """
    tensor = plan.rollout.tensor or 1
    experts = architecture.expert_parameters
    elements = (architecture.parameters - experts) / tensor + experts / max(tensor, plan.rollout.expert or 1)
    return elements * BYTES_PER_WEIGHT


def compute_gathered_model(setup: Setup, plan: Plan) -> float:
    """Return the bytes of the model that ZeRO-3 gathers on every GPU while the training code generates; else 0.

    These are the trained and the frozen weights (trl 1.5.0 models/utils.py, unwrap_model_for_generation).
    """
    rollout = plan.rollout
    if rollout.engine != "hf" or not rollout.gathers or setup.ranks.zero_stage != 3:
        return 0.0
    frozen = setup.frozen_bytes if setup.weights.adapters else setup.weights.frozen * setup.formats.gathered
    return setup.weights.trained * setup.formats.gathered + frozen


def compute_sync(setup: Setup, plan: Plan) -> tuple[float, float] | None:
    """Return the bytes of new weights for an engine, beside the weights of model and engine; None if unknown.

    These are the bytes while training collects its weights, and while it sends them. FSDP1 copies its shards, after it
    has gathered them in their own format: the root with one unit, or with a copy of the root's largest tensor (torch
    2.13, fsdp/_state_dict_utils.py and _shard_utils.py `_create_chunk_dtensor`). It gathers the whole model to collect
    an adapter (`summon_full_params`). Then one tensor at a time is gathered and copied into the buffer (verl 0.9.1,
    workers/engine/fsdp/transformer_impl.py get_per_tensor_param; vllm_rollout/bucketed_weight_transfer.py).
    """
    bucket = plan.rollout.sync_bucket
    if bucket is None or plan.rollout.mode != "colocate":
        return None
    ranks, weights, held = setup.ranks, setup.weights, setup.formats.held
    if weights.adapters:
        unit = transients.count_root_elements(setup) + transients.count_unit_elements(setup)
        whole = setup.frozen_sharded if plan.rollout.gathers else setup.formats.unquantized * unit
        return whole + weights.trained * held, weights.trained * held
    head = transients.count_head_elements(setup)
    sent = bucket + held * max(setup.architecture.largest_tensor, head)
    if ranks.strategy != "fsdp1":
        return 0.0, sent
    copied = weights.trained * held / ranks.parameter_shards
    gathered = held * (transients.count_root_elements(setup) + max(transients.count_unit_elements(setup), head))
    return copied + gathered, copied + sent


def compute_sleep_residue(setup: Setup, plan: Plan, woken: bool = False) -> float:
    """Return the bytes that a sleeping engine leaves on the GPU.

    `woken`: whether its weights are back on the GPU because training has sent new weights. Level 1 of vLLM's sleep
    mode moves the weights to the host; level 2 discards them.
    """
    weights = _divide_weights(plan, setup.whole) if woken else 0.0
    residue = load_table().coefficients["sleep-residue"].expected
    return weights + label_count(residue, "B of a sleeping engine", setup.weights.trained)


def compute_sleeping_engines(setup: Setup, plan: Plan) -> float:
    """Return the pinned host bytes of a node's sleeping engines: the weights of every engine that keeps them."""
    rollout = plan.rollout
    if not rollout.sleep or rollout.sleep_discards or rollout.mode != "colocate":
        return 0.0
    return setup.ranks.local * _divide_weights(plan, setup.whole)
