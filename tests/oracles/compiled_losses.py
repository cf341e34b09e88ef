"""Logits memory of a compiled model's own loss, read from the graphs of AOTAutograd.

Inductor's decompositions and partitioner run without its kernels. The graphs' inputs and outputs that have the size of
the logits are counted in bytes per token and word: `made` are outputs of the forward graph, `kept` are tensors kept for
the backward graph, `given` are all inputs of the backward graph, including the gradient of zeros for the logits.
`product` is the element size of the gradient that the backward graph multiplies by the output matrix. `mask`: bytes per
token and key of the attention mask that is kept. `trainer`: the model as accelerate's autocast prepares it, with
outputs converted to fp32.

Needs torch, transformers and accelerate; a minute:
    python compiled_losses.py > tests/memory/compiled_losses.jsonl
"""

from __future__ import annotations

import json
import os
from types import MethodType
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from accelerate.utils import convert_outputs_to_fp32
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table

TOKENS, WORDS, BATCH = 256, 4096, 2
SHAPE: dict[str, Any] = {
    "hidden_size": 128, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 32,
    "vocab_size": WORDS, "num_hidden_layers": 2, "use_cache": False, "pad_token_id": 0,
}  # fmt: skip
CASES = {"bf16": (torch.bfloat16, False), "fp32": (torch.float32, False), "trainer": (torch.float32, True)}


def _find_logits(nodes: Any) -> dict[str, int]:
    """Find the tensors that have the size of the logits: name -> bytes per element."""
    return _find_element_sizes(nodes, BATCH * TOKENS * WORDS)


def _find_element_sizes(nodes: Any, size: int) -> dict[str, int]:
    values = {node.name: node.meta["val"] for node in nodes if isinstance(node.meta.get("val"), torch.Tensor)}
    return {name: value.element_size() for name, value in values.items() if value.numel() == size}


def measure_graphs(case: str, tied: bool) -> dict[str, Any]:
    """Compile the model and return one row."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    dtype, autocast = CASES[case]
    config = transformers.AutoConfig.for_model("llama", **SHAPE, tie_word_embeddings=tied)
    config._attn_implementation = "sdpa"
    model: Any = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.train()
    if autocast:
        model.forward = MethodType(torch.autocast("cpu", torch.bfloat16)(model.forward.__func__), model)
        model.forward = MethodType(convert_outputs_to_fp32(model.forward.__func__), model)
    row: dict[str, Any] = {"case": case, "tied": tied}

    def count_forward(graph: Any, _: Any) -> Any:
        (outputs,) = next(node for node in graph.graph.nodes if node.op == "output").args
        tensors = [node for node in outputs if isinstance(node, torch.fx.Node)]
        bases = {node.args[0] if node.target is torch.ops.aten.view.default else node for node in tensors}
        row["made"] = sum(_find_logits(bases).values())
        return graph

    def count_backward(graph: Any, _: Any) -> Any:
        inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
        logits = _find_logits(inputs)
        row["kept"] = sum(size for name, size in logits.items() if not name.startswith("tangents"))
        row["given"] = sum(logits.values())
        row["mask"] = sum(_find_element_sizes(inputs, BATCH * TOKENS * TOKENS).values())
        products = [node for node in graph.graph.nodes if node.target is torch.ops.aten.mm.default]
        row["product"] = next(iter(_find_logits(products[0].args).values()))
        return graph

    backend = aot_autograd(
        fw_compiler=count_forward, bw_compiler=count_backward, partition_fn=min_cut_rematerialization_partition,
        decompositions=select_decomp_table(),
    )  # fmt: skip
    token_ids = torch.randint(0, WORDS, (BATCH, TOKENS))
    torch.compile(model, backend=backend)(input_ids=token_ids, labels=token_ids, use_cache=False).loss.backward()
    return row


if __name__ == "__main__":
    for name in CASES:
        for matrix in (True, False):
            print(json.dumps(measure_graphs(name, matrix)), flush=True)
