"""Proposals for unknown settings: real slips from issue trackers and example files."""

from __future__ import annotations

import pytest

from cfglint_schemas.matches import KeyMatch, find_closest
from cfglint_schemas.status import Context, split_route
from cfglint_schemas.vocabulary import load

AXOLOTL = Context(plugins=())


@pytest.mark.parametrize(
    ("route", "best", "how"),
    [
        ("sequence_length", "sequence_len", "similar"),
        ("gradient_checkpoiting", "gradient_checkpointing", "similar"),
        ("context_parapllel_size", "context_parallel_size", "similar"),
        ("adam_eps", "adam_epsilon", "similar"),
        ("Micro-Batch-Size", "micro_batch_size", "spelling"),
        ("microBatchSize", "micro_batch_size", "spelling"),
        ("offload_params", "fsdp_config.offload_params", "place"),
        ("fsdp_offload_params", "fsdp_config.fsdp_offload_params", "place"),
        ("gpu_memory_utilization", "vllm.gpu_memory_utilization", "place"),
        ("fsdp_config.transformer_layer_cls", "fsdp_config.transformer_layer_cls_to_wrap", "similar"),
        ("fsdp_config.micro_batch_size", "micro_batch_size", "place"),
        ("datasets.0.pth", "datasets.0.path", "similar"),
    ],
)
def test_best_proposal(route: str, best: str, how: str) -> None:
    matches = find_closest(load("axolotl"), split_route(route), "0.21.0", AXOLOTL)
    assert matches[0] == KeyMatch(split_route(best), how)


def test_a_route_written_as_one_key() -> None:
    matches = find_closest(load("axolotl"), ("fsdp_config.offload_params",), "0.21.0", AXOLOTL)
    assert matches[0] == KeyMatch(("fsdp_config", "offload_params"), "dotted")


def test_words_in_another_order() -> None:
    matches = find_closest(load("openrlhf"), ("--vllm_enable_is_correction",), "0.9.1", Context(entry="train_ppo_ray"))
    assert matches[0] == KeyMatch(("--enable_vllm_is_correction",), "words")


def test_nothing_is_proposed_for_a_stranger() -> None:
    assert find_closest(load("axolotl"), ("kubernetes_namespace",), "0.21.0", AXOLOTL) == []


def test_only_what_the_release_has_is_proposed() -> None:
    older = find_closest(load("axolotl"), ("ple_cpu_ofload",), "0.18.0", AXOLOTL)
    assert ("ple_cpu_offload",) not in [match.route for match in older]
    assert find_closest(load("axolotl"), ("ple_cpu_ofload",), "0.19.0", AXOLOTL)[0].route == ("ple_cpu_offload",)
    assert find_closest(load("axolotl"), ("liger_ropes",), "0.21.0", AXOLOTL) == []


def test_at_most_as_many_as_asked_for() -> None:
    assert len(find_closest(load("axolotl"), ("lora_dropouts",), "0.21.0", AXOLOTL, limit=1)) == 1


def test_an_index_is_no_name() -> None:
    assert find_closest(load("axolotl"), ("datasets", 0), "0.21.0", AXOLOTL) == []
