"""What decoder layers hand to each other beside the residual stream, and its gradients."""

from __future__ import annotations

from functools import lru_cache

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.layers.families import ALL_LINEAR, FAMILIES, PER_LAYER
from cfglint_train.memory.layers.kinds import Kind
from cfglint_train.memory.layers.layer import PROGRAMS, compute_residual_bytes
from cfglint_train.memory.layers.matrices import Mode
from cfglint_train.memory.setup import Setup
from cfglint_train.models.architecture import Architecture


class BlockOutputs(Frozen):
    """Bytes of one micro batch on one GPU."""

    kept: float
    """Between forward and backward pass."""
    freed: float
    """The part of it that is given up before the layers run backward."""
    gradients: float
    """Gradients, from the last layer's backward pass on."""
    before: int
    """Layers, from the first one on, that run backward when the ones whose keys are reused ran again."""
    recomputed: float
    """What those ones left."""


_NOTHING: Final = BlockOutputs(0.0, 0.0, 0.0, 0, 0.0)


def compute_block_outputs(setup: Setup) -> BlockOutputs:
    """A second embedding of each token (Gemma 3n, 4), of which every layer has a part, and shared keys and values."""
    batch, mode = setup.batch, setup.mode
    shape = setup.architecture
    attention = shape.attention
    width = _compute_width(shape)
    if not width and (attention is None or not attention.reusing_layers):
        return _NOTHING
    weight, checkpointed = mode.weight, setup.checkpointing.method != "none"
    embedding = batch.tokens * shape.layers * width
    # Its norm, the projection's input, and where layers are checkpointed the sum with the projected first embedding,
    # whose parts they hold as arguments; others count the part that they keep. The gradient of one part is as large as
    # the whole.
    spread, gathered, copies = _compute_stream_costs(shape, mode) if shape.streams > 1 else (0.0, 0.0, 0.0)
    freed = batch.tokens * gathered
    kept = batch.tokens * spread + freed + copies
    if width and mode.autocast and weight == 4:  # the projection's input and weight
        kept += 2.0 * shape.hidden * (batch.tokens + shape.layers * width)
    elif width and mode.trained and not checkpointed:
        kept += batch.tokens * shape.hidden * weight
    kept += embedding * ((8 if mode.trained else 4) + (weight if checkpointed else 0))
    kept += batch.tokens * _compute_adapter_inputs(setup)
    gradients = embedding * weight
    if attention is None or not attention.reusing_layers:
        return BlockOutputs(kept, freed, gradients, 0, 0.0)
    reused, made = compute_reused_keys(shape, mode)
    if not checkpointed:  # a part of what the layers keep themselves
        return BlockOutputs(kept, freed, gradients, 0, 0.0)
    before = shape.layers - attention.reusing_layers - 2
    return BlockOutputs(kept + reused * batch.tokens, freed, gradients, before, made * batch.tokens)


@lru_cache(maxsize=64)
def _compute_width(architecture: Architecture) -> int:
    """Of the second embedding, all layers' parts together; 0 without one."""
    return sum([item.outputs for item in architecture.linears if item.name == PER_LAYER])


def _compute_adapter_inputs(setup: Setup) -> float:
    """Bytes per token that the adapter of the second embedding's projection keeps: inputs of its two matrices."""
    mode, hidden = setup.mode, setup.architecture.hidden
    if not mode.rank or not mode.targets & {ALL_LINEAR, "per_layer_model_projection"}:
        return 0.0
    return (hidden + mode.rank) * (2 if mode.autocast else mode.adapter)


@lru_cache(maxsize=64)
def _compute_stream_costs(architecture: Architecture, mode: Mode) -> tuple[float, float, float]:
    """Bytes per token that making several streams of one, and one of several, keeps, the layers' inputs aside; and the
    bytes of autocast's copies of their matrices.
    """
    family, hidden = FAMILIES[architecture.formula], architecture.hidden
    first, last = (PROGRAMS[family.program](architecture, family, mode) for _ in range(2))
    source = first.tape.add_tensor(hidden, mode.weight)
    streams = last.tape.add_tensor(hidden * architecture.streams, compute_residual_bytes(family, mode))
    before = first.tape.compute_cost(source, first.spread_streams(source))
    after = last.tape.compute_cost(streams, last.join_streams(streams))
    return before.saved, after.saved, before.fixed_saved + after.fixed_saved


@lru_cache(maxsize=64)
def compute_reused_keys(architecture: Architecture, mode: Mode) -> tuple[float, float]:
    """Bytes per token of the keys and values that are reused, and of what making them keeps.

    The last layer with a window that makes its own hands them on, and the last one without, in a dictionary
    (`shared_kv_states`). When a checkpointed one runs again it enters new ones in their place, whose graph is never run
    and stays until the step ends.
    """
    family, attention = FAMILIES[architecture.formula], architecture.attention
    reused = saved = 0.0
    for other in (False, attention is not None and attention.layers > 0):
        layer = PROGRAMS[family.program](architecture, family, mode, Kind(other_attention=other))
        tape = layer.tape
        source = tape.add_tensor(architecture.hidden * architecture.streams, compute_residual_bytes(family, mode))
        pair = layer.build_reused_keys(layer.prepare_attention_input(source))
        both = tape.apply(pair, architecture.hidden, tape.element[source])
        reused += sum(tape.width[item] * tape.element[item] for item in pair)
        saved += tape.compute_cost(source, both).saved
    return reused, saved
