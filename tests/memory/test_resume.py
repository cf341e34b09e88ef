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


LASTING = {"parameters", "master weights", "optimizer state", "workspaces", "GPU context", "allocator reserve"}


def list_gpu_parts(fields: Any) -> dict[str, int]:
    """Return the parts of resuming on a GPU beside those that are there between steps."""
    resume = estimate(fields, LLAMA_8B).find_phase("resume")
    assert resume is not None
    assert resume.gpu is not None
    return {part.name: size for part, size in resume.gpu.sizes if size and part.name not in LASTING}


@pytest.mark.parametrize(("stage", "ranks"), [(1, 4), (2, 4), (3, 4)])
def test_deepspeed_holds_the_new_states_beside_those_of_the_engine(stage: int, ranks: int) -> None:
    fields = make_zero(stage, ranks, checkpoint__load_path="/run")
    parts = list_gpu_parts(fields)
    assert parts.pop("restored optimizer state") == pytest.approx(8 * SIZE / ranks, rel=0.001)
    assert set(parts) == ({"gradients", "gradient buckets"} if stage == 3 else set())
    offloaded = make_zero(stage, ranks, checkpoint__load_path="/run", parallel__offload_optimizer="cpu")
    assert "restored optimizer state" not in list_gpu_parts(offloaded)


ROOT = 2 * 128256 * 4096 + 4096
UNIT = (SIZE - ROOT) / 32


@pytest.mark.parametrize(
    ("version", "kind", "expected"),
    [
        (1, "full", {"gathered parameters": 2 * (ROOT + UNIT)}),
        (1, "sharded", {"gathered parameters": 4 * (ROOT + UNIT)}),
        (2, "sharded", {"gradients": 2 * SIZE / 8}),
        (2, "full", {"gradients": 2 * SIZE / 8}),
    ],
)
def test_fsdp_on_a_gpu(version: int, kind: str, expected: dict[str, float]) -> None:
    fields = make_plan(
        checkpoint__load_path="/run", parallel__strategy=f"fsdp{version}", launch__nodes=1, launch__gpus_per_node=8,
        checkpoint__state_dict=kind, checkpoint__strategy="no",
    )  # fmt: skip
    assert list_gpu_parts(fields) == {name: pytest.approx(size, rel=0.001) for name, size in expected.items()}


def test_loaded_states_become_those_of_a_replicated_optimizer() -> None:
    fields = make_plan(
        checkpoint__load_path="/run", parallel__strategy="ddp", launch__nodes=1, launch__gpus_per_node=8,
        optimizer__state_bits=32,
    )  # fmt: skip
    assert list_gpu_parts(fields) == {}
