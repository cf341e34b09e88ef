"""Memory that a matrix with PEFT's DoRA keeps for the backward pass, on the CPU: one JSON row per setting.

    python dora.py

`saved`: bytes per token, without the input; `fixed`: bytes that do not depend on the tokens. A matrix of 256 x 384 in
16 bits, rank 8.
"""

from __future__ import annotations

import json
import weakref
from contextlib import nullcontext
from typing import Any

import torch
from peft import LoraConfig, get_peft_model

FAN_IN, FAN_OUT, RANK = 256, 384, 8


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_proj = torch.nn.Linear(FAN_IN, FAN_OUT, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.q_proj(x)


class HeldTensor:
    """A tensor that the graph keeps."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def measure_saved(tokens: int, dora: bool, dropout: float, adapter: torch.dtype, autocast: bool) -> int:
    """Measure the bytes of the storages that the graph holds, without the parameters and the input."""
    torch.manual_seed(0)
    model: Any = get_peft_model(
        Layer().to(torch.bfloat16),
        LoraConfig(r=RANK, use_dora=dora, lora_dropout=dropout, target_modules=["q_proj"]),
    )
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.to(adapter)
    model.train()
    tensors: weakref.WeakSet[HeldTensor] = weakref.WeakSet()

    def pack(tensor: torch.Tensor) -> HeldTensor:
        item = HeldTensor(tensor)
        tensors.add(item)
        return item

    x = torch.randn(tokens, FAN_IN, dtype=torch.bfloat16, requires_grad=True)
    excluded = {item.untyped_storage().data_ptr() for item in (x, *model.parameters())}
    cast = torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda item: item.tensor), cast:
        out = model(x)
    sizes = {item.tensor.untyped_storage().data_ptr(): item.tensor.untyped_storage().nbytes() for item in tensors}
    del out
    return sum(size for pointer, size in sizes.items() if pointer not in excluded)


def main() -> None:
    for dora in (False, True):
        for dropout in (0.0, 0.1):
            for adapter, autocast in ((torch.float32, True), (torch.bfloat16, True), (torch.bfloat16, False)):
                few, many = (measure_saved(tokens, dora, dropout, adapter, autocast) for tokens in (512, 1024))
                saved = (many - few) / 512
                row = {"dora": dora, "dropout": bool(dropout), "adapter": adapter.itemsize, "autocast": autocast}
                print(json.dumps({**row, "saved": saved, "fixed": few - 512 * saved}))


if __name__ == "__main__":
    main()
