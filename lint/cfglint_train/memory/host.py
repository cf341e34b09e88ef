"""Host memory of one node while the job loads and trains.

Sizes are bytes of the node with the most ranks. Pinned buffers come from torch's caching host allocator, which rounds
each block up to a power of two (CachingHostAllocator.h, torch 2.13) and does not free it.
"""

from __future__ import annotations

from collections.abc import Callable

from cfglint_train.foundation.typed import Final
from cfglint_train.memory import transients
from cfglint_train.memory.calibration import load_table
from cfglint_train.memory.component import Component
from cfglint_train.memory.components import (
    LOADED_WEIGHTS,
    OFFLOADED_GRADIENTS,
    OFFLOADED_MASTER,
    OFFLOADED_OPTIMIZER,
    OFFLOADED_PARAMETERS,
)
from cfglint_train.memory.setup import Setup
from cfglint_train.memory.size import label_count, merge_terms
from cfglint_train.memory.states import compute_secondary_copy, count_partition_elements
from cfglint_train.plan.choices import FSDP
from cfglint_train.plan.fields import Plan

PINNED: Final = "B of pinned blocks"


def round_to_pinned_block(size: float) -> float:
    """Return the bytes of the pinned block that holds `size` bytes: the next power of two, or 0 for nothing."""
    block = 0 if size <= 0 else 1 << (max(1, int(size)) - 1).bit_length()
    return label_count(block, PINNED, size)


def choose_block_rounding(setup: Setup) -> Callable[[float], float]:
    """Return the function that maps a buffer's bytes to its host memory: rounded up if pinned, else unchanged."""
    return round_to_pinned_block if setup.offload.pinned else lambda size: size


def compute_partition_bytes(setup: Setup) -> float:
    """Return the bytes of a rank's partition of the weights as ZeRO-3 offloads it."""
    return (setup.weights.trained * setup.formats.gathered + setup.frozen_sharded) / max(
        1, setup.ranks.optimizer_shards
    )


def split_into_sub_groups(setup: Setup, share: float) -> tuple[int, float, float]:
    """Return the number of full sub-groups in a ZeRO-3 partition, the elements of each, and those of the rest.

    `share`: elements of the rank's partition.
    """
    piece = min(setup.sharding.sub_group or share, share)
    full_groups = label_count(int(share / piece) if piece else 0, "sub-groups", share)
    return full_groups, piece, merge_terms(share - full_groups * piece, "elements of the last sub-group")


def _compute_sub_group_bytes(setup: Setup, share: float, block: Callable[[float], float]) -> float:
    """Return the host bytes of a partition's fp32 values, allocated sub-group by sub-group."""
    full_groups, piece, last = split_into_sub_groups(setup, share)
    return full_groups * block(piece * 4) + block(last * 4)


def compute_offloaded(setup: Setup) -> dict[Component, float]:
    """Return the bytes that the ranks of a node offload to their host, for every trained model."""
    parts = _compute_model_offload(setup, count_partition_elements(setup))
    for other in setup.neighbours:
        if other.trained:
            model_parts = _compute_model_offload(
                setup._replace(offload=setup.offload._replace(parameters=False)),
                other.elements / setup.ranks.optimizer_shards,
            )
            parts = {part: parts.get(part, 0.0) + model_parts.get(part, 0.0) for part in {**parts, **model_parts}}
    return parts


