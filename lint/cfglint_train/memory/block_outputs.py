"""Tensors that decoder layers pass to each other besides the residual stream, and their gradients."""

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
    """Memory of the tensors that layers pass to each other, for one micro batch on one GPU, in bytes."""

    kept: float
    """Bytes kept from the forward to the backward pass."""
    freed: float
    """Part of `kept` that is freed before the layers run backward."""
    gradients: float
    """Gradients, which exist from the last layer's backward pass on."""
    before: int
    """Number of leading layers that run backward after the layers with reused keys have been recomputed."""
    recomputed: float
    """Tensors that this recomputation leaves behind."""


_NOTHING: Final = BlockOutputs(0.0, 0.0, 0.0, 0, 0.0)


def compute_block_outputs(setup: Setup) -> BlockOutputs:
    """Return the memory of tensors that layers share: a second embedding of each token, and reused keys and values.

    In Gemma 3n and 4, every layer reads a part of the second embedding. Gemma 3n also splits and joins its streams.
    """
    batch, mode = setup.batch, setup.mode
    shape = setup.architecture
    attention = shape.attention
    width = _compute_width(shape)
    if not width and (attention is None or not attention.reusing_layers):
        return _NOTHING
    weight, checkpointed = mode.weight, setup.checkpointing.method != "none"
    embedding = batch.tokens * shape.layers * width
    # Kept: the norm of the second embedding, its projection's input and, if layers are checkpointed, its sum with the
    # projected first embedding, since layers hold parts of the sum as arguments. Without checkpointing, each layer
    # counts the part that it keeps. The gradient of one part is as large as the whole.
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
    if not checkpointed:  # the layers' own activations include the reused keys
        return BlockOutputs(kept, freed, gradients, 0, 0.0)
    before = shape.layers - attention.reusing_layers - 2
    return BlockOutputs(kept + reused * batch.tokens, freed, gradients, before, made * batch.tokens)


@lru_cache(maxsize=64)
def _compute_width(architecture: Architecture) -> int:
    """Return the width of the second embedding, summed over all layers; 0 if the model has no second embedding."""
    return sum([item.outputs for item in architecture.linears if item.name == PER_LAYER])


def _compute_adapter_inputs(setup: Setup) -> float:
    """Return the bytes per token that the adapter of the second embedding's projection keeps: its matrices' inputs."""
    mode, hidden = setup.mode, setup.architecture.hidden
    if not mode.rank or not mode.targets & {ALL_LINEAR, "per_layer_model_projection"}:
        return 0.0
    return (hidden + mode.rank) * (2 if mode.autocast else mode.adapter)


@lru_cache(maxsize=64)
def _compute_stream_costs(architecture: Architecture, mode: Mode) -> tuple[float, float, float]:
    """Return the bytes per token kept by splitting into streams and by joining them, and the bytes of weight copies.

    The layers' inputs are not included. The copies are autocast's 16-bit copies of the matrices that split and join.
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
    """Return the bytes per token of the reused keys and values, and of the tensors saved while they are computed.

    The last layer with a window and the last layer without one that compute their own keys pass them on in a dictionary
    (`shared_kv_states`). A recomputed layer replaces them with new keys and values, whose graph never runs backward and
    stays until the step ends.
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
