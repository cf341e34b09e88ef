"""Memory of saving a checkpoint: on the GPU for gathering, on the host for staging, and on disk.

Amounts are bytes per GPU, per node (the worst node, which has rank 0), and on disk for the whole job.
"""

from __future__ import annotations

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.memory import transients
from cfglint_train.memory.calibration import load_table
from cfglint_train.memory.checkpoint_retention import count_copies, has_sharded_checkpoints
from cfglint_train.memory.colocated_models import count_role_elements
from cfglint_train.memory.component import Component
from cfglint_train.memory.components import (
    CLONED,
    DISK_OPTIMIZER,
    DISK_OTHERS,
    DISK_WEIGHTS,
    FILE,
    GATHERED,
    GATHERED_OPTIMIZER,
    GATHERED_WEIGHTS,
    HOST_METADATA,
    METADATA,
    STAGED_OPTIMIZER,
    STAGED_SHARDS,
    STAGED_WEIGHTS,
)
from cfglint_train.memory.setup import Setup
from cfglint_train.memory.size import merge_terms
from cfglint_train.memory.states import count_partition_elements
from cfglint_train.plan.choices import FSDP
from cfglint_train.plan.fields import Plan


class Save(Frozen):
    """Cost of a checkpoint."""

    gpu: dict[Component, float]
    host: dict[Component, float]
    disk: dict[Component, float]
    event: str
    copies: int = 1
    """Number of checkpoints on disk at once: those retained, and the checkpoint being written."""


# Bytes of olmo_core's save plan per tensor and rank, in addition to those per shard.
PLAN_BYTES = 1700

# Bytes of pickled plan and metadata per tensor and shard, staged on the GPU for the collective (ai2-olmo-core 0.1.0).
STAGED_BYTES = 75

# Bytes per element of a unit that FSDP1 gathers in fp32 at save: weights, then both Adam states.
_UNIT_BYTES = 12

# transformers 5 writes files of up to 50 GB; safetensors before 0.8 keeps a copy of the file while it writes it.
FILE_BYTES = 50e9

_GATHERED: Final = (GATHERED_WEIGHTS, GATHERED_OPTIMIZER)


def estimate_save(setup: Setup, plan: Plan) -> Save | None:
    """Return the cost of a checkpoint, or None if nothing is saved or the method is unknown."""
    checkpoint, part_count = plan.checkpoint, count_parts(setup)
    at_the_end = checkpoint.strategy == "no"
    # A run that saves only at its end saves only the model, once.
    model_only = at_the_end or bool(checkpoint.model_only)
    checkpoint_cost = None if at_the_end and not checkpoint.final else _estimate_one(setup, plan, model_only)
    if checkpoint_cost is None:
        return None
    disk = checkpoint_cost.disk
    other_elements = count_other_elements(setup, plan)
    if other_elements and DISK_OPTIMIZER in disk:
        weight = setup.formats.held if setup.ranks.fsdp else setup.formats.master
        disk[DISK_OTHERS] = other_elements * (setup.optimizer.known_state + weight)
    host = checkpoint_cost.host
    if part_count != 1:
        host = {part: size * (part_count if part in _GATHERED else 1) for part, size in host.items()}
        disk = {part: size * part_count for part, size in disk.items()}
    return checkpoint_cost._replace(host=host, disk=disk, copies=1 if at_the_end else count_copies(plan))


def count_other_elements(setup: Setup, plan: Plan) -> int:
    """Return the elements of the other trained models, which have separate checkpoints; unknown models count as 0."""
    trained = (role for role in plan.model.roles or () if role.trained and role.name != "actor")
    return sum(count_role_elements(plan.model.id, role.model, setup.whole) or 0 for role in trained)


def count_parts(setup: Setup) -> float:
    """Return the size of the whole model in multiples of this rank's part under tensor and pipeline parallelism."""
    return merge_terms(setup.whole.parameters / max(1, setup.architecture.parameters), "parts")


def _estimate_one(setup: Setup, plan: Plan, model_only: bool) -> Save | None:
    checkpoint, weights = plan.checkpoint, setup.weights
    if checkpoint.checkpointer is not None:
        if plan.parallel.strategy == "ddp":
            writes_nothing = checkpoint.interval_unsharded == 0 and checkpoint.at_start is False
            return None if writes_nothing else _estimate_replicated(setup)
        if not has_sharded_checkpoints(plan):
            return _estimate_unsharded(setup)
        sharded = _estimate_olmo_sharded(setup, checkpoint.checkpointer)
        if not checkpoint.interval_unsharded:
            return sharded
        whole = _estimate_unsharded(setup)
        # Both kinds of checkpoint are written; the kind that needs more host memory counts.
        return whole if sharded is None or sum(whole.host.values()) > sum(sharded.host.values()) else sharded
    if setup.ranks.strategy == "zero":
        return _estimate_zero(setup, plan, model_only)
    if setup.ranks.strategy in FSDP:
        return _estimate_fsdp(setup, plan, model_only)
    if weights.adapters:
        return _estimate_adapter(setup, model_only)
    written = weights.trained * setup.formats.held + setup.frozen_bytes
    disk = _build_disk_sizes(written, weights.trained * setup.optimizer.known_state, model_only)
    return Save({}, {FILE: min(written, FILE_BYTES)}, disk, "rank 0 writes its own copy")


