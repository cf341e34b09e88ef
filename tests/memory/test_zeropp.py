"""ZeRO++: a second copy of the weights, and weights in 8 bits (deepspeed 0.19.8, partition_parameters.py)."""

from __future__ import annotations

from typing import Any

import pytest

from cfglint_train.memory.estimate import estimate
from tests.memory.jobs import LLAMA_8B, get_gpu, make_zero, sum_parts

SIZE = LLAMA_8B.parameters


def sum_component(name: str, **changes: Any) -> int:
    return sum_parts(get_gpu(estimate(make_zero(3, 64, **changes), LLAMA_8B), "forward"), name)


def test_a_second_copy_is_spread_over_a_node() -> None:
    assert sum_component("unsharded parameters") == 0
    assert sum_component("unsharded parameters", parallel__secondary_partition=8) == pytest.approx(2 * SIZE / 8)


def test_the_second_copy_is_offloaded_with_the_first() -> None:
    changes = {"parallel__secondary_partition": 8, "parallel__offload_params": "cpu", "parallel__pin_memory": False}
    assert sum_component("unsharded parameters", **changes) == 0
    whole, second = (
        estimate(make_zero(3, 64, **{**changes, "parallel__secondary_partition": ranks}), LLAMA_8B) for ranks in (1, 8)
    )
    hosts = []
    for result in (whole, second):
        phase = result.find_phase("optimizer step")
        assert phase is not None
        assert phase.host is not None
        hosts.append(phase.host.expected)
    assert hosts[1] - hosts[0] == pytest.approx(64 * 2 * SIZE / 8, rel=0.001)


def test_weights_gathered_in_8_bits_pass_through_two_copies() -> None:
    leaf = LLAMA_8B.vocab * LLAMA_8B.hidden
    for compute, copies in (("bf16", 3), ("fp16", 1)):
        plain, quantised = (
            sum_component("gathered parameters", parallel__quantized_gather=on, precision__compute=compute)
            for on in (False, True)
        )
        assert quantised - plain == copies * leaf


def test_frozen_partitions_of_8_bits() -> None:
    lora = {
        "method__tuning": "lora", "method__lora_rank": 8, "method__lora_targets": ("q_proj",),
        "precision__adapter": "bf16", "precision__frozen": "bf16",
    }  # fmt: skip
    assert sum_component("frozen parameters", **lora) == pytest.approx(2 * SIZE / 64)
    assert sum_component("frozen parameters", parallel__quantized_frozen=True, **lora) == pytest.approx(
        SIZE / 64, rel=0.001
    )
