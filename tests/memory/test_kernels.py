"""The kernels of attention, and what autograd sums in place: rows that were measured on an H100 decide both."""

from __future__ import annotations

import pytest

from cfglint_train.evidence.compare import compare
from cfglint_train.evidence.measurements import filed
from cfglint_train.foundation.typed import Any
from cfglint_train.memory.layers.layer import layer_cost
from cfglint_train.memory.layers.matrices import Mode
from cfglint_train.memory.logits import sums_in_place
from cfglint_train.memory.setup import Setup, read
from tests.memory.jobs import LLAMA_3B, LLAMA_8B, plan

FP32: dict[str, Any] = {
    "precision__params": "fp32",
    "precision__compute": "fp32",
    "precision__grads": "fp32",
    "activations__attention": "sdpa",
}
AMP: dict[str, Any] = {"precision__params": "fp32", "precision__grads": "fp32", "precision__autocast": True}
IDS = ("precision-1b-fp32-1024x1", "precision-1b-fp32-padded", "precision-1b-fp32-ac", "loss-1b-512x1", "save-1b-amp",
       "sft-1b-amp-ac", "sft-1b-varying-ac", "liger-1b-512x2")  # fmt: skip


def setup(shape: Any = LLAMA_8B, **changes: Any) -> Setup:
    found, reader = read(plan(**changes), shape)
    assert found is not None, reader.missing
    return found


@pytest.mark.parametrize(
    ("changes", "shape", "kernel"),
    [
        ({}, LLAMA_8B, ("math", 2048)),
        ({}, LLAMA_8B._replace(kv_heads=32), ("efficient", 0)),
        ({}, LLAMA_8B._replace(head_dim=512), ("efficient", 0)),
        ({}, LLAMA_8B._replace(window=1024), ("efficient", 2048)),
        ({}, LLAMA_8B._replace(window=4096), ("math", 2048)),
        ({"batch__micro": 2, "sequence__packing": False}, LLAMA_8B, ("efficient", 2048)),
        ({"precision__compute": "bf16", "precision__autocast": True}, LLAMA_8B, ("flash", 0)),
        ({"activations__attention": "eager"}, LLAMA_8B, ("eager", 2048)),
    ],
)
def test_kernel_of_32_bits(changes: dict[str, Any], shape: Any, kernel: tuple[str, int]) -> None:
    mode = setup(shape, **{**FP32, **changes}).mode
    assert (mode.attention, mode.sequence) == kernel


def test_scores_of_32_bits_are_kept() -> None:
    mode = Mode(weight=4, attention="math", sequence=2048)
    cost = layer_cost(LLAMA_8B, mode)
    assert cost is not None
    h, i, a = LLAMA_8B.hidden, LLAMA_8B.intermediate, LLAMA_8B.heads
    assert cost.saved == 24 * h + 16 * h + 16 * i + 4 * a * 2048 + 8


@pytest.mark.parametrize(
    ("changes", "in_place"),
    [
        ({}, False),
        ({"precision__params": "fp32", "precision__compute": "fp32"}, False),
        ({"precision__autocast": True}, False),  # 16-bit weights are not cast
        (AMP, True),
        ({"activations__fused_loss": "liger"}, True),
        ({"activations__fused_loss": "tiles"}, True),
        ({"activations__fused_loss": "row_kernel"}, False),
    ],
)
def test_gradients_of_a_tied_matrix(changes: dict[str, Any], in_place: bool) -> None:
    assert sums_in_place(setup(LLAMA_3B, **changes)) is in_place


@pytest.mark.parametrize("identity", IDS)
def test_measured(identity: str) -> None:
    """Within 0.4 % of what torch allocated."""
    rows = [row for row in filed() if row.id == identity]
    errors = [found.error for found in compare(rows) if found.counter == "allocated"]
    assert len(errors) == 1
    assert errors[0] is not None
    assert abs(errors[0]) < 0.004


def test_measured_out_of_memory() -> None:
    rows = [row for row in filed() if row.id == "precision-1b-fp32"]
    found = next(iter(compare(rows)))
    assert found.outcome == "oom"
    assert found.verdict == "does not fit"
