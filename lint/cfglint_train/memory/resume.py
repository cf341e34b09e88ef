"""Memory needed to load a checkpoint before the first step: bytes on the worst node and, beyond the states, per GPU.

Sources: transformers 5.23.0 (trainer.py, `_load_optimizer_and_scheduler`), deepspeed 0.19.8 (engine.py,
`load_checkpoint`), accelerate 1.15.0 (utils/fsdp_utils.py), ai2-olmo 0.6.0 (checkpoint.py, `restore_checkpoint`);
`tests/oracles/host_save.py` runs the first two. `_compute_gpu_parts` lists those of the GPU.
"""

from __future__ import annotations

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.memory import transients
from cfglint_train.memory.component import Component
from cfglint_train.memory.components import GATHERED, GRADIENTS, LOADED_OPTIMIZER, LOADED_WEIGHTS, RESTORED
from cfglint_train.memory.save import count_parts
from cfglint_train.memory.setup import Setup
from cfglint_train.plan.choices import FSDP
from cfglint_train.plan.fields import Plan


class Resume(Frozen):
    """Cost of loading a checkpoint."""

    host: dict[Component, float]
    """Bytes per node; empty if the states are read directly onto the GPUs."""
    event: str
    gpu: dict[Component, float] | None = None
    """Bytes per GPU beside weights and states; None if they are unknown."""


def estimate_resume(setup: Setup, plan: Plan) -> Resume | None:
    """Return the memory needed to load a checkpoint with its optimizer, or None if there is nothing to estimate.

    There is nothing to estimate if no checkpoint or no optimizer state is loaded, or if it is unknown how.
    """
    ranks, formats = setup.ranks, setup.formats
    checkpoint = plan.checkpoint
    if not (checkpoint.load_path or checkpoint.resume_latest):
        return None
    if checkpoint.checkpointer is not None:
        return _estimate_olmo_resume(setup, plan)
    if checkpoint.model_only or checkpoint.load_optimizer is False or setup.optimizer.state is None:
        return None
    state_bytes, gpu = setup.optimizer.state, _compute_gpu_parts(setup, plan)
    if ranks.strategy == "zero" and ranks.zero_stage:
        shards = setup.weights.trained * (state_bytes + (formats.master or formats.held)) / ranks.optimizer_shards
        # Below stage 3, every rank first reads the whole module, and frees it before it reads its states.
        module = 0.0 if ranks.zero_stage == 3 else (setup.weights.trained + setup.weights.frozen) * formats.gathered
        if setup.weights.adapters:
            module = min(module, setup.weights.trained * formats.held)
        part = LOADED_OPTIMIZER if shards >= module else LOADED_WEIGHTS
        return Resume({part: ranks.local * max(shards, module)}, "every rank reads its shards", gpu)
    if ranks.strategy in FSDP:
        if checkpoint.state_dict != "full":  # read tensor by tensor into the shards
            return None if checkpoint.state_dict is None else Resume({}, "every rank reads its shards", gpu)
        part_count = count_parts(setup)
        weights = part_count * (
            setup.weights.trained * formats.held
            + (0.0 if setup.weights.adapters else setup.weights.frozen * formats.gathered)
        )
        states = part_count * setup.weights.trained * state_bytes
        weights *= count_readers(setup)
        part = LOADED_OPTIMIZER if states >= weights else LOADED_WEIGHTS
        return Resume({part: max(weights, states)}, "rank 0 reads all states", gpu)
    if ranks.world > 1:
        return Resume({}, "every rank reads the states onto its GPU", gpu)
    loaded: dict[Component, float] = {LOADED_OPTIMIZER: setup.weights.trained * state_bytes}
    return Resume(loaded, "the states are loaded through the host", gpu)


def _compute_gpu_parts(setup: Setup, plan: Plan) -> dict[Component, float]:
    """Return the bytes per GPU beside weights and states while a checkpoint is loaded.

    - DeepSpeed creates the states with the engine. `Optimizer.load_state_dict` moves the loaded ones to the GPU before
      it drops these, so that both exist (deepspeed 0.10.0 to 0.19.8, stage3.py `_rigid_load_state_dict` and
      stage_1_and_2.py `_load_legacy_checkpoint`; torch 2.13, optim/optimizer.py).
    - FSDP2 creates the states by a step on gradients of zeros (torch 2.13, distributed/checkpoint/state_dict.py
      `_init_optim_state`), as in accelerate and OLMo-core.
    - FSDP1 gathers the root and one unit at a time to write into them; from shards, beside the gathered tensors
      (distributed/fsdp/_state_dict_utils.py, the pre-load hooks).
    - Otherwise the loaded states become the optimizer's.

    Only a measurement on a GPU shows what the allocator keeps of this.
    """
    ranks, weights, formats = setup.ranks, setup.weights, setup.formats
    if ranks.strategy == "zero" and ranks.zero_stage:
        on_host = bool(setup.offload.optimizer)
        return {} if on_host else {RESTORED: weights.trained * setup.optimizer.known_state / ranks.optimizer_shards}
    if ranks.strategy == "fsdp2":
        return {GRADIENTS: weights.trained * formats.held / ranks.parameter_shards}
    if ranks.strategy != "fsdp1" or ranks.parameter_shards == 1:
        return {}
    elements: float = setup.architecture.parameters
    if setup.sharding.wrapping != "root":
        elements = transients.count_root_elements(setup) + transients.count_unit_elements(setup)
    return {GATHERED: elements * formats.held * (1 if plan.checkpoint.state_dict == "full" else 2)}


def _estimate_olmo_resume(setup: Setup, plan: Plan) -> Resume | None:
    """Return the cost for OLMo under DDP: every rank holds all weights while it reads all states (`FullCheckpointer`).

    Return None under FSDP, because the cost then depends on the kind of checkpoint.
    """
    if plan.parallel.strategy != "ddp":
        return None
    loaded: dict[Component, float] = {LOADED_WEIGHTS: setup.ranks.local * setup.weights.trained * setup.formats.held}
    if plan.checkpoint.load_optimizer is not False and setup.optimizer.state is not None:
        loaded[LOADED_OPTIMIZER] = setup.ranks.local * setup.weights.trained * setup.optimizer.state
    return Resume(loaded, "every rank reads the whole checkpoint", {})


def count_readers(setup: Setup) -> int:
    """Return the number of ranks on a node that read all the weights.

    Under FSDP1 all ranks do, unless adapters are trained; rank 0 alone reads the states. Under FSDP2
    rank 0 alone reads both.
    """
    return setup.ranks.local if setup.ranks.strategy == "fsdp1" and not setup.weights.adapters else 1