def _compute_model_offload(setup: Setup, share: float) -> dict[Component, float]:
    """Return the bytes that the ranks of a node offload for one model; a rank holds `share` of its trained elements."""
    ranks, formats, offload = setup.ranks, setup.formats, setup.offload
    if not offload.parameters and not offload.optimizer:
        return {}
    local, block = ranks.local, choose_block_rounding(setup)
    parts: dict[Component, float] = {}
    if ranks.strategy in FSDP:
        if offload.parameters:
            frozen = setup.frozen_sharded / ranks.parameter_shards
            parts[OFFLOADED_PARAMETERS] = local * (block(share * formats.held) + block(frozen))
            parts[OFFLOADED_GRADIENTS] = local * block(share * formats.held)
            parts[OFFLOADED_OPTIMIZER] = local * share * setup.optimizer.known_state
        return parts
    if offload.optimizer:
        master = 4.0 if formats.master else formats.held
        parts[OFFLOADED_OPTIMIZER] = local * share * setup.optimizer.known_state
        if ranks.zero_stage == 3:
            # The master copy is allocated sub-group by sub-group in unpinned memory; its gradients are pinned.
            parts[OFFLOADED_MASTER] = local * share * master
            parts[OFFLOADED_GRADIENTS] = local * (
                _compute_sub_group_bytes(setup, share, block) + block(share * formats.gradient)
            )
        else:
            buffer = block(share * formats.gradient)
            kept = share * formats.gradient if setup.batch.accumulation > 1 else 0.0
            parts[OFFLOADED_MASTER] = local * block(share * master)
            parts[OFFLOADED_GRADIENTS] = local * (block(share * 4) + buffer + kept)
    if offload.parameters and ranks.zero_stage == 3:
        # zero.Init leaves a second block of the same size in torch's cache.
        parts[OFFLOADED_PARAMETERS] = local * (
            2 * block(compute_partition_bytes(setup)) + block(compute_secondary_copy(setup))
        )
    return parts


def compute_idle_models(setup: Setup) -> float:
    """Return the bytes of the offloaded shards of frozen models, for all ranks of a node.

    The shards are pinned (deepspeed 0.19.8 partition_parameters.py, _partition_param; torch 2.13 fsdp/_flat_param.py,
    init_flat_param_attributes, and CPUOffloadPolicy).
    """
    formats = setup.formats
    shape, shards = setup.architecture, setup.ranks.parameter_shards
    models = [other.elements for other in setup.neighbours if other.offloaded and not other.trained]
    if setup.offload.reference and setup.reference_bytes:
        models.append(shape.parameters)
    if not models:
        return 0.0
    weight = formats.unquantized if setup.ranks.fsdp else formats.gathered
    return setup.ranks.local * _compute_pinned_factor(setup, weight) * sum(models) * weight / shards


def _compute_pinned_factor(setup: Setup, weight: float) -> float:
    """Return the size of the pinned blocks of a rank's shards, in multiples of the shards.

    FSDP1 has one shard for each unit, all others one for each tensor. `weight`: bytes per element.
    """
    shape, shards = setup.architecture, setup.ranks.parameter_shards
    if setup.ranks.strategy == "fsdp1":
        unit, root = transients.count_unit_elements(setup), transients.count_root_elements(setup)
        pinned_bytes = shape.layers * round_to_pinned_block(unit * weight / shards)
        pinned_bytes += round_to_pinned_block(root * weight / shards)
    else:
        pinned_bytes = sum(
            item.count * round_to_pinned_block(item.elements / item.count * weight / shards) for item in shape.linears
        )
    return merge_terms(max(1.0, pinned_bytes / (shape.parameters * weight / shards)), "for pinned blocks")


def compute_sleeping_states(setup: Setup, plan: Plan) -> float:
    """Return the bytes of sleeping training states on a node (DeepSpeed 0.19.8, stage3.py offload_states).

    For each trained model, pinned blocks hold the master weights and the optimizer states (two for Adam) and, under
    ZeRO-3, which has a block per sub-group, the flat gradients. Nothing sleeps if the optimizer is offloaded (OpenRLHF
    0.11.2 deepspeed_utils.py, offload_deepspeed_states). The pinned buffers of weights and gradients are never freed.
    """
    ranks = setup.ranks
    if ranks.fsdp:
        return _compute_sleeping_shards(setup, plan)
    if not plan.rollout.train_sleep or ranks.strategy != "zero" or setup.offload.optimizer:
        return 0.0
    tensors = merge_terms((setup.formats.master + setup.optimizer.known_state) / 4, "tensors")
    total = 0.0
    for elements in (setup.weights.trained, *(other.elements for other in setup.neighbours if other.trained)):
        share = elements / ranks.optimizer_shards
        total += tensors * (
            _compute_sub_group_bytes(setup, share, round_to_pinned_block)
            if ranks.zero_stage == 3
            else round_to_pinned_block(share * 4)
        )
        if ranks.zero_stage == 3:
            total += round_to_pinned_block(share * setup.formats.gradient)
    return ranks.local * total


