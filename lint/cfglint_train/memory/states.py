"""States that a rank holds from step to step: weights, master copies, optimizer, frozen and reference models.

All amounts are bytes: elements times bytes per element, divided by the number of ranks that share a copy. Offloaded
states are on the host instead.
"""

from __future__ import annotations

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.memory.setup import Setup
from cfglint_train.memory.size import merge_terms
from cfglint_train.plan.choices import FSDP


class States(Frozen):
    """Bytes on one GPU between optimizer steps."""

    parameters: float
    frozen: float
    master: float
    optimizer: float
    reference: float
    neighbours: float
    """Other models of the job on the same GPU (`Setup.neighbours`)."""
    accumulated: float
    """Gradients that exist between micro batches."""
    persistent: float
    """Weights that ZeRO-3 does not shard (below the persistence threshold) and the second copy of hpZ."""
    host: float
    """Bytes that one rank offloads to its host."""


def count_small_elements(setup: Setup) -> int:
    """Return the number of elements in parameters at or below ZeRO-3's persistence threshold, or 0 if unknown.

    These are norms, biases and small matrices.
    """
    shape = setup.architecture
    large = sum(
        item.elements
        for item in shape.linears
        if item.inputs * item.outputs * max(1, item.experts) > setup.sharding.persistence
    )
    return max(0, shape.parameters - large) if shape.linears else 0


def compute_secondary_copy(setup: Setup) -> float:
    """Return the bytes of hpZ's secondary copy of the weights on one rank, or 0 without hpZ.

    The copy is stored in the same place as the partitions.
    """
    if setup.sharding.secondary == 1:
        return 0.0
    return (setup.weights.trained * setup.formats.gathered + setup.frozen_bytes) / setup.sharding.secondary


def compute_states(setup: Setup) -> States:
    """Return the states that a rank holds from step to step."""
    ranks, formats, offload = setup.ranks, setup.formats, setup.offload
    trained, unsharded = setup.weights.trained, setup.frozen_weights.unsharded
    parameters = trained * formats.held / ranks.parameter_shards
    frozen = setup.frozen_sharded / ranks.parameter_shards
    master = trained * formats.master / ranks.optimizer_shards
    optimizer = trained * setup.optimizer.known_state / ranks.optimizer_shards
    reference = 0.0 if offload.reference else setup.reference_bytes / ranks.parameter_shards
    accumulated = _compute_accumulated(setup)
    persistent = 0.0
    if ranks.zero_stage == 3 and setup.sharding.persistence:
        small = min(count_small_elements(setup), setup.architecture.parameters)
        persistent = merge_terms(small, "unsharded elements") * formats.gathered * (1 - 1 / ranks.parameter_shards)
    if not offload.parameters:
        persistent += compute_secondary_copy(setup)
    host = 0.0
    if offload.optimizer:
        host += master + optimizer
        master = optimizer = 0.0
        if ranks.zero_stage:
            accumulated = trained * formats.gradient if ranks.zero_stage == 1 and setup.batch.accumulation > 1 else 0.0
    if offload.parameters:
        host += parameters + frozen
        parameters = frozen = 0.0
        if ranks.strategy in FSDP:  # torch's CPU offload includes gradients and states
            host += master + optimizer
            master = optimizer = accumulated = 0.0
    neighbours = sum(neighbour.bytes for neighbour in setup.neighbours)
    return States(
        parameters, frozen + unsharded, master, optimizer, reference, neighbours, accumulated, persistent, host
    )


def count_partition_elements(setup: Setup) -> float:
    """Return the number of trained elements whose optimizer state a rank holds."""
    return setup.weights.trained / setup.ranks.optimizer_shards


def has_whole_fp32_gradients(setup: Setup) -> bool:
    """Return whether every rank permanently holds all gradients in fp32.

    DeepSpeed does so with BF16_Optimizer, which it uses for stage 1 with fp32 accumulation.
    """
    return (
        setup.ranks.zero_stage == 1
        and setup.formats.accumulated > setup.formats.gradient
        and not setup.offload.optimizer
    )


def _compute_accumulated(setup: Setup) -> float:
    """Return the bytes of gradients that already exist when the last micro batch starts."""
    ranks, weights, formats = setup.ranks, setup.weights, setup.formats
    trained = weights.trained * weights.active
    if setup.optimizer.updates == "within":
        return 0.0
    if ranks.zero_stage == 3:  # the flat gradient partition is allocated once (stage3.py)
        return trained * formats.accumulated / ranks.gradient_shards
    if has_whole_fp32_gradients(setup):
        return trained * formats.accumulated
    if setup.batch.accumulation == 1:
        return 0.0
    if ranks.strategy in FSDP and setup.sharding.defers_reduction:
        # FSDP2 keeps unreduced gradients in the reduce dtype (_fsdp_param.py, to_accumulated_grad_if_needed).
        return (
            weights.computed
            * weights.active
            * (formats.communication if ranks.strategy == "fsdp2" else formats.gathered)
        )
    return trained * formats.accumulated / ranks.gradient_shards


def has_gradient_offload(setup: Setup) -> bool:
    """Return whether FSDP's CPU offload moves each sharded gradient to the host as soon as it is reduced."""
    return setup.offload.parameters and setup.ranks.strategy in FSDP and not setup.sharding.defers_reduction


def compute_new_gradients(setup: Setup) -> float:
    """Return the bytes of gradients that the last micro batch creates in addition to the accumulated gradients."""
    ranks, formats = setup.ranks, setup.formats
    trained = setup.weights.trained * setup.weights.active
    if has_gradient_offload(setup) or setup.optimizer.updates == "within":
        return 0.0
    if has_whole_fp32_gradients(setup):
        return trained * formats.gradient
    if ranks.zero_stage == 3 or (setup.offload.optimizer and ranks.zero_stage):
        return 0.0
    if ranks.zero_stage == 1:  # the rank's partition, copied from the full gradients
        return trained * formats.gradient / ranks.optimizer_shards
    if ranks.zero_stage == 2:
        # Reduced gradients wait in the model's format until they are added to the fp32 gradients.
        fp32_bytes = formats.accumulated if setup.batch.accumulation == 1 else 0
        gradient_bytes = (
            fp32_bytes + formats.gradient if formats.accumulated > formats.gradient else fp32_bytes or formats.gradient
        )
        return trained * gradient_bytes / ranks.gradient_shards
    if setup.batch.accumulation > 1 and not setup.sharding.defers_reduction:
        return 0.0
    return trained * formats.accumulated / ranks.gradient_shards


def compute_final_gradients(setup: Setup) -> float:
    """Return the bytes of gradients that exist when the optimizer step starts."""
    ranks, formats = setup.ranks, setup.formats
    trained = setup.weights.trained * setup.weights.active
    if setup.optimizer.updates == "within":
        return 0.0
    if has_whole_fp32_gradients(setup):
        return trained * (formats.accumulated + formats.gradient)
    if (setup.offload.optimizer and ranks.zero_stage) or (setup.offload.parameters and not ranks.zero_stage):
        return 0.0
    gradient_bytes = formats.gradient if ranks.zero_stage == 1 else formats.accumulated
    return trained * gradient_bytes / (ranks.optimizer_shards if ranks.zero_stage == 1 else ranks.gradient_shards)
