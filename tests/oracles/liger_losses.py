"""Memory of Liger's chunked losses, forward and backward, measured on their compiled code on a CPU.

Each loss computes the logits, log-probabilities and gradients of a chunk at once, compiled by torch's inductor. A CPU
allocates the same buffers as a GPU, except for fusions that only one of them has. The profiler's memory events give the
peak above what exists before.

Needs torch 2.13.0 (CPU build), liger-kernel 0.8.5 (importable without triton) and a C++ compiler; minutes. Writes the
rows of `tests/memory/losses.jsonl`:  python liger_losses.py OUT.jsonl
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from liger_kernel.chunked_loss import (
    LigerFusedLinearDPOLoss,
    LigerFusedLinearGRPOLoss,
    LigerFusedLinearKTOLoss,
    LigerFusedLinearORPOLoss,
)
from liger_kernel.chunked_loss.jsd_loss import LigerFusedLinearJSDLoss
from torch.profiler import ProfilerActivity, profile

SIZES = ((4, 256, 8192, 512), (8, 256, 8192, 512), (4, 256, 8192, 1024))
"""Sequences, length, vocabulary, width: the output matrix is larger than a chunk's logits, as in real models."""


def measure_peak(step: Callable[[], None]) -> int:
    """Measure the bytes that a step allocates at most, in addition to what exists before it."""
    step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as run:
        step()
    events = [event for event in run.profiler.kineto_results.events() if event.name() == "[memory]"]  # type: ignore[union-attr]
    now = highest = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        highest = max(highest, now)
    return highest


def _call_loss(kind: str, weight: Any, hidden: Any, labels: Any, reference_hidden: Any, reference_weight: Any) -> Any:
    count, length = labels.shape
    if kind == "orpo":
        return LigerFusedLinearORPOLoss()(weight, hidden, labels)
    if kind == "dpo":
        return LigerFusedLinearDPOLoss(use_ref_model=True)(
            weight, hidden, labels, None, reference_hidden, reference_weight
        )
    if kind == "kto":
        good = torch.tensor([True, False] * (count // 2))
        loss = LigerFusedLinearKTOLoss(use_ref_model=True)
        return loss(
            _input=hidden, lin_weight=weight, target=labels, preference_labels=good, ref_input=reference_hidden,
            ref_weight=reference_weight, kl=torch.zeros(()),
        )  # fmt: skip
    if kind == "grpo":
        loss = LigerFusedLinearGRPOLoss(use_ref_model=True)
        mask, advantages = torch.ones(count, length), torch.randn(count)
        return loss(hidden, weight, labels, mask, advantages, ref_input=reference_hidden, ref_weight=reference_weight)
    loss = LigerFusedLinearJSDLoss(weight_hard_loss=0.0, weight_soft_loss=1.0)
    return loss(hidden.flatten(0, 1), weight, reference_hidden.flatten(0, 1), reference_weight, labels.flatten())


def measure_row(kind: str, sequences: int, length: int, vocab: int, width: int) -> dict[str, Any]:
    """Measure one loss at one size."""
    weight = torch.randn(vocab, width, dtype=torch.bfloat16, requires_grad=True)
    hidden = torch.randn(sequences, length, width, dtype=torch.bfloat16, requires_grad=True)
    reference_hidden, reference_weight = hidden.detach().clone(), weight.detach().clone()
    labels = torch.randint(0, vocab, (sequences, length))

    def run_step() -> None:
        weight.grad = hidden.grad = None
        loss = _call_loss(kind, weight, hidden, labels, reference_hidden, reference_weight)
        (loss[0] if isinstance(loss, tuple) else loss).backward()

    return {
        "id": f"{kind}-{sequences}x{length}-V{vocab}-h{width}",
        "loss": kind,
        "sequences": sequences,
        "length": length,
        "vocab": vocab,
        "hidden": width,
        "bytes": measure_peak(run_step),
    }


def main() -> None:
    """Write all rows."""
    with Path(sys.argv[1]).open("w") as out:
        for kind in sys.argv[2:] or ("orpo", "dpo", "kto", "grpo", "jsd"):
            for size in SIZES:
                out.write(json.dumps(measure_row(kind, *size)) + "\n")
                out.flush()
                torch._dynamo.reset()


if __name__ == "__main__":
    main()