def _compute_sleeping_shards(setup: Setup, plan: Plan) -> float:
    """Return the pinned bytes of FSDP shards that leave the GPUs of a node between passes, of every trained model.

    Source: verl 0.5.0 to 0.9.1, utils/fsdp_utils.py offload_fsdp_model_to_cpu and offload_fsdp_optimizer: copies of
    tensors that do not block, for which torch allocates pinned memory. Shards that FSDP2 keeps on the host do not move
    (verl 0.9.1, workers/engine/fsdp/transformer_impl.py).
    """
    ranks, held, state = setup.ranks, setup.formats.held, setup.optimizer.known_state
    rollout, total = plan.rollout, 0.0
    if rollout.weights_sleep and not setup.offload.parameters:
        total += setup.weights.trained * held + setup.frozen_sharded
    if rollout.train_sleep and not setup.offload.optimizer:
        total += setup.weights.trained * state
    for other in setup.neighbours:
        if other.trained:
            total += other.elements * ((held if other.offloaded else 0.0) + (state if other.sleeps else 0.0))
    return ranks.local * _compute_pinned_factor(setup, held) * total / ranks.parameter_shards if total else 0.0


def compute_worker_memory(setup: Setup, plan: Plan) -> float:
    """Return the private memory of a node's data loader workers, in bytes."""
    count = plan.data.workers
    return setup.ranks.local * count * load_table().coefficients["worker"].expected if count else 0.0


def compute_waiting_batches(setup: Setup, plan: Plan) -> float:
    """Return the bytes of the batches that a node's data loader workers keep ready.

    A batch has `input_ids`, `attention_mask` and `labels` in int64, and the pixels of images in fp32.
    """
    count, tower = plan.data.workers, setup.architecture.tower
    if not count:
        return 0.0
    pixels = 0.0 if tower is None else setup.batch.image_tokens * tower.patches * tower.patch**2 * _PIXEL_BYTES
    batch = setup.batch.tokens * _TOKEN_BYTES + pixels
    ahead = _DEFAULT_PREFETCH if plan.data.prefetch is None else plan.data.prefetch
    return setup.ranks.local * count * label_count(ahead, "batches", batch) * batch


_TOKEN_BYTES: Final = 24
_PIXEL_BYTES: Final = 12
_DEFAULT_PREFETCH: Final = 2
"""Batches that a worker keeps ready by default (torch 2.13, utils/data/dataloader.py)."""


def compute_offloaded_activations(setup: Setup) -> float:
    """Return the bytes of offloaded activation checkpoints on the host, for all ranks of a node."""
    if not setup.offload.activations:
        return 0.0
    kept = setup.batch.tokens * setup.architecture.hidden * setup.formats.residual * setup.layers * setup.part.in_flight
    kept /= setup.ranks.sequence_split
    return setup.ranks.local * kept


def compute_loading(setup: Setup, plan: Plan) -> dict[Component, float] | None:
    """Return the bytes of weights on a node's host during loading, or None if it is unknown how they are loaded."""
    ranks = setup.ranks
    model_bytes = setup.whole.parameters * setup.formats.gathered
    if ranks.strategy in FSDP:
        device = plan.model.init_device
        if device in ("meta", "cuda"):
            return {LOADED_WEIGHTS: 0.0}
        if device == "cpu":
            return {LOADED_WEIGHTS: ranks.local * setup.whole.parameters * 4.0}
        efficient = plan.parallel.cpu_efficient_loading
        if efficient is None:
            return None
        return {LOADED_WEIGHTS: model_bytes * (1 if efficient else ranks.local)}
    if plan.model.init_device == "cpu":
        return {LOADED_WEIGHTS: ranks.local * model_bytes}
    if ranks.zero_stage == 3:  # every rank reads file by file and keeps its own shards
        return {LOADED_WEIGHTS: ranks.local * min(model_bytes, FILE_BYTES)}
    return {LOADED_WEIGHTS: 0.0}  # read from mapped files directly onto the GPU


# The largest file of a published checkpoint: transformers wrote files of 5 GB before release 5.
FILE_BYTES: Final = 5e9
