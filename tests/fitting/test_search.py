"""The search returns a solution as cheap as the one that trying all combinations finds."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from math import inf, prod
from pathlib import Path
from typing import Any

import pytest

from cfglint_train.findings.verdicts import judge
from cfglint_train.fitting import places
from cfglint_train.fitting.moves import FILLS_IN, OPTIMISATION, SAFE, Dimension, Move
from cfglint_train.fitting.offload import find_sufficient
from cfglint_train.fitting.search import Combination, Goal, compute_cost, find_cheapest, rank_tier
from cfglint_train.fitting.smallest import Problem, find_smallest_for, is_length_assumed, merge_changes
from cfglint_train.memory.booking import find_booking_margin
from cfglint_train.memory.budget import STEP_PHASES, Estimate
from cfglint_train.memory.calibration import load_table
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run
from tests.support.linting import list_runs

GOALS: tuple[Goal, ...] = ("default", "throughput", "smallest-edit")
MAX_COMBINATIONS = 512
MODELS = (
    "Qwen/Qwen2.5-0.5B", "meta-llama/Llama-3.2-1B", "meta-llama/Llama-3.2-3B", "Qwen/Qwen2.5-7B",
    "meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5-14B", "Qwen/Qwen2.5-32B", "mistralai/Mixtral-8x7B-v0.1",
    "meta-llama/Llama-3.1-70B",
)  # fmt: skip
CARDS = ("RTX4090", "A100-40GB", "A100-80GB", "H200")


class BruteForce:
    """Every combination of a run's moves, judged by the estimates alone."""

    def __init__(self, run: Run, keep: tuple[str, ...], goal: Goal) -> None:
        self.run, self.goal = run, goal
        self.problem = Problem(run, None, keep, "upper")
        moves = itertools.product(*((None, *item.moves) for item in self.problem.dimensions))
        self.combinations = sorted(moves, key=lambda moves: compute_cost(moves, goal))
        self.estimates: dict[frozenset[tuple[Field, Any]], Estimate] = {}

    def estimate(self, moves: Combination) -> Estimate:
        changes = merge_changes(moves)
        key = frozenset(changes.items())
        if key not in self.estimates:
            self.estimates[key] = self.run.replace_fields(changes).estimate
        return self.estimates[key]

    def fits(self, moves: Combination, bound: str) -> bool:
        """Compare every phase at every place with its capacity, unless it neither counts nor fitted before."""
        after = {phase.name: phase for phase in self.estimate(moves).phases}
        for phase, place in itertools.product(self.run.estimate.phases, places.PLACES):
            old, capacity = getattr(phase, place), self.run.hardware.get_capacity(place)
            if old is None or capacity is None:
                continue
            new = getattr(after.get(phase.name), place, None)
            if new is None:
                return False
            need = new.expected
            if place == "gpu" and phase.name in STEP_PHASES and bound != "expected":
                margin = find_booking_margin(new.setup, load_table().residuals).high
                need = new.high if bound == "upper" else min(new.high, need * (1 + margin))
            if phase.name not in places.list_phases(self.run) and old.expected > capacity:
                capacity = inf if place == "gpu" else old.expected
            if need > capacity:
                return False
        return True

    def find_best(self, bound: str, is_allowed: Callable[[list[Move]], bool]) -> Combination | None:
        return next(
            (
                moves
                for moves in self.combinations
                if any(moves) and is_allowed(list(filter(None, moves)))
                if self.fits(moves, bound) and self.problem.can_write(moves)
            ),
            None,
        )

    def find_solution(self) -> Combination | None:
        """Choose by the order in docs/fit.md: free moves, then slowdown; upper bound, margin, expected size."""
        nothing, goal = (None,) * len(self.problem.dimensions), self.goal
        is_safe = partial(all_moves, lambda move: move.tier <= SAFE)
        if self.fits(nothing, "upper"):
            return None
        if self.fits(nothing, "expected"):
            is_free = partial(all_moves, lambda move: is_harmless(move) and "batch" not in next(iter(move.changes)))
            return self.find_best("upper", is_free if goal == "default" else is_safe)
        if goal == "default":
            filled = self.find_best("upper", partial(all_moves, lambda move: rank_tier(move) == FILLS_IN))
            if filled is not None:
                return filled
        required = [item for item in self.problem.dimensions if self.lowers_peak(item)]

        def has_free(moves: list[Move]) -> bool:
            return all(any(move in item.moves for move in moves) for item in required)

        def keeps_batch(moves: list[Move]) -> bool:
            return has_free(moves) and not any(field.startswith("batch.") for move in moves for field in move.changes)

        ways = [has_free, bool] if goal != "smallest-edit" else [bool]
        if goal == "default" and is_length_assumed(self.run):
            ways.insert(0, keeps_batch)
        if goal != "default":  # "free" are then all safe moves, so that the first search is over all of them
            ways.insert(0, bool)
        bounds = ("margin", "expected") if goal == "default" else ("upper", "margin", "expected")
        for bound, way in itertools.product(bounds, ways):
            best = self.find_best(bound, lambda moves, way=way: is_safe(moves) and way(moves))  # type: ignore[misc]
            if best is not None:
                return best
        best = self.find_best("upper", bool)
        if best is None:
            best = self.find_best("expected", bool)
            if best is None or not self.is_certain(best):
                best = self.find_best("expected", has_free) or best
        is_cut = best is not None and "sequence.length" in merge_changes(best)
        is_host_known = self.run.hardware.get_capacity("host") is not None
        if is_cut and not is_host_known and find_sufficient(self.run):
            keeps_length = partial(all_moves, lambda move: "sequence.length" not in move.changes)
            return self.find_best("expected", keeps_length)
        return best

    def is_certain(self, moves: Combination) -> bool:
        capacity = self.run.hardware.get_capacity("gpu")
        return all(phase.gpu.high <= capacity for phase in self.estimate(moves).phases if phase.gpu)

    def lowers_peak(self, dimension: Dimension) -> bool:
        """Return whether a setting is free and lowers the highest phase of those that lack room."""
        lacking = [
            phase.name
            for phase in self.run.estimate.phases
            if phase.gpu and (phase.gpu.high if phase.name in STEP_PHASES else phase.gpu.expected) > self.capacity
        ]
        moves = tuple(dimension.moves[0] if item is dimension else None for item in self.problem.dimensions)
        old, new = (
            max((phase.gpu.expected for phase in estimate.phases if phase.gpu and phase.name in lacking), default=0)
            for estimate in (self.run.estimate, self.estimate(moves))
        )
        return all(map(is_harmless, dimension.moves)) and all(not move.tier for move in dimension.moves) and new < old

    @property
    def capacity(self) -> int:
        return self.run.hardware.get_capacity("gpu") or 0


