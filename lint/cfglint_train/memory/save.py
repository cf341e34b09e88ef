"""What a checkpoint needs: on the GPU while weights are gathered, on the host while they are staged, and on disk.

All amounts are bytes: per GPU, per node (the worst one, which holds rank 0) and for the whole job on disk.
"""

from __future__ import annotations

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.memory import transients
from cfglint_train.memory.calibration import table
from cfglint_train.memory.checkpoint_retention import copies_of, writes_shards
from cfglint_train.memory.colocated_models import elements_of
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
from cfglint_train.memory.size import named
from cfglint_train.plan.choices import FSDP
from cfglint_train.plan.fields import Plan


class Save(Frozen):
    """One checkpoint."""

    gpu: dict[Component, float]
    host: dict[Component, float]
    disk: dict[Component, float]
    event: str
    copies: int
    """Checkpoints on disk at once: those that are kept, and the one being written."""


# Bytes per tensor and rank that olmo_core's plan takes beside those per shard.
PLAN_BYTES = 1700

# Pickled plan and metadata of one tensor and shard, staged on the GPU for the collective (ai2-olmo-core 0.1.0).
STAGED_BYTES = 75

# Bytes per element of a unit that FSDP1 gathers in fp32 at save: weights, then both Adam states.
_UNIT_BYTES = 12

# transformers 5 writes files of up to 50 GB; safetensors before 0.8 holds a copy of the file that it writes.
FILE_BYTES = 50e9

_GATHERED: Final = (GATHERED_WEIGHTS, GATHERED_OPTIMIZER)


def save(setup: Setup, plan: Plan) -> Save | None:
    """The cost of one checkpoint; None where nothing is saved or the way is unknown."""
    found = _own(setup, plan)
    times = parts(setup)
    if found is None:
        return None
    others = beside(setup, plan)
    if others and DISK_OPTIMIZER in found.disk:
        states = others * ((setup.optimizer.state or 0) + (setup.formats.master or 0))
        found = found._replace(disk={**found.disk, DISK_OTHERS: states})
    if times == 1:
        return found
    host = {part: size * (times if part in _GATHERED else 1) for part, size in found.host.items()}
    return found._replace(host=host, disk={part: size * times for part, size in found.disk.items()})


def beside(setup: Setup, plan: Plan) -> int:
    """Elements of the other models that are trained, which have checkpoints of their own; unknown ones are none."""
    trained = (role for role in plan.model.roles or () if role.trained and role.name != "actor")
    return sum(elements_of(plan.model.id, role.model, setup.whole) or 0 for role in trained)


def parts(setup: Setup) -> float:
    """Parts of the whole model under tensor and pipeline parallelism, each as large as this rank's."""
    return named(setup.whole.parameters / max(1, setup.architecture.parameters), "parts")


def _own(setup: Setup, plan: Plan) -> Save | None:
    weights = setup.weights
    checkpoint = plan.checkpoint
    at_the_end = checkpoint.strategy == "no"
    if at_the_end and not checkpoint.final:
        return None
    # What is saved when the run has ended is the model alone, once.
    model_only = at_the_end or bool(checkpoint.model_only)
    copies = 1 if at_the_end else copies_of(plan)
    if checkpoint.checkpointer is not None:
        if plan.parallel.strategy == "ddp":
            none = checkpoint.interval_unsharded == 0 and checkpoint.at_start is False
            return None if none else _replicated(setup, copies)
        if not writes_shards(plan):
            return _unsharded(setup, copies)
        sharded = _olmo(setup, checkpoint.checkpointer, copies)
        if not checkpoint.interval_unsharded:
            return sharded
        whole = _unsharded(setup, copies)
        # Two kinds of checkpoint: the one that its host feels more.
        return whole if sharded is None or sum(whole.host.values()) > sum(sharded.host.values()) else sharded
    if setup.ranks.strategy == "zero":
        return _zero(setup, plan, model_only, copies)
    if setup.ranks.strategy in FSDP:
        return _fsdp(setup, plan, model_only, copies)
    if weights.adapters:
        return _adapter(setup, model_only, copies)
    written = weights.trained * setup.formats.held + setup.frozen_bytes
    disk: dict[Component, float] = {DISK_WEIGHTS: written}
    if not model_only:
        disk[DISK_OPTIMIZER] = weights.trained * (setup.optimizer.state or 0)
    return Save({}, {FILE: min(written, FILE_BYTES)}, disk, "rank 0 writes its own copy", copies)