def _build_disk_sizes(weights: float, states: float, model_only: bool = False) -> dict[Component, float]:
    return {DISK_WEIGHTS: weights} if model_only else {DISK_WEIGHTS: weights, DISK_OPTIMIZER: states}


def _estimate_adapter(setup: Setup, model_only: bool) -> Save:
    trained = setup.weights.trained
    written = trained * setup.formats.held
    disk = _build_disk_sizes(written, trained * setup.optimizer.known_state, model_only)
    return Save({}, {STAGED_WEIGHTS: written}, disk, "the adapter is written")


def _compute_frozen_bytes(setup: Setup) -> float:
    """Return the bytes of the frozen weights in a full state dict."""
    weights = setup.weights
    return setup.frozen_bytes if weights.adapters else weights.frozen * setup.formats.gathered


def _estimate_zero(setup: Setup, plan: Plan, model_only: bool) -> Save | None:
    """Return the cost under DeepSpeed.

    Under stages 0 to 2 every rank clones the whole model; under stage 3 rank 0 gathers it module by module. Then every
    rank writes its shards of the states. The host needs the larger of the two amounts.
    """
    ranks, weights, formats, gather = setup.ranks, setup.weights, setup.formats, plan.checkpoint.gather
    whole = weights.trained * formats.gathered + _compute_frozen_bytes(setup)
    states = weights.trained * (setup.optimizer.known_state + formats.master)
    piece = 0.0 if setup.offload.optimizer else ranks.local * 4.0 * _count_flat_elements(setup)
    if ranks.zero_stage == 3 and not gather:  # transformers calls DeepSpeed's save_checkpoint in any case
        shards = Save({}, _compute_staging_excess(piece, 0.0), {DISK_OPTIMIZER: states}, "every rank writes its shards")
        return None if gather is None else shards
    # Every module is gathered on the GPU, but frozen weights need not be copied to the host to save an adapter.
    written = weights.trained * formats.held if weights.adapters else whole
    copied = whole if plan.checkpoint.gathers_frozen else written
    disk = _build_disk_sizes(written, states, model_only)
    if ranks.zero_stage < 3:
        gpu, host, event = {}, {CLONED: ranks.local * whole}, "every rank clones the model to its host"
    else:
        gpu, host = {GATHERED: formats.gathered * count_module_elements(setup)}, {GATHERED_WEIGHTS: copied}
        event = "rank 0 gathers the 16-bit weights module by module"
    if not model_only:
        host |= _compute_staging_excess(piece, *host.values())
    return Save(gpu, host, disk, event)


def _count_flat_elements(setup: Setup) -> float:
    """Return the elements of the largest fp32 tensor of a rank's states: torch.save copies one storage at a time.

    Under stages 1 and 2, DeepSpeed holds the master weights and each state of a parameter group in one flat tensor of
    the rank's share (0.19.8, zero/stage_1_and_2.py state_dict; measured: zero1-1b and zero2-1b). Under stage 3, it has
    one tensor per sub-group.
    """
    ranks = setup.ranks
    if ranks.zero_stage == 3:
        return transients.count_sub_group_elements(setup)
    return count_partition_elements(setup) if ranks.zero_stage else 0.0


def _compute_staging_excess(piece: float, before: float) -> dict[Component, float]:
    """Return the bytes of staged optimizer shards in excess of the `before` bytes that the weights needed earlier."""
    return {STAGED_OPTIMIZER: piece - before} if piece > before else {}


def count_module_elements(setup: Setup) -> float:
    """Return the elements of the module that directly holds the most: a matrix, the embedding or fused experts."""
    shape = setup.architecture
    fused = 0
    if shape.experts is not None and shape.experts.fused:
        fused = 3 * shape.experts.count * shape.hidden * shape.experts.intermediate
    return merge_terms(
        max(shape.largest_tensor, transients.count_head_elements(setup), fused), "elements of the largest module"
    )


