"""Logits memory of verl's log-probabilities and entropy, measured on the functions of its wheels on a CPU.

The functions of a release are read from its source (`utils/torch_functional.py`, `utils/experimental/
torch_functional.py`) and called as its FSDP actor calls them without padding, on the 16-bit logits of one matrix (0.5.0
and 0.7.1: workers/actor/dp_actor.py `_forward_micro_batch`; 0.9.1: workers/engine/fsdp/transformer_impl.py
`prepare_model_outputs`). As in CUDA's autocast, softmax is computed in fp32. A function in place of flash-attn's kernel
allocates what the Python code around the kernel does (flash_attn/ops/triton/cross_entropy.py). The profiler's memory
events give bytes per token and word; for the fused loss, per word and token of a chunk, and per element of the matrix.

Needs torch 2.13.0 (CPU build), a C++ compiler, and unpacked wheels (WHEELS/0.9.1/verl/...); five minutes.
Writes the rows of `tests/memory/verl_losses.jsonl`:  python verl_losses.py WHEELS OUT.jsonl
"""

from __future__ import annotations

import ast
import json
import os
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch._inductor import ir
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from trl_losses import measure

TOKENS, WORDS, WIDTH, CHUNK = 4096, 8192, 4, 512
RELEASES = ("0.5.0", "0.9.1")
ENTROPIES = ("none", "compiled", "eager", "eager_chunks", "compiled_chunks", "checkpointed")


class _Kernel(torch.autograd.Function):
    """flash-attn's cross-entropy: it keeps the logits, and in place its gradient replaces them."""

    @staticmethod
    def forward(ctx: Any, logits: Any, labels: Any, in_place: bool) -> Any:
        losses, rows = logits.new_empty(len(logits), dtype=torch.float), logits.new_empty(len(logits))
        ctx.save_for_backward(logits, rows, labels)
        ctx.in_place = in_place
        return losses.zero_()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        logits, _, _ = ctx.saved_tensors
        return (logits if ctx.in_place else torch.empty_like(logits)), None, None


def read_functions(folder: Path) -> dict[str, Any]:
    """Return the functions of a wheel by name."""

    def compute_softmax(logits: Any, dim: int) -> Any:
        return functional.softmax(logits, dim=dim, dtype=torch.float32)

    def compute_loss(logits: Any, labels: Any, inplace_backward: bool = False) -> tuple[Any, ...]:
        return _Kernel.apply(logits, labels, inplace_backward), None

    fast = SimpleNamespace(**{**vars(functional), "softmax": compute_softmax})
    names: dict[str, Any] = {
        **vars(typing), "F": functional, "os": SimpleNamespace(environ={}), "cross_entropy_loss": compute_loss,
        "torch": SimpleNamespace(**{**vars(torch), "nn": SimpleNamespace(**{**vars(nn), "functional": fast})}),
        "FLAH_ATTN_CROSS_ENTROPY_LOSS_AVAILABLE": True, "_FLASH_ATTN_CROSS_ENTROPY_AVAILABLE": True,
        "NPU_CROSS_ENTROPY_LOSS_AVAILABLE": False,
    }  # fmt: skip
    wanted = ("logprobs_from_logits", "entropy_from_logits", "_fused_linear_for_ppo", "FusedLinearForPPOFunction")
    for name in ("torch_functional.py", "experimental/torch_functional.py"):
        for node in ast.parse((folder / "utils" / name).read_text()).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name.startswith(wanted):
                exec(compile(ast.Module([node], []), name, "exec"), names)
    return names


