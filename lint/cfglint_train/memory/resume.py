"""Host memory needed to load a checkpoint before the first step, in bytes on the worst node.

Sources: transformers 5.23.0 (trainer.py, `_load_optimizer_and_scheduler`), deepspeed 0.19.8 (engine.py,
`load_checkpoint`), accelerate 1.15.0 (utils/fsdp_utils.py), ai2-olmo 0.6.0 (checkpoint.py, `restore_checkpoint`);
`tests/oracles/host_save.py` runs the first two.
"""

from __future__ import annotations

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.memory.component import Component
from cfglint_train.memory.components import LOADED_OPTIMIZER, LOADED_WEIGHTS
from cfglint_train.memory.save import count_parts
from cfglint_train.memory.setup import Setup
from cfglint_train.plan.choices import FSDP
from cfglint_train.plan.fields import Plan


class Resume(Frozen):
    """Cost of loading a checkpoint."""

    host: dict[Component, float]
    event: str


def estimate_resume(setup: Setup, plan: Plan) -> Resume | None:
    """Return the host memory needed to load a checkpoint with its optimizer, or None if there is nothing to estimate.

    There is nothing to estimate if no checkpoint or no optimizer state is loaded, if the states are loaded directly
    onto the GPUs, or if it is unknown how they are loaded.
    """
    ranks, formats = setup.ranks, setup.formats
    checkpoint = plan.checkpoint
    if not (checkpoint.load_path or checkpoint.resume_latest):
        return None
    if checkpoint.checkpointer is not None:
        return _estimate_olmo_resume(setup, plan)
    if checkpoint.model_only or checkpoint.load_optimizer is False or setup.optimizer.state is None:
        return None
    state_bytes = setup.optimizer.state
    if ranks.strategy == "zero" and ranks.zero_stage:
        shards = setup.weights.trained * (state_bytes + (formats.master or formats.held)) / ranks.optimizer_shards
        # Below stage 3, every rank first reads the whole module, and frees it before it reads its states.
        module = 0.0 if ranks.zero_stage == 3 else (setup.weights.trained + setup.weights.frozen) * formats.gathered
        if setup.weights.adapters:
            module = min(module, setup.weights.trained * formats.held)
        part = LOADED_OPTIMIZER if shards >= module else LOADED_WEIGHTS
        return Resume({part: ranks.local * max(shards, module)}, "every rank reads its shards")
    if ranks.strategy in FSDP:
        if checkpoint.state_dict != "full":
            return None  # read tensor by tensor into the shards
        part_count = count_parts(setup)
        weights = part_count * (
            setup.weights.trained * formats.held
            + (0.0 if setup.weights.adapters else setup.weights.frozen * formats.gathered)
        )
        states = part_count * setup.weights.trained * state_bytes
        weights *= count_readers(setup)
        part = LOADED_OPTIMIZER if states >= weights else LOADED_WEIGHTS
        return Resume({part: max(weights, states)}, "rank 0 reads all states")
    if ranks.world > 1:
        return None  # loaded directly onto each GPU
    return Resume({LOADED_OPTIMIZER: setup.weights.trained * state_bytes}, "the states are loaded through the host")


def _estimate_olmo_resume(setup: Setup, plan: Plan) -> Resume | None:
    """Return the cost for OLMo under DDP: every rank holds all weights while it reads all states (`FullCheckpointer`).

    Return None under FSDP, because the cost then depends on the kind of checkpoint.
    """
    if plan.parallel.strategy != "ddp":
        return None
    loaded: dict[Component, float] = {LOADED_WEIGHTS: setup.ranks.local * setup.weights.trained * setup.formats.held}
    if plan.checkpoint.load_optimizer is not False and setup.optimizer.state is not None:
        loaded[LOADED_OPTIMIZER] = setup.ranks.local * setup.weights.trained * setup.optimizer.state
    return Resume(loaded, "every rank reads the whole checkpoint")


def count_readers(setup: Setup) -> int:
    """Return the number of ranks on a node that read all the weights.

    Under FSDP1 all ranks do, unless adapters are trained; rank 0 alone reads the states. Under FSDP2
    rank 0 alone reads both.
    """
    return setup.ranks.local if setup.ranks.strategy == "fsdp1" and not setup.weights.adapters else 1