def all_moves(is_allowed: Callable[[Move], bool], moves: list[Move]) -> bool:
    return all(map(is_allowed, moves))


def is_harmless(move: Move) -> bool:
    return move.tier <= SAFE and move.slowdown <= 1


def limit_combinations(run: Run) -> tuple[str, ...]:
    """Return fields to keep, the longest first, so that at most `MAX_COMBINATIONS` remain."""
    keep: tuple[str, ...] = ()
    while True:
        dimensions = Problem(run, None, keep, "upper").dimensions
        if prod(len(item.moves) + 1 for item in dimensions) <= MAX_COMBINATIONS:
            return keep
        keep += (max(dimensions, key=lambda item: len(item.moves)).field,)


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
                "attn_implementation: eager\n", "val_set_size: 0.1\n")  # fmt: skip
    elif framework == "llamafactory":
        text = (
            f"model_name_or_path: {model}\nstage: {draw.choice(('sft', 'sft', 'pt', 'dpo'))}\ndo_train: true\n"
            f"dataset: identity\ntemplate: default\noutput_dir: out\nbf16: true\ncutoff_len: {length}\n"
            f"per_device_train_batch_size: {micro}\ngradient_accumulation_steps: {accumulation}\n"
        )
        options = ("disable_gradient_checkpointing: true\n", "enable_liger_kernel: true\n", "packing: true\n",
                "finetuning_type: lora\n", "optim: adamw_torch\n", "flash_attn: disabled\n",
                "val_size: 0.1\neval_strategy: steps\n")  # fmt: skip
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
    """Count the drawn runs that have a solution."""
    busy = 0
    for seed in seeds:
        for run in draw_runs(folder / str(seed), seed):
            if judge(run, "gpu") is None:
                continue
            keep, goal = limit_combinations(run), GOALS[seed % 3]
            solution = find_smallest_for(run, None, keep, goal)
            best = BruteForce(run, keep, goal).find_solution()
            assert (solution is None) == (best is None), (seed, goal, solution and solution.settings, best)
            if solution is not None and best is not None:
                busy += 1
                assert compute_cost(solution.moves, goal) == compute_cost(best, goal), (
                    seed,
                    goal,
                    solution.moves,
                    best,
                )
    return busy


def test_the_solution_is_that_of_brute_force(tmp_path: Path) -> None:
    assert count_agreements(tmp_path, range(15)) >= 5


@pytest.mark.slow
def test_the_solution_is_that_of_brute_force_on_many_runs(tmp_path: Path) -> None:
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
