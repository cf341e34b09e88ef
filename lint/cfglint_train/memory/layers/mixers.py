"""Mixers other than attention, built on a layer's tape with the tensors that the training kernels save.

Each mixer follows the autograd function of its kernel: flash-linear-attention 0.6 (`ops/gated_delta_rule/chunk.py`),
causal-conv1d, mamba_ssm (`ops/triton/ssd_combined.py`, `ops/selective_scan_interface.py`). transformers' PyTorch code,
which runs if the kernels are not installed, saves several times as much.
"""

from __future__ import annotations

from collections.abc import Callable

from cfglint_train.foundation.typed import Final
from cfglint_train.memory.layers.norms import Norms
from cfglint_train.models.architecture import Recurrent

_CHUNK: Final = 64
"""Tokens per chunk of the gated delta rule; the backward pass keeps a state for each chunk."""
_SCAN_CHUNK: Final = 256
"""Tokens per chunk of Mamba-2."""
_TAPS: Final = 4
"""Width of the short convolutions' kernels."""


def build_convolution(layer: Norms, x: int, shape: Recurrent) -> int:
    """Build LFM2's mixer: two gates around a short convolution."""
    tape, hidden = layer.tape, layer.architecture.hidden
    both = layer.apply_linear(x, 3 * hidden, "in_proj")
    element = tape.element[both]
    first, second, inner = (tape.view(both, hidden) for _ in range(3))
    gated = tape.apply((first, inner), hidden, element, saves=(first, inner))
    mixed = _apply_convolution(layer, gated)
    out = tape.apply((second, mixed), hidden, element, saves=(second, mixed))
    return layer.apply_linear(out, hidden, "out_proj")


def build_gated_delta(layer: Norms, x: int, shape: Recurrent) -> int:
    """Build the gated delta rule (Qwen3-Next, Qwen3.5).

    The kernel saves normalized queries and keys, values, gates and the chunks' matrices.
    """
    tape, inner, keys, heads = layer.tape, shape.inner, shape.keys, shape.heads
    joined = any(item.name == "in_proj_qkvz" for item in layer.architecture.linears)
    if joined:
        both = layer.apply_linear(x, 2 * keys + 2 * inner, "in_proj_qkvz")
        mixed, gate = layer.copy(both, 2 * keys + inner), layer.copy(both, inner)
        rates = [layer.apply_linear(x, 2 * heads, "in_proj_ba")]
    else:
        mixed, gate = layer.apply_linear(x, 2 * keys + inner, "in_proj_qkv"), layer.apply_linear(x, inner, "in_proj_z")
        rates = [layer.apply_linear(x, heads, "in_proj_b"), layer.apply_linear(x, heads, "in_proj_a")]
    element = tape.element[mixed]
    mixed = _apply_convolution(layer, mixed)
    query, key, value = (layer.copy(mixed, width) for width in (keys, keys, inner))
    small = tape.add_tensor(heads, 4 + 4 + element, needs=False)  # the decay, its logarithm's input, the learning rate
    chunks = tape.add_tensor(heads * _CHUNK, element, needs=False)
    states = heads * shape.state * (inner // heads) / _CHUNK
    recomputed = 2 * heads * shape.state + 2 * inner + 2 * states
    saves = (query, key, value, small, chunks)
    out = tape.apply((query, key, value, *rates), inner, element, saves=saves, scratch=recomputed * element)
    return layer.apply_linear(_apply_gated_norm(layer, out, gate, heads), layer.architecture.hidden, "out_proj")


def build_mamba2(layer: Norms, x: int, shape: Recurrent) -> int:
    """Build Mamba-2's fused function, which saves its input and the scan's output and recomputes the rest."""
    tape, inner = layer.tape, shape.inner
    both = layer.apply_linear(x, 2 * inner + 2 * shape.keys + shape.heads, "in_proj")
    element = tape.element[both]
    filtered = inner + 2 * shape.keys
    states = 4 * inner * shape.state / _SCAN_CHUNK
    scan = tape.apply(
        (both,), inner, element, saves=(both,), saves_output=True, scratch=(2 * filtered + inner) * element + 2 * states
    )
    elements = inner * layer.architecture.hidden
    trained = elements * layer.mode.weight if layer.mode.trained else 0
    return tape.apply((scan,), layer.architecture.hidden, element, scratch=inner * element, weight_gradient=trained)


def build_mamba(layer: Norms, x: int, shape: Recurrent) -> int:
    """Build Mamba's selective scan (Jamba), which saves its input, step sizes, gate and output."""
    tape, inner = layer.tape, shape.inner
    both = layer.apply_linear(x, 2 * inner, "in_proj")
    element = tape.element[both]
    mixed = _apply_convolution(layer, tape.view(both, inner))
    small = layer.apply_linear(mixed, shape.keys + 2 * shape.state, "x_proj")
    steps = layer.apply_linear(layer.copy(small, shape.keys), inner, "dt_proj")
    gate = tape.view(both, inner)
    scan = tape.apply((mixed, steps, gate), inner, element, saves=(mixed, steps, small, gate), saves_output=True)
    return layer.apply_linear(layer.copy(scan, inner), layer.architecture.hidden, "out_proj")


def _apply_convolution(layer: Norms, x: int) -> int:
    """Build a short causal convolution fused with its activation, which saves its input."""
    tape, width = layer.tape, layer.tape.width[x]
    weight = _TAPS * width * layer.mode.weight if layer.mode.trained else 0
    return tape.apply((x,), width, tape.element[x], saves=(x,), weight_gradient=weight)


def _apply_gated_norm(layer: Norms, x: int, gate: int, heads: int) -> int:
    """Build a norm per head, times silu(gate) in fp32, as in transformers."""
    tape, width, element = layer.tape, layer.tape.width[x], layer.tape.element[x]
    inner = layer.apply_rms_norm(x, heads)
    full = layer.cast(gate, 4)
    curve = tape.apply((full,), width, 4, saves=(full,))
    product = tape.apply((tape.recast(inner, 4), curve), width, 4, saves=(inner, curve))
    return layer.cast(product, element)


MIXERS: Final[dict[str, Callable[[Norms, int, Recurrent], int]]] = {
    "convolution": build_convolution,
    "delta": build_gated_delta,
    "mamba": build_mamba,
    "mamba2": build_mamba2,
}
