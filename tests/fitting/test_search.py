"""The search returns the same combination as trying all of them."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from cfglint_train.fitting.moves import OPTIMISATION, Dimension, Move
from cfglint_train.fitting.search import Combination, compute_cost, find_cheapest
from cfglint_train.fitting.smallest import Problem
from cfglint_train.runs.run import Run
from tests.support.linting import list_runs

MAX_COMBINATIONS = 4096
MODELS = (
    "Qwen/Qwen2.5-0.5B", "meta-llama/Llama-3.2-1B", "meta-llama/Llama-3.2-3B", "Qwen/Qwen2.5-7B",
    "meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5-14B", "Qwen/Qwen2.5-32B", "mistralai/Mixtral-8x7B-v0.1",
    "meta-llama/Llama-3.1-70B",
)  # fmt: skip
CARDS = ("RTX4090", "A100-40GB", "A100-80GB", "H200")


def count_combinations(dimensions: list[Dimension]) -> int:
    product = 1
    for dimension in dimensions:
        product *= len(dimension.moves) + 1
    return product


def search_by_brute_force(problem: Problem) -> Combination | None:
    """Try every combination in the order of its cost, until one fits and can be written."""
    combinations_ = itertools.product(*((None, *item.moves) for item in problem.dimensions))
    return next(
        (item for item in sorted(combinations_, key=compute_cost) if problem.can_fit(item) and problem.can_write(item)),
        None,
    )


def write_run(folder: Path, draw: random.Random) -> None:
    """Write a random run: framework, model, cluster, batch, and the features that it enables."""
    nodes, gpus = draw.choice((1, 1, 2, 8)), draw.choice((1, 2, 8))
    host = draw.choice(("", " host-memory=512GB", " host-memory=2TB"))
    facts = f"# cfglint: nodes={nodes} gpus-per-node={gpus} gpu={draw.choice(CARDS)}{host}\n"
    model, micro, accumulation = draw.choice(MODELS), draw.choice((1, 2, 3, 4, 6, 8, 16)), draw.choice((1, 2, 4, 12))
    length = draw.choice((1024, 2048, 4096, 8192, 16384))
    stage = draw.choice((None, 1, 2, 3, 3))
    if stage is not None:
        section = {"stage": stage, **draw.choice(({}, {"sub_group_size": 10**9}, {"reduce_bucket_size": 10**9}))}
        words = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
        (folder / "ds.json").write_text(json.dumps({**dict.fromkeys(words, "auto"), "zero_optimization": section}))
    sharded = "" if stage is None else "deepspeed: ds.json\n"
    framework = draw.choice(("axolotl", "llamafactory", "openrlhf"))
    if framework == "axolotl":
        text = (
            f"base_model: {model}\ndatasets: [{{path: x.jsonl, type: alpaca}}]\noutput_dir: out\nbf16: true\n"
            f"sequence_len: {length}\nmicro_batch_size: {micro}\ngradient_accumulation_steps: {accumulation}\n"
        )
        options = ("gradient_checkpointing: true\n", "gradient_checkpointing: false\n", "sample_packing: true\n",
                "adapter: lora\nlora_r: 16\nlora_alpha: 32\nlora_target_linear: true\n", "optimizer: adamw_torch\n",
                "attn_implementation: eager\n")  # fmt: skip
    elif framework == "llamafactory":
        text = (
            f"model_name_or_path: {model}\nstage: {draw.choice(('sft', 'sft', 'pt', 'dpo'))}\ndo_train: true\n"
            f"dataset: identity\ntemplate: default\noutput_dir: out\nbf16: true\ncutoff_len: {length}\n"
            f"per_device_train_batch_size: {micro}\ngradient_accumulation_steps: {accumulation}\n"
        )
        options = ("disable_gradient_checkpointing: true\n", "enable_liger_kernel: true\n", "packing: true\n",
                "finetuning_type: lora\n", "optim: adamw_torch\n", "flash_attn: disabled\n")  # fmt: skip
    else:
        flags = draw.sample(("--gradient_checkpointing", "--flash_attn", "--packing_samples", "--adam_offload"), 2)
        script = (
            f"deepspeed --num_gpus {gpus} --module openrlhf.cli.train_sft --pretrain {model} --dataset x --bf16 "
            f"--train_batch_size {micro * accumulation * nodes * gpus} --micro_train_batch_size {micro} "
            f"--max_len {length} --zero_stage {stage or 2} {' '.join(flags)}\n"
        )
        (folder / "train.sh").write_text(f"#!/bin/bash\n{facts}{script}")
        return
    extra = "".join(line for line in options if draw.random() < 0.4)
    (folder / "train.yaml").write_text(facts + text + sharded + extra)


def draw_runs(folder: Path, seed: int) -> Iterator[Run]:
    folder.mkdir()
    write_run(folder, random.Random(seed))
    yield from list_runs(folder)


def count_agreements(folder: Path, seeds: range) -> int:
    """Count the drawn runs for which the search had a choice."""
    busy = 0
    for seed in seeds:
        for run in draw_runs(folder / str(seed), seed):
            problem = Problem(run)
            while count_combinations(problem.dimensions) > MAX_COMBINATIONS:
                longest = max(problem.dimensions, key=lambda dimension: len(dimension.moves))
                smaller = longest._replace(moves=longest.moves[::2])
                problem.dimensions[problem.dimensions.index(longest)] = smaller
            if not problem.dimensions or problem.can_fit((None,) * len(problem.dimensions)):
                continue
            combination = find_cheapest(problem.dimensions, problem.can_fit, problem.can_write)
            best = search_by_brute_force(problem)
            assert (combination is None) == (best is None), seed
            if combination is not None and best is not None:
                busy += 1
                assert compute_cost(combination) == compute_cost(best), (seed, combination, best)
    return busy


def test_the_optimum_is_that_of_brute_force(tmp_path: Path) -> None:
    assert count_agreements(tmp_path, range(15)) >= 5


@pytest.mark.slow
def test_the_optimum_is_that_of_brute_force_on_many_runs(tmp_path: Path) -> None:
    assert count_agreements(tmp_path, range(1000, 1500)) >= 200


def make_dimension(field: str, *tiers: tuple[int, float]) -> Dimension:
    moves = (Move(field, {field: n}, tier, slow, "", "", "", 1) for n, (tier, slow) in enumerate(tiers))  # type: ignore[dict-item]
    return Dimension(field, tuple(moves))  # type: ignore[arg-type]


def test_what_gives_something_up_comes_after_all_that_does_not() -> None:
    cheap, dear = make_dimension("a", (2, 1.0)), make_dimension("b", (1, 3.0))
    assert find_cheapest([cheap, dear], any) == (None, dear.moves[0])
    assert find_cheapest([cheap, dear], lambda chosen: chosen[0] is not None) == (cheap.moves[0], None)
    assert find_cheapest([cheap, dear], lambda chosen: chosen[0] is not None, highest=1) is None


def test_a_combination_that_cannot_be_written_is_not_taken() -> None:
    first, second = make_dimension("a", (0, 1.0)), make_dimension("b", (0, 1.5))
    combination = find_cheapest([first, second], any, lambda chosen: chosen[0] is None)
    assert combination == (None, second.moves[0])


def test_changes_of_the_optimisation_are_counted_first() -> None:
    lora = Dimension("a", (Move("a", {}, OPTIMISATION, 1.0, "", "", "", 1, 4),))  # type: ignore[arg-type]
    halved = Dimension("b", (Move("b", {}, OPTIMISATION, 9.0, "", "", "", 1, 1),))  # type: ignore[arg-type]
    assert find_cheapest([lora, halved], any) == (None, halved.moves[0])