def make_loss(names: dict[str, Any], release: str, entropy: str, temperature: float, body: Any, head: Any) -> Any:
    """Return a function that computes the loss of one micro batch, without padding."""
    labels = torch.randint(1, 60, (TOKENS,))
    options = {"chunk_size": CHUNK} if entropy.endswith("chunks") else {}
    plain = names["entropy_from_logits_with_chunking" if options else "entropy_from_logits"]
    compute = torch.compile(plain, dynamic=True) if entropy.startswith("compiled") else plain

    def compute_entropy(logits: Any) -> Any:
        if entropy.endswith("checkpointed"):
            return checkpoint(compute, logits, use_reentrant=True)
        return compute(logits, **options)

    def compute_in_order() -> Any:
        logits = raw = head(body)
        if release == "0.9.1":
            logits = raw if temperature == 1 else raw / torch.full((TOKENS, 1), temperature, dtype=raw.dtype)
        else:
            logits.div_(temperature)
        first = compute_entropy(logits) if entropy != "none" and release == "0.9.1" else None
        scores = names["logprobs_from_logits"](logits, labels, inplace_backward=entropy == "none")
        if entropy == "none":
            return scores.sum()
        return scores.sum() - 0.01 * (compute_entropy(logits) if first is None else first).sum()

    return compute_in_order


def measure_rows(names: dict[str, Any], release: str) -> typing.Iterator[dict[str, Any]]:
    """Yield the rows of one release."""
    for temperature in (1.0, 0.7) if release == "0.9.1" else (1.0,):
        for entropy in ENTROPIES:
            torch.manual_seed(0)
            body = torch.randn(TOKENS, WIDTH, dtype=torch.bfloat16, requires_grad=True)
            head = nn.Linear(WIDTH, WORDS, bias=False, dtype=torch.bfloat16)
            loss: Callable[[], Any] = make_loss(names, release, entropy, temperature, body, head)
            forward, saved, backward = measure(head, loss, TOKENS * WORDS)
            scored = measure_scoring(loss)
            yield {
                "release": release, "temperature": temperature, "entropy": entropy, "forward": forward, "saved": saved,
                "backward": backward, "scored": scored,
            }  # fmt: skip


def measure_scoring(loss: Callable[[], Any]) -> float:
    """Measure the bytes per token and word at the peak of a pass without gradients."""

    def score() -> Any:
        with torch.no_grad():
            result = loss()
        return result + torch.zeros(1, requires_grad=True).sum()

    return measure(nn.Linear(1, 1), score, TOKENS * WORDS)[0]


def measure_fused(names: dict[str, Any], release: str) -> typing.Iterator[dict[str, Any]]:
    """Yield the rows of the fused loss, for a narrow and a wide matrix."""
    for width, words in ((WIDTH, WORDS), (4096, 8192)):
        states = torch.randn(2 * CHUNK, width, dtype=torch.bfloat16, requires_grad=True)
        labels = torch.randint(1, 60, (2 * CHUNK,))
        for entropy in (False, True):
            for trained in (True, False):
                head = nn.Linear(width, words, bias=False, dtype=torch.bfloat16).requires_grad_(trained)

                def compute(
                    head: Any = head, states: Any = states, labels: Any = labels, entropy: bool = entropy
                ) -> Any:
                    states.grad = None
                    scores, entropies = names["FusedLinearForPPOFunction"].apply(states, head.weight, labels, 1, CHUNK)
                    return scores.sum() + (entropies.sum() if entropy else 0)

                forward, _, backward = measure(head, compute, 1)
                yield {
                    "release": release, "entropy": "fused_entropy" if entropy else "fused", "trained": trained,
                    "width": width, "words": words, "tokens": 2 * CHUNK, "forward": forward, "backward": backward,
                }  # fmt: skip


def main() -> None:
    """Write all rows."""
    ir.is_cpu = lambda value: False  # only for a CPU does inductor keep the result of exp (`should_realize_on_reuse`)
    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
    folder, out = sys.argv[1:]
    with Path(out).open("w") as file:
        for release in RELEASES:
            names = read_functions(Path(folder) / release / "verl")
            for row in (*measure_rows(names, release), *measure_fused(names, release)):
                file.write(json.dumps(row) + "\n")
                file.flush()


if __name__ == "__main__":
    main()
