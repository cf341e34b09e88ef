"""What a rank holds from step to step: weights, master copies, optimizer states, frozen and reference models.

All amounts are bytes. Elements times bytes per element, divided by the ranks that share a copy; what is offloaded waits
on the host instead.
"""

from __future__ import annotations

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.memory.setup import Setup
from cfglint_train.memory.size import named
from cfglint_train.plan.choices import FSDP


class States(Frozen):
    """Bytes on one GPU between optimizer steps."""

    parameters: float
    frozen: float
    master: float
    optimizer: float
    reference: float
    neighbours: float
    """Other models of the job on the same GPU."""
    accumulated: float
    """Gradients between micro batches."""
    persistent: float
    """Weights that ZeRO-3 does not shard (below the persistence threshold), or a second 16-bit copy (hpZ)."""
    host: float
    """Of one rank, on its host: what is offloaded."""


def small_elements(setup: Setup) -> int:
    """Elements of parameters at or below ZeRO-3's persistence threshold: norms, biases and small matrices."""
    shape = setup.architecture
    large = sum(
        item.elements for item in shape.linears if item.inputs * item.outputs * max(1, item.experts) > setup.persistence
    )
    return max(0, shape.parameters - large) if shape.linears else 0


def secondary(setup: Setup) -> float:
    """Bytes of hpZ's second copy of the weights on one rank: it lies where the partitions lie, and like them."""
    if setup.secondary == 1:
        return 0.0
    return (setup.trained * setup.gathered + setup.frozen_bytes) / setup.secondary


def states(setup: Setup) -> States:
    """The steady states of a rank."""
    trained, scales = setup.trained, setup.frozen_weights.scales
    parameters = trained * setup.held / setup.parameter_shards
    frozen = setup.frozen_sharded / setup.parameter_shards
    master = trained * setup.master / setup.optimizer_shards
    optimizer = trained * (setup.optimizer or 0) / setup.optimizer_shards
    reference = 0.0 if setup.offload_reference else setup.reference_bytes / setup.parameter_shards
    accumulated = _accumulated(setup)
    persistent = 0.0
    if setup.zero_stage == 3 and setup.persistence:
        small = min(small_elements(setup), setup.architecture.parameters)
        persistent = named(small, "elements that stay whole") * setup.gathered * (1 - 1 / setup.parameter_shards)
    if not setup.offload_parameters:
        persistent += secondary(setup)
    host = 0.0
    if setup.offload_optimizer:
        host += master + optimizer
        master = optimizer = 0.0
        if setup.zero_stage:
            accumulated = trained * setup.gradient if setup.zero_stage == 1 and setup.accumulation > 1 else 0.0
    if setup.offload_parameters:
        host += parameters + frozen
        parameters = frozen = 0.0
        if setup.strategy in FSDP:  # torch's CPU offload takes gradients and states along
            host += master + optimizer
            master = optimizer = accumulated = 0.0
    neighbours = sum(neighbour.bytes for neighbour in setup.neighbours)
    return States(parameters, frozen + scales, master, optimizer, reference, neighbours, accumulated, persistent, host)


def whole_fp32_gradients(setup: Setup) -> bool:
    """Stage 1 with fp32 accumulation runs DeepSpeed's BF16_Optimizer: whole fp32 gradients on every rank, for good."""
    return setup.zero_stage == 1 and setup.accumulated > setup.gradient and not setup.offload_optimizer


def _accumulated(setup: Setup) -> float:
    """Gradients that exist while the last micro batch runs."""
    trained = setup.trained * setup.active
    if setup.updates == "within":
        return 0.0
    if setup.zero_stage == 3:  # the flat gradient partition is allocated once and for all (stage3.py)
        return trained * setup.accumulated / setup.gradient_shards
    if whole_fp32_gradients(setup):
        return trained * setup.accumulated
    if setup.accumulation == 1:
        return 0.0
    if setup.strategy in FSDP and setup.defers_reduction:
        # FSDP2 keeps them in the format that it reduces in (_fsdp_param.py, to_accumulated_grad_if_needed).
        return setup.computed * setup.active * (setup.communication if setup.strategy == "fsdp2" else setup.gathered)
    return trained * setup.accumulated / setup.gradient_shards


def leaves_at_once(setup: Setup) -> bool:
    """FSDP's CPU offload takes each sharded gradient along as soon as it is reduced."""
    return setup.offload_parameters and setup.strategy in FSDP and not setup.defers_reduction


def made(setup: Setup) -> float:
    """Gradients that the last micro batch leaves beside those that exist already, in bytes."""
    trained = setup.trained * setup.active
    if leaves_at_once(setup) or setup.updates == "within":
        return 0.0
    if whole_fp32_gradients(setup):
        return trained * setup.gradient
    if setup.zero_stage == 3 or (setup.offload_optimizer and setup.zero_stage):
        return 0.0
    if setup.zero_stage == 1:  # the rank's partition, copied out of the whole gradients
        return trained * setup.gradient / setup.optimizer_shards
    if setup.zero_stage == 2:
        # What was reduced waits in the model's format until it is added to the fp32 gradients.
        first = setup.accumulated if setup.accumulation == 1 else 0
        each = first + setup.gradient if setup.accumulated > setup.gradient else first or setup.gradient
        return trained * each / setup.gradient_shards
    if setup.accumulation > 1 and not setup.defers_reduction:
        return 0.0
    return trained * setup.accumulated / setup.gradient_shards


def left(setup: Setup) -> float:
    """Gradients that the optimizer step starts with, in bytes."""
    trained = setup.trained * setup.active
    if setup.updates == "within":
        return 0.0
    if whole_fp32_gradients(setup):
        return trained * (setup.accumulated + setup.gradient)
    if (setup.offload_optimizer and setup.zero_stage) or (setup.offload_parameters and not setup.zero_stage):
        return 0.0
    each = setup.gradient if setup.zero_stage == 1 else setup.accumulated
    return trained * each / (setup.optimizer_shards if setup.zero_stage == 1 else setup.gradient_shards)
