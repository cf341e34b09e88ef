"""Parameters that name patterns leave trainable: their elements, and the layers that the backward pass runs through.

The names are those of transformers' Llama-like models. A pattern is matched from the start of a name, and its dots are
literal unless a `+` follows. With a row range at the end (`[:32000]`), the whole parameter is trained with a masked
gradient (axolotl 0.18.0, utils/freeze.py).
"""

from __future__ import annotations

from functools import lru_cache

from cfglint_train.memory.module_names import ENDS, find_part, list_layer_roots
from cfglint_train.models.architecture import Architecture, Linear


@lru_cache(maxsize=16)  # called again in every estimate of a run
def count_trained(architecture: Architecture, patterns: tuple[str, ...]) -> tuple[int, int] | None:
    """Return the trained elements except norms, and the number of layers from the lowest trained layer up, or None.

    The result is None if the parameter names are unknown, if a pattern is unsupported (`foundation/patterns.py`), or if
    no counted element is trained.
    """
    import re

    from cfglint_train.foundation.patterns import UnsupportedPattern, compile_pattern

    try:
        compiled_patterns = [
            compile_pattern(re.sub(r"\.(?!\+)", r"\.", re.sub(r"\[[0-9]*(:[0-9]*)?\]$", "", text))) for text in patterns
        ]
    except UnsupportedPattern:
        return None
    elements, lowest, layers = 0, architecture.layers, architecture.layers

    def is_trained(names: tuple[str, ...]) -> bool:
        return any(pattern.match(name) for pattern in compiled_patterns for name in names)

    if not architecture.linears:
        return None
    # In a model with a tower, the language model is nested in the whole model.
    has_tower = architecture.tower is not None
    layers_in = list_layer_roots(architecture)
    for item in architecture.linears:
        if item.part in ("tower", "projector") or (item.part == "head" and architecture.tied):
            continue
        ends = ENDS.get(item.part)
        if ends is not None:
            names = ends[1:] if has_tower and item.part == "embedding" else ends[: 2 if has_tower else 1]
            if is_trained(tuple(f"{name}.weight" for name in names)):
                elements += item.elements
                lowest = 0 if item.part == "embedding" else lowest
            continue
        if not find_part(architecture, item.name) or item.count > layers:
            # The module's path or its layers are unknown: count the matrix only if every layer is trained as a whole.
            if not all(is_trained(tuple(f"{root}.{layer}." for root in layers_in)) for layer in range(layers)):
                return None
            elements, lowest = elements + item.elements, 0
            continue
        # The first layers of a mixture-of-experts model may be dense.
        start = layers - item.count if item.experts else 0
        for layer in range(start, start + item.count):
            if is_trained(_list_names(architecture, item, layer)):
                elements += item.elements // item.count
                lowest = min(lowest, layer)
    return (elements, layers - lowest) if elements else None


def _list_names(architecture: Architecture, item: Linear, layer: int) -> tuple[str, ...]:
    if item.experts:
        inner: tuple[str, ...] = (
            f"mlp.experts.{item.name}", f"block_sparse_moe.experts.{item.name}", "block_sparse_moe.experts.0.w1.weight",
            "mlp.experts.0.gate_proj.weight",
        )  # fmt: skip
    else:
        inner = (f"{find_part(architecture, item.name)}.{item.name}.weight",)
    return tuple(f"{root}.{layer}.{name}" for root in list_layer_roots(architecture) for name in inner)
