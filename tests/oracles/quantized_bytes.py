"""Bytes of a small Llama whose decoder matrices bitsandbytes has quantised, on a CPU.

Prints one JSON object per kind: {"kind": ..., "double": ..., "bytes": all storages, including scales and tables}. Needs
torch, transformers and bitsandbytes (0.50.2 has CPU kernels).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import bitsandbytes as bnb
import torch
from transformers import LlamaConfig, LlamaForCausalLM

SHAPE = {
    "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 2, "num_attention_heads": 16,
    "num_key_value_heads": 8, "vocab_size": 8000, "tie_word_embeddings": False,
}  # fmt: skip


def list_tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield a tensor, or the tensors of a quantisation state."""
    if isinstance(value, torch.Tensor):
        yield value
    elif hasattr(value, "__dict__"):
        for inner in vars(value).values():
            yield from list_tensors(inner)


def make_4bit(kind: str, double: bool) -> Callable[[Any], Any]:
    """Return a function that converts a layer to Linear4bit as transformers does."""

    def convert(layer: Any) -> Any:
        converted = bnb.nn.Linear4bit(layer.in_features, layer.out_features, bias=False, compute_dtype=torch.bfloat16)
        converted.weight = bnb.nn.Params4bit(
            layer.weight.data, requires_grad=False, compress_statistics=double, quant_type=kind
        )
        return converted.to("cpu")

    return convert


def convert_to_8bit(layer: Any) -> Any:
    """Convert a layer to Linear8bitLt with frozen int8 weights."""
    converted = bnb.nn.Linear8bitLt(layer.in_features, layer.out_features, bias=False, has_fp16_weights=False)
    converted.weight = bnb.nn.Int8Params(layer.weight.data, requires_grad=False, has_fp16_weights=False)
    return converted.to("cpu")


def measure_bytes(make: Callable[[Any], Any]) -> int:
    """Sum the bytes of the model, counting each storage once."""
    model = LlamaForCausalLM(LlamaConfig(**SHAPE)).to(torch.bfloat16)
    for module in list(model.model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, torch.nn.Linear):
                setattr(module, name, make(child))
    sizes: dict[int, int] = {}
    for parameter in (*model.parameters(), *model.buffers()):
        states = [getattr(parameter, name, None) for name in ("quant_state", "CB", "SCB")]
        for tensor in (parameter, *(inner for value in states for inner in list_tensors(value))):
            storage = tensor.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
    return sum(sizes.values())


if __name__ == "__main__":
    for kind, double in (("nf4", False), ("nf4", True), ("fp4", False), ("int8", False)):
        size = measure_bytes(convert_to_8bit if kind == "int8" else make_4bit(kind, double))
        print(json.dumps({"kind": kind, "double": double, "bytes": size}), flush=True)
