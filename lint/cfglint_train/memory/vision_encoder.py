"""Memory of a vision tower: its blocks use the same tape model as the decoder's layers, with patches as tokens.

The tower runs before the decoder in the forward pass and after it in the backward pass, so its saved tensors live
throughout the decoder's passes. The projector and the patch embedding are ignored, because their few matrices are
small compared with about thirty blocks.
"""

from __future__ import annotations

from functools import lru_cache

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.memory.layers.layer import compute_layer_cost
from cfglint_train.memory.layers.matrices import Mode
from cfglint_train.memory.tape import Cost, compute_peak
from cfglint_train.models.architecture import Architecture, Tower


class BlockMoment(Frozen):
    """Memory of the backward pass of one block, in bytes."""

    kept: float
    """Bytes that the blocks before it hold, plus the block's own input if blocks are checkpointed."""
    copies: float
    """Bytes of autocast's weight copies that the blocks before it hold."""
    peak: float
    """Bytes that the block itself needs, including its weight gradients."""
    later_gradients: float
    """Bytes of the weight gradients of the blocks after it."""


class EncoderMemory(Frozen):
    """Bytes that the tower needs for one micro batch on one GPU."""

    kept: float
    """Bytes that the blocks keep for their backward pass; 0 if they are frozen."""
    copies: float
    """Bytes of autocast's weight copies that the blocks keep for their backward pass."""
    forward: float
    """Peak of the forward pass."""
    moments: tuple[BlockMoment, ...]
    """Backward passes that can set the peak: that of the last block, then that of the first; empty if frozen."""


@lru_cache(maxsize=64)
def compute_block_cost(tower: Tower, mode: Mode) -> Cost | None:
    """Return the cost of one block, per patch, or None for a tower without a formula."""
    return compute_layer_cost(_build_block(tower), mode) if tower.kind else None


def compute_encoder_memory(tower: Tower, mode: Mode, patches: int, checkpointed: bool) -> EncoderMemory | None:
    """Return the tower's memory for `patches` patches, or None for a tower without a formula.

    Frozen blocks (`mode.trained` is false) keep nothing, because no gradient reaches them.
    """
    cost = compute_block_cost(tower, mode)
    if cost is None:
        return None
    width = float(tower.hidden * mode.weight * patches)
    forward_peak, others = compute_peak(cost.inference, patches) + width, tower.layers - 1
    if not mode.trained:  # autocast caches no copies of frozen weights either
        return EncoderMemory(0.0, 0.0, forward_peak, ())
    if checkpointed:
        top, kept, copies = max(compute_peak(cost.recompute, patches), compute_peak(cost.backward, patches)), width, 0.0
        forward = others * (width + cost.fixed_saved) + forward_peak
    else:
        top = compute_peak(cost.backward, patches) + cost.saved_input * patches
        kept, copies = cost.saved * patches, cost.fixed_saved
        forward = others * (kept + copies) + compute_peak(cost.forward, patches) + width
    checkpoint = width if checkpointed else 0.0
    last = BlockMoment(others * kept + checkpoint, others * copies, top, 0.0)
    first = BlockMoment(checkpoint, 0.0, top, others * cost.weight_gradients)
    return EncoderMemory(tower.layers * kept, tower.layers * copies, forward, (last, first))


def _build_block(tower: Tower) -> Architecture:
    """Return a block as a decoder architecture."""
    return Architecture(
        id="",
        model_type=f"vision:{tower.kind}",
        layers=tower.layers,
        hidden=tower.hidden,
        vocab=1,
        heads=tower.heads,
        kv_heads=tower.heads,
        head_dim=tower.hidden // tower.heads,
        intermediate=tower.intermediate,
        tied=False,
        parameters=tower.parameters,
        tensors=0,
        largest_tensor=0,
        layer_parameters=tower.parameters // tower.layers,
    )
