"""The phase that loads a checkpoint again (`test_host_save.py` compares it with real runs)."""

from __future__ import annotations

from typing import Any

import pytest

from cfglint_train.memory.estimate import estimate
from tests.memory.jobs import LLAMA_8B, make_plan, make_zero

SIZE = LLAMA_8B.parameters


def estimate_host(fields: Any) -> int | None:
    phase = estimate(fields, LLAMA_8B).find_phase("resume")
    return None if phase is None or phase.host is None else phase.host.expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"checkpoint__resume_latest": True}, 4.0),
        ({"checkpoint__load_path": "/run/checkpoint-10", "optimizer__state_bits": 32}, 8.0),
        ({"checkpoint__resume_latest": True, "checkpoint__model_only": True}, None),
        ({"checkpoint__load_path": "/run", "checkpoint__load_optimizer": False}, None),
        ({}, None),
        (
            {"checkpoint__resume_latest": True, "parallel__strategy": "ddp", "launch__nodes": 1,
             "launch__gpus_per_node": 8},
            None,
        ),
    ],
)  # fmt: skip
def test_one_gpu(changes: dict[str, Any], expected: float | None) -> None:
    size = estimate_host(make_plan(**changes))
    assert size == (None if expected is None else pytest.approx(expected * SIZE, rel=0.001))


@pytest.mark.parametrize(("stage", "ranks", "expected"), [(2, 2, 12.0), (2, 8, 16.0), (3, 8, 12.0)])
def test_deepspeed(stage: int, ranks: int, expected: float) -> None:
    """Load 12 bytes of states over the ranks, or the whole 16-bit module on each of them."""
    size = estimate_host(make_zero(stage, ranks, checkpoint__resume_latest=True))
    assert size == pytest.approx(expected * SIZE, rel=0.001)


@pytest.mark.parametrize(("version", "kind", "expected"), [(1, "full", 16.0), (2, "full", 4.0), (2, "sharded", None)])
def test_fsdp(version: int, kind: str, expected: float | None) -> None:
    fields = make_plan(
        checkpoint__resume_latest=True, parallel__strategy=f"fsdp{version}", launch__nodes=1, launch__gpus_per_node=8,
        checkpoint__state_dict=kind,
    )  # fmt: skip
    size = estimate_host(fields)
    assert size == (None if expected is None else pytest.approx(expected * SIZE, rel=0.001))
