"""Logits memory of axolotl's chunked cross entropy, compiled by inductor and run on a CPU.

The function comes from an unpacked release (`src/axolotl/monkeypatch/loss/chunked.py`); `trainer` is the model's
forward pass as accelerate prepares it: under autocast, with outputs converted to fp32. Bytes per token and word:
`forward` at the peak until the loss is known, `kept` after the caller has released the outputs, `backward` at the peak
of the loss's backward pass, `evaluation` at the peak without gradients.

Needs torch, accelerate and a C++ compiler; six minutes:
    python chunked_losses.py AXOLOTL/src/axolotl/monkeypatch/loss/chunked.py > tests/memory/chunked_losses.jsonl
"""

from __future__ import annotations

import importlib.util
import json
import sys
from typing import Any

import torch
from accelerate.utils import convert_outputs_to_fp32
from torch.profiler import ProfilerActivity, profile

TOKENS, WORDS, WIDTH = 512, 32768, 8
CASES = {"bf16": (torch.bfloat16, False), "fp32": (torch.float32, False), "trainer": (torch.bfloat16, True)}


def load_loss(path: str) -> Any:
    """Load `for_causal_lm_chunked_loss` of a release."""
    spec = importlib.util.spec_from_file_location("chunked", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.get_causal_lm_loss()


def measure(loss: Any, case: str, sequences: int) -> dict[str, Any]:
    """Measure one row."""
    dtype, trainer = CASES[case]
    torch.manual_seed(0)
    matrix = torch.nn.Parameter(torch.randn(WORDS, WIDTH, dtype=dtype))
    states = torch.randn(sequences, TOKENS // sequences, WIDTH, dtype=dtype, requires_grad=True)
    labels = torch.randint(0, WORDS, states.shape[:2])

    def run_model() -> dict[str, Any]:
        logits = torch.nn.functional.linear(states, matrix)
        return {"loss": loss(logits, labels, WORDS), "logits": logits}

    forward: Any = run_model
    if trainer:
        forward = convert_outputs_to_fp32(torch.autocast("cpu", torch.bfloat16)(run_model))
    row: dict[str, Any] = {"case": case, "sequences": sequences}
    for train in (True, False):
        with torch.set_grad_enabled(train):
            for _ in range(2):  # the first pass compiles
                outputs = forward()["loss"]
                if train:
                    outputs.backward()
            matrix.grad = states.grad = outputs = None
            with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as first:
                outputs = forward()["loss"]
            peak, kept = _sum_memory_events(first)
            row.update({"forward": peak, "kept": kept} if train else {"evaluation": peak})
            if train:
                with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as second:
                    outputs.backward()
                row["backward"] = round(kept + _sum_memory_events(second)[0], 2)
    return row


def _sum_memory_events(run: Any) -> tuple[float, float]:
    """Return the peak and the final amount of allocated memory, in bytes per token and word."""
    events = [item for item in run.profiler.kineto_results.events() if item.name() == "[memory]"]
    now = peak = 0
    for event in sorted(events, key=lambda item: item.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    return round(peak / TOKENS / WORDS, 2), round(now / TOKENS / WORDS, 2)


if __name__ == "__main__":
    function = load_loss(sys.argv[1])
    for name in CASES:
        for count in (1, 2):
            print(json.dumps(measure(function, name, count)), flush=True)
