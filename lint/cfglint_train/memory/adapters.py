"""Sizes of PEFT methods other than LoRA: ranks, and trained elements per adapted matrix.

Source: peft 0.21.2 (tuners/*/layer.py). `tests/memory/adapters.jsonl` holds the element counts of PEFT's own models.
"""

from __future__ import annotations

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.layers.matrices import FEED_FORWARD
from cfglint_train.models.architecture import Architecture, Linear


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


# Methods without adapted matrices.
_ELSEWHERE: Final = frozenset(("ln_tuning", "prefix_tuning", "prompt_tuning"))


def needs_rank(kind: str) -> bool:
    """Return whether the method's size is a rank."""
    return kind not in ("ia3", "ln_tuning", "oft", "prefix_tuning", "prompt_tuning")


def find_rank(kind: str, size: AdapterSize) -> int:
    """Return the rank of the adapters of matrices: 1 for methods without a rank, 0 for those without such adapters."""
    return 0 if kind in _ELSEWHERE else size.rank or 1


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
        "ia3": inputs if item.name in FEED_FORWARD else outputs,
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