def _adapter(setup: Setup, model_only: bool, copies: int) -> Save:
    written = setup.weights.trained * setup.formats.held
    disk = {DISK_WEIGHTS: written}
    if not model_only:
        disk[DISK_OPTIMIZER] = setup.weights.trained * (setup.optimizer.state or 0)
    return Save({}, {STAGED_WEIGHTS: written}, disk, "the adapter is written", copies)


def _zero(setup: Setup, plan: Plan, model_only: bool, copies: int) -> Save | None:
    """DeepSpeed: stages 0 to 2 clone the whole model on every rank, stage 3 gathers it module by module on rank 0.
    After that every rank writes its shards of the states; the larger of the two counts.
    """
    ranks, weights, formats = setup.ranks, setup.weights, setup.formats
    whole = weights.trained * formats.gathered + (
        setup.frozen_bytes if weights.adapters else weights.frozen * formats.gathered
    )
    states = weights.trained * ((setup.optimizer.state or 0) + (formats.master or 0))
    disk: dict[Component, float] = {}
    piece = 0.0 if setup.offload.optimizer else ranks.local * 4.0 * _flat_elements(setup)
    if ranks.zero_stage < 3:
        disk[DISK_WEIGHTS] = weights.trained * formats.held if weights.adapters else whole
        host = {CLONED: ranks.local * whole}
        if not model_only:
            disk[DISK_OPTIMIZER] = states
            host |= _beyond(piece, host[CLONED])
        return Save({}, host, disk, "every rank clones the model to its host", copies)
    gather = plan.checkpoint.gather
    if gather is None:
        return None
    if not gather:  # transformers calls DeepSpeed's own save_checkpoint, whether states are wanted or not
        disk[DISK_OPTIMIZER] = states
        return Save({}, _beyond(piece, 0.0), disk, "every rank writes its shards", copies)
    # transformers 5 leaves frozen weights out where PEFT trains; every module is gathered on the GPU anyway.
    adapter = weights.trained * formats.held
    disk[DISK_WEIGHTS] = adapter if weights.adapters else whole
    if not model_only:
        disk[DISK_OPTIMIZER] = states
    host = {GATHERED_WEIGHTS: disk[DISK_WEIGHTS]}
    if not model_only:
        host |= _beyond(piece, disk[DISK_WEIGHTS])
    return Save(
        {GATHERED: formats.gathered * module_elements(setup)},
        host,
        disk,
        "rank 0 gathers the 16-bit weights module by module",
        copies,
    )


def _flat_elements(setup: Setup) -> float:
    """Elements of the largest fp32 tensor of a rank's states: torch.save brings one storage at a time to the host.

    DeepSpeed's stages 1 and 2 hold master weights and each state of a parameter group in one flat tensor of the rank's
    share (0.19.8, zero/stage_1_and_2.py state_dict; zero1-1b and zero2-1b), stage 3 a sub-group in one.
    """
    ranks = setup.ranks
    if ranks.zero_stage == 3:
        return transients.sub_group_elements(setup)
    return setup.weights.trained / ranks.optimizer_shards if ranks.zero_stage else 0.0


def _beyond(piece: float, before: float) -> dict[Component, float]:
    """What staged shards of the states take beyond what the weights took before."""
    return {STAGED_OPTIMIZER: piece - before} if piece > before else {}


def module_elements(setup: Setup) -> float:
    """Elements of the module with the most parameters of its own: the embedding, or a layer's fused experts."""
    shape = setup.architecture
    fused = 0
    if shape.experts is not None and shape.experts.fused:
        fused = 3 * shape.experts.count * shape.hidden * shape.experts.intermediate
    return named(max(shape.largest_tensor, transients.head_elements(setup), fused), "elements of the largest module")