def _estimate_fsdp(setup: Setup, plan: Plan, model_only: bool) -> Save | None:
    """Return the cost under FSDP, or None if the kind of state dict is unknown.

    Rank 0 gathers a full state dict, first the weights and then the optimizer states, and holds one of them at a time.
    For other kinds, every rank writes its shards.

    PEFT extracts the adapter from the full state dict (get_peft_model_state_dict).
    """
    ranks, formats, kind = setup.ranks, setup.formats, plan.checkpoint.state_dict
    adapters, trained = setup.weights.adapters and not plan.checkpoint.frozen, setup.weights.trained
    if adapters and kind != "full":
        return _estimate_adapter(setup, model_only)
    if kind is None:
        return None
    weights, states = trained * formats.held + _compute_frozen_bytes(setup), trained * setup.optimizer.known_state
    disk = _build_disk_sizes(trained * formats.held if adapters else weights, states, model_only)
    if kind != "full":
        share = weights / ranks.parameter_shards
        if plan.checkpoint.hf_export:  # verl 0.9.1, utils/checkpoint/fsdp_checkpoint_manager.py save_checkpoint
            disk[DISK_WEIGHTS] += weights
            return Save({}, {GATHERED_WEIGHTS: weights}, disk, "rank 0 gathers the weights beside every rank's shards")
        return Save({}, {STAGED_WEIGHTS: ranks.local * share}, disk, "every rank writes its shards")
    if ranks.strategy == "fsdp2":  # one whole tensor at a time
        gpu = formats.held * max(transients.count_head_elements(setup), setup.architecture.largest_tensor)
    else:  # one unit at a time
        gpu = formats.held * max(transients.count_unit_elements(setup), transients.count_last_unit_elements(setup))
    if ranks.strategy == "fsdp1" and ranks.world == 1 and not model_only:
        # For one process, accelerate does not offload the state dict, of which torch clones each parameter (accelerate
        # 1.15.0 utils/fsdp_utils.py save_fsdp_model; torch 2.13 fsdp/_state_dict_utils.py).
        gpu = weights
    host = {GATHERED_WEIGHTS: weights} if model_only or weights >= states else {GATHERED_OPTIMIZER: states}
    if not model_only:
        disk[DISK_WEIGHTS] *= 2  # once for loading and once for resuming
    return Save({GATHERED: gpu}, host, disk, "rank 0 gathers the full state dict")


def _compute_olmo_sizes(setup: Setup) -> tuple[float, float]:
    """Return the bytes of the weights and of the optimizer state for the rank's part of the model."""
    elements = setup.architecture.parameters
    return elements * setup.formats.held, elements * setup.optimizer.known_state


def _estimate_unsharded(setup: Setup) -> Save:
    """Return the cost of OLMo's unsharded checkpoint: rank 0 holds the weights while it gathers the states."""
    weights, states = _compute_olmo_sizes(setup)
    gpu, host = count_wrapped_elements(setup) * _UNIT_BYTES, {GATHERED_WEIGHTS: weights, GATHERED_OPTIMIZER: states}
    return Save({GATHERED: gpu}, host, _build_disk_sizes(weights, states), "rank 0 gathers an unsharded checkpoint")


def _estimate_replicated(setup: Setup) -> Save:
    """Return the cost of OLMo's checkpoint under DDP.

    Rank 0 passes tensors on its GPU to `torch.save` (ai2-olmo 0.6.0, checkpoint.py FullCheckpointer), which copies one
    storage at a time to the host.
    """
    largest = max(transients.count_head_elements(setup), setup.architecture.largest_tensor)
    host = {STAGED_WEIGHTS: largest * setup.formats.held}
    return Save({}, host, _build_disk_sizes(*_compute_olmo_sizes(setup)), "rank 0 writes its own copy")


def count_wrapped_elements(setup: Setup) -> float:
    """Return the elements of the largest FSDP unit in OLMo: a layer, or the whole model."""
    return setup.architecture.parameters if setup.sharding.wrapping == "root" else transients.count_unit_elements(setup)


def _estimate_olmo_sharded(setup: Setup, checkpointer: str) -> Save | None:
    """Return the cost of OLMo's sharded checkpointers, or None for an unknown checkpointer.

    Sources: ai2-olmo 0.6.0, checkpoint.py; ai2-olmo-core 0.1.0, distributed/checkpoint.py.
    """
    ranks, shape, unit = setup.ranks, setup.architecture, count_wrapped_elements(setup)
    local, world, shards = ranks.local, ranks.world, ranks.shards
    weights, states = _compute_olmo_sizes(setup)
    disk = _build_disk_sizes(weights, states)
    if checkpointer == "local":
        host = {STAGED_SHARDS: local * unit * setup.formats.held / shards}
        return Save({}, host, disk, "every rank writes its shards as they are")
    if checkpointer in ("torch_legacy", "torch_new"):
        host = {STAGED_SHARDS: local * (weights + states) / shards}
        if checkpointer == "torch_legacy":
            each = load_table().coefficients["legacy-metadata"].expected
            host[HOST_METADATA] = local * each * shape.tensors * world
        return Save({GATHERED: unit * _UNIT_BYTES}, host, disk, "each unit is gathered in fp32")
    if checkpointer == "olmo_core":
        each = load_table().coefficients["shard-metadata"].expected
        metadata = world * shape.tensors * (PLAN_BYTES + each * shards)
        host = {STAGED_SHARDS: local * states / shards, HOST_METADATA: local * metadata}
        gpu: dict[Component, float] = {METADATA: world * shape.tensors * shards * STAGED_BYTES}
        return Save(gpu, host, disk, "every rank gathers every rank's save plan")
    return None
