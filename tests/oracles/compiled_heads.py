"""Logits memory of a compiled output layer that computes the loss itself, as OLMo-core's does.

Runs AOTAutograd with inductor's decompositions and partitioner, without its kernels. The graphs' inputs and outputs
that have the size of the logits are counted in bytes per token and word: outputs of the forward graph, tensors kept for
the backward graph, and the element size of the gradient that the backward graph multiplies by the output matrix.

Needs torch; a minute:
    python compiled_heads.py > tests/memory/compiled_heads.jsonl
"""

from __future__ import annotations

import json
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table
from torch.nn.functional import cross_entropy

TOKENS, WORDS, HIDDEN = 512, 4096, 128


class Head(torch.nn.Module):
    """Norm, output matrix, cross-entropy in fp32 and, if `squared`, the squared log of the softmax's sum."""

    def __init__(self, dtype: torch.dtype, squared: bool) -> None:
        super().__init__()
        self.norm = torch.nn.RMSNorm(HIDDEN, dtype=dtype)
        self.out = torch.nn.Linear(HIDDEN, WORDS, bias=False, dtype=dtype)
        self.squared = squared

    def forward(self, hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = self.out(self.norm(hidden)).float()
        loss = cross_entropy(logits, labels, ignore_index=-100, reduction="sum")
        if not self.squared:
            return loss
        return loss + 1e-5 * (logits.logsumexp(-1).pow(2) * (labels != -100)).sum()


def _list_element_sizes(nodes: Any) -> list[int]:
    values = (node.meta.get("val") for node in nodes if isinstance(node, torch.fx.Node))
    return [
        value.element_size() for value in values if isinstance(value, torch.Tensor) and value.numel() == TOKENS * WORDS
    ]


def measure_graphs(dtype: torch.dtype, squared: bool) -> dict[str, Any]:
    """Compile the head and return one row."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    row: dict[str, Any] = {"dtype": str(dtype).removeprefix("torch."), "squared": squared}

    def count_forward(graph: Any, _: Any) -> Any:
        (outputs,) = next(node for node in graph.graph.nodes if node.op == "output").args
        row["made"] = sum(_list_element_sizes(set(outputs)))
        return graph

    def count_backward(graph: Any, _: Any) -> Any:
        row["kept"] = sum(_list_element_sizes(node for node in graph.graph.nodes if node.op == "placeholder"))
        products = [node for node in graph.graph.nodes if node.target is torch.ops.aten.mm.default]
        row["product"] = _list_element_sizes(products[-1].args)[0]
        return graph

    backend = aot_autograd(
        fw_compiler=count_forward, bw_compiler=count_backward, partition_fn=min_cut_rematerialization_partition,
        decompositions=select_decomp_table(),
    )  # fmt: skip
    hidden = torch.randn(TOKENS, HIDDEN, dtype=dtype, requires_grad=True)
    labels = torch.randint(0, WORDS, (TOKENS,))
    torch.compile(Head(dtype, squared), backend=backend)(hidden, labels).backward()
    return row


if __name__ == "__main__":
    for number in (torch.bfloat16, torch.float32):
        for addition in (False, True):
            print(json.dumps(measure_graphs(number, addition)), flush=True)
