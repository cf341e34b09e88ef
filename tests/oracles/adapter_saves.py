"""Memory that a matrix with an adapter of PEFT keeps for the backward pass, on the CPU: one JSON row per setting.

    python adapter_saves.py

`saved`: bytes per token, without the input; `fixed`: bytes that do not depend on the tokens. A matrix of 256 x 384 in
16 bits, rank 8.
"""

from __future__ import annotations

import json
import weakref
from contextlib import nullcontext
from typing import Any

import peft
import torch

FAN_IN, FAN_OUT, RANK = 256, 384, 8

Q_PROJ = ["q_proj"]
METHODS: dict[str, Any] = {
    "lora": peft.LoraConfig(r=RANK, target_modules=Q_PROJ),
    "lora, dropout": peft.LoraConfig(r=RANK, lora_dropout=0.1, target_modules=Q_PROJ),
    "dora": peft.LoraConfig(r=RANK, use_dora=True, target_modules=Q_PROJ),
    "dora, dropout": peft.LoraConfig(r=RANK, use_dora=True, lora_dropout=0.1, target_modules=Q_PROJ),
    "adalora": peft.AdaLoraConfig(init_r=RANK, total_step=100, target_modules=Q_PROJ),
    "fourierft": peft.FourierFTConfig(n_frequency=RANK, target_modules=Q_PROJ),
    "hra": peft.HRAConfig(r=RANK, target_modules=Q_PROJ),
    "ia3": peft.IA3Config(target_modules=Q_PROJ, feedforward_modules=[]),
    "ia3 of inputs": peft.IA3Config(target_modules=Q_PROJ, feedforward_modules=Q_PROJ),
    "loha": peft.LoHaConfig(r=RANK, target_modules=Q_PROJ),
    "miss": peft.MissConfig(r=RANK, target_modules=Q_PROJ),
    "oft": peft.OFTConfig(oft_block_size=4, target_modules=Q_PROJ),
    "vera": peft.VeraConfig(r=RANK, target_modules=Q_PROJ),
}


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


def measure_saved(tokens: int, method: str, adapter: torch.dtype, autocast: bool) -> int:
    """Measure the bytes of the storages that the graph holds, without the parameters, the buffers and the input."""
    torch.manual_seed(0)
    model: Any = peft.get_peft_model(Layer().to(torch.bfloat16), METHODS[method])
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
    excluded = {item.untyped_storage().data_ptr() for item in (x, *model.parameters(), *model.buffers())}
    cast = torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda item: item.tensor), cast:
        out = model(x)
    sizes = {item.tensor.untyped_storage().data_ptr(): item.tensor.untyped_storage().nbytes() for item in tensors}
    del out
    return sum(size for pointer, size in sizes.items() if pointer not in excluded)


def main() -> None:
    for method in METHODS:
        for adapter, autocast in ((torch.float32, True), (torch.bfloat16, True), (torch.bfloat16, False)):
            if method == "vera" and adapter != torch.float32:  # its frozen matrices stay in fp32
                continue
            few, many = (measure_saved(tokens, method, adapter, autocast) for tokens in (512, 1024))
            saved = (many - few) / 512
            row = {"method": method, "adapter": adapter.itemsize, "autocast": autocast}
            print(json.dumps({**row, "saved": saved, "fixed": few - 512 * saved}))


if __name__ == "__main__":
    main()
