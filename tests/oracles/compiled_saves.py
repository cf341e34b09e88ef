"""Activations that a compiled decoder layer keeps for its backward pass.

torch's partitioner (min-cut, AOTAutograd) chooses them. The model runs on a CPU, compiled by
`aot_eager_decomp_partition`: inductor's decompositions and partitioner, without its kernels. A layer is the difference
between models of three and of two layers. There are as many key heads as query heads, because attention on a CPU
repeats missing ones. Prints one JSON object per family: bytes per token.

Needs torch and transformers; a minute:  python compiled_saves.py > tests/memory/compiled.jsonl
"""

from __future__ import annotations

import json
import os
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers

TOKENS = 256
SHAPE: dict[str, Any] = {
    "hidden_size": 512, "intermediate_size": 1376, "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64,
    "vocab_size": 64, "tie_word_embeddings": False, "max_position_embeddings": 4096, "use_cache": False,
    "pad_token_id": 0,
}  # fmt: skip
FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "olmo2", "phi3", "granite")


def measure_kept(family: str, layers: int, compiled: bool) -> int:
    """Measure the bytes that autograd keeps in addition to the parameters and buffers."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    config = transformers.AutoConfig.for_model(family, **SHAPE, num_hidden_layers=layers)
    config._attn_implementation = "sdpa"
    model: Any = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.train()
    weights = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    saved: dict[int, int] = {}
    alive: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)
        return tensor

    run = torch.compile(model, backend="aot_eager_decomp_partition") if compiled else model
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        run(input_ids=torch.zeros(1, TOKENS, dtype=torch.long)).logits.sum()
    return sum(saved.values())


def measure_layer(family: str, compiled: bool) -> float:
    """Return the bytes per token that one layer keeps."""
    return (measure_kept(family, 3, compiled) - measure_kept(family, 2, compiled)) / TOKENS


if __name__ == "__main__":
    for name in FAMILIES:
        row = {"family": name, "eager": measure_layer(name, False), "compiled": measure_layer(name, True)}
        print(json.dumps(row), flush=True)
