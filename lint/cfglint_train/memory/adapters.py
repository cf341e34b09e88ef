"""Sizes of PEFT methods other than LoRA: trained elements per adapted matrix, and the equivalent LoRA rank.

Source: peft 0.21.2 (tuners/*/layer.py). `tests/memory/adapters.jsonl` holds the element counts of PEFT's own models.
"""

from __future__ import annotations

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.models.architecture import Architecture, Linear

# (IA)3 scales the inputs of these matrices, not the outputs.
_FEED_FORWARD: Final = frozenset(("down_proj", "fc2", "dense_4h_to_h", "w2", "c_proj"))


class AdapterSize(Frozen):
    """Size of adapters as stated in the plan."""

    rank: int = 0
    """Rank of methods related to LoRA; frequencies for FourierFT."""
    block: int = 0
    """Width of an orthogonal block (OFT)."""
    blocks: int = 0
    """Number of OFT blocks per matrix; used if `block` is 0."""
    tokens: int = 0
    """Virtual tokens of prompt and prefix tuning."""


KINDS: Final = frozenset(
    ("adalora", "fourierft", "hra", "ia3", "ln_tuning", "loha", "miss", "oft", "prefix_tuning", "prompt_tuning", "vera")
)
"""Methods with a formula in this module."""

# Methods that multiply the matrix's input (or output) by thin matrices, like LoRA, or rotate its input.
_LIKE_LORA: Final = frozenset(("adalora", "hra", "loha", "miss", "oft", "vera"))


def needs_rank(kind: str) -> bool:
    """Return whether the method's size is a rank."""
    return kind not in ("ia3", "ln_tuning", "oft", "prefix_tuning", "prompt_tuning")


def find_equivalent_rank(kind: str, size: AdapterSize) -> int:
    """Return the rank of a LoRA adapter with about the same activations: both keep the input in the adapter's format.

    The rank is 1 for OFT, and 0 for methods that do not multiply or rotate the matrix's input, such as (IA)3 and prompt
    tuning.
    """
    if kind not in _LIKE_LORA:
        return 0
    return 1 if kind == "oft" else size.rank


def find_block(inputs: int, stated: int) -> int:
    """Return OFT's block width: the divisor of `inputs` nearest to `stated`, the lower one if two are equally near."""
    if stated >= inputs:
        return inputs
    above = next(width for width in range(stated, inputs + 1) if inputs % width == 0)
    below = next((width for width in range(stated, 1, -1) if inputs % width == 0), 1)
    return below if stated - below <= above - stated else above


def _count_matrix_elements(kind: str, item: Linear, size: AdapterSize) -> int:
    """Return the number of trained elements that a method adds to one matrix."""
    rank, inputs, outputs = size.rank, item.inputs, item.outputs
    if kind == "oft":
        block = find_block(inputs, size.block) if size.block else inputs // find_block(inputs, max(1, size.blocks))
        return inputs // block * (block * (block - 1) // 2)
    return {
        "adalora": rank * (inputs + outputs + 1),
        "loha": 2 * rank * (inputs + outputs),
        "vera": rank + outputs,
        "ia3": inputs if item.name in _FEED_FORWARD else outputs,
        "hra": rank * inputs,
        "miss": rank * outputs,
        "fourierft": rank,
    }.get(kind, 0)


def count_elements(kind: str, architecture: Architecture, linears: tuple[Linear, ...], size: AdapterSize) -> int:
    """Return the number of elements that a method trains in the whole model; `linears` are the adapted matrices."""
    if kind == "prompt_tuning":
        return size.tokens * architecture.hidden
    if kind == "prefix_tuning":
        return size.tokens * architecture.layers * 2 * architecture.kv_heads * architecture.head_dim
    if kind == "ln_tuning":
        return max(0, architecture.parameters - sum(item.elements for item in architecture.linears))
    return sum(item.count * _count_matrix_elements(kind, item, size) for item in linears)


def count_frozen_elements(kind: str, linears: tuple[Linear, ...], size: AdapterSize) -> int:
    """Return the number of frozen elements that a method adds: VeRA's two matrices, which all layers share."""
    if kind != "vera" or not linears:
        return 0
    return size.rank * (max(item.inputs for item in linears) + max(item.outputs for item in linears))