def _fsdp(setup: Setup, plan: Plan, model_only: bool, copies: int) -> Save | None:
    """FSDP: a full state dict is gathered on rank 0, weights first and the optimizer's states after them.

    PEFT takes the adapter out of the whole state dict (get_peft_model_state_dict).
    """
    ranks, formats = setup.ranks, setup.formats
    kind = plan.checkpoint.state_dict
    if setup.weights.adapters and kind != "full":
        return _adapter(setup, model_only, copies)
    if kind is None:
        return None
    frozen = setup.frozen_bytes if setup.weights.adapters else setup.weights.frozen * formats.gathered
    weights = setup.weights.trained * formats.held + frozen
    states = setup.weights.trained * (setup.optimizer.state or 0)
    disk = {DISK_WEIGHTS: weights} if model_only else {DISK_WEIGHTS: weights, DISK_OPTIMIZER: states}
    if setup.weights.adapters:
        disk[DISK_WEIGHTS] = setup.weights.trained * formats.held
    if kind != "full":
        share = weights / ranks.parameter_shards
        return Save({}, {STAGED_WEIGHTS: ranks.local * share}, disk, "every rank writes its shards", copies)
    if ranks.strategy == "fsdp2":  # one whole tensor at a time
        gpu = formats.held * max(transients.head_elements(setup), setup.architecture.largest_tensor)
    else:  # one unit at a time
        gpu = formats.held * max(transients.unit_elements(setup), transients.root_elements(setup))
    host = {GATHERED_WEIGHTS: weights} if model_only or weights >= states else {GATHERED_OPTIMIZER: states}
    if not model_only:
        disk[DISK_WEIGHTS] *= 2  # once for loading and once for resuming
    return Save({GATHERED: gpu}, host, disk, "rank 0 gathers the full state dict", copies)


def _unsharded(setup: Setup, copies: int) -> Save:
    """OLMo's unsharded checkpoint: rank 0 still holds the weights while it gathers the optimizer's states."""
    elements = setup.architecture.parameters
    weights, states = elements * setup.formats.held, elements * (setup.optimizer.state or 0)
    return Save(
        {GATHERED: wrapped_elements(setup) * _UNIT_BYTES},
        {GATHERED_WEIGHTS: weights, GATHERED_OPTIMIZER: states},
        {DISK_WEIGHTS: weights, DISK_OPTIMIZER: states},
        "rank 0 gathers an unsharded checkpoint",
        copies,
    )


def _replicated(setup: Setup, copies: int) -> Save:
    """OLMo's checkpoint under DDP: rank 0 gives tensors on its GPU to `torch.save` (ai2-olmo 0.6.0, checkpoint.py
    FullCheckpointer), which brings one storage at a time to the host.
    """
    elements = setup.architecture.parameters
    disk = {DISK_WEIGHTS: elements * setup.formats.held, DISK_OPTIMIZER: elements * (setup.optimizer.state or 0)}
    largest = max(transients.head_elements(setup), setup.architecture.largest_tensor)
    host = {STAGED_WEIGHTS: largest * setup.formats.held}
    return Save({}, host, disk, "rank 0 writes its own copy", copies)


def wrapped_elements(setup: Setup) -> float:
    """Elements of the largest unit that OLMo's FSDP wraps: a layer, or the whole model."""
    return setup.architecture.parameters if setup.sharding.wrapping == "root" else transients.unit_elements(setup)


def _olmo(setup: Setup, checkpointer: str, copies: int) -> Save | None:
    """OLMo's sharded checkpointers (ai2-olmo 0.6.0, checkpoint.py; ai2-olmo-core 0.1.0, distributed/checkpoint.py)."""
    ranks, formats, optimizer = setup.ranks, setup.formats, setup.optimizer
    shape, local, world, shards = setup.architecture, ranks.local, ranks.world, ranks.shards
    states = shape.parameters * (formats.held + (optimizer.state or 0))
    disk = {
        DISK_WEIGHTS: shape.parameters * formats.held,
        DISK_OPTIMIZER: shape.parameters * (optimizer.state or 0),
    }
    unit = wrapped_elements(setup)
    if checkpointer == "local":
        host = {STAGED_SHARDS: local * unit * formats.held / shards}
        return Save({}, host, disk, "every rank writes its shards as they are", copies)
    if checkpointer in ("torch_legacy", "torch_new"):
        host = {STAGED_SHARDS: local * states / shards}
        if checkpointer == "torch_legacy":
            each = table().coefficients["legacy-metadata"].expected
            host[HOST_METADATA] = local * each * shape.tensors * world
        return Save({GATHERED: unit * _UNIT_BYTES}, host, disk, "each unit is gathered in fp32", copies)
    if checkpointer == "olmo_core":
        each = table().coefficients["shard-metadata"].expected
        metadata = world * shape.tensors * (PLAN_BYTES + each * shards)
        host = {
            STAGED_SHARDS: local * shape.parameters * (optimizer.state or 0) / shards,
            HOST_METADATA: local * metadata,
        }
        gpu: dict[Component, float] = {METADATA: world * shape.tensors * shards * STAGED_BYTES}
        return Save(gpu, host, disk, "every rank gathers every rank's save plan", copies)
    return None
