"""Memory grows with the batch, with accumulation and with the activations that are kept."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from cfglint_train.calibration.rows import read_evidence
from cfglint_train.foundation.sizes import GIB
from cfglint_train.memory.budget import Budget
from cfglint_train.memory.estimate import estimate
from cfglint_train.models import lookup
from cfglint_train.models.architecture import Architecture
from cfglint_train.plan.fields import Plan
from tests.memory.generated import HARDWARE, MODELS, make_plans
from tests.memory.jobs import LLAMA_8B, get_gpu, make_plan

LENGTHS = (64, 256, 512, 1000, 1023, 1024, 2047, 2048, 3071, 3072, 3583, 3584, 4095, 4096, 5000, 8192, 16384)
MICRO = (1, 2, 3, 4, 6, 8, 16)

# Context parallelism divides tokens and drops the remainder.
ROUNDING = 1e-5


def estimate_series(
    plan: Plan, shape: Architecture, turn: int, field: Any, values: tuple[int, ...]
) -> Iterator[dict[str, Budget]]:
    """Yield the GPU's budgets for each value of a field."""
    for value in values:
        result = estimate(plan.replace({field: value}), shape, HARDWARE[turn % len(HARDWARE)])
        yield {phase.name: phase.gpu for phase in result.phases if phase.gpu is not None}


def find_falls(budgets: Iterator[dict[str, Budget]]) -> Iterator[str]:
    """Yield phases and bounds that are lower for a larger batch.

    If torch switches to another attention kernel (for a mask that a second sequence brings, or a window that a short
    one does not need), each kernel is compared only with itself.
    """
    before: dict[str, Budget] = {}
    for current in budgets:
        for name, budget in current.items():
            last = before.get(name)
            if last is None or last.setup.mode.attention != budget.setup.mode.attention:
                continue
            for bound in ("low", "expected", "high"):
                if getattr(budget, bound) < getattr(last, bound) * (1 - ROUNDING):
                    yield f"{name}, {bound}: {getattr(last, bound)} to {getattr(budget, bound)}"
        before = current


@pytest.mark.parametrize("seed", range(8))
def test_need_never_falls(seed: int) -> None:
    """Check the expected value and both bounds over setups of every kind, except for Liger's distillation.

    It divides a batch into one chunk for each full 1,024 tokens, so that 2,047 tokens make a larger chunk than 2,048
    (`logits.count_chunk_tokens`).
    """
    draw = random.Random(seed)
    wrong = []
    for turn, base_plan in enumerate(make_plans(60, seed)):
        shape = lookup.find_entry(MODELS[turn % len(MODELS)])
        assert shape is not None
        if base_plan.activations.fused_loss == "liger_distilled":
            continue
        start = base_plan.replace({"batch.micro": draw.choice(MICRO), "sequence.length": draw.choice(LENGTHS)})
        # With a budget of tokens the length only divides it.
        free = start.replace({"batch.tokens_per_gpu": None})
        for plan_, field, values in ((free, "sequence.length", LENGTHS), (start, "batch.micro", MICRO)):
            wrong += [
                f"{turn} {field} {fall}" for fall in find_falls(estimate_series(plan_, shape, turn, field, values))
            ]
    assert wrong == []


@pytest.mark.parametrize(
    ("field", "less", "more", "share", "inputs"),
    [
        # A micro batch in the middle of an accumulation runs like a single one; a deferred reduction may save 1.5 %.
        ("batch.accumulation", 1, 4, 0.015, 0),
        # A layer that is recomputed holds its input, which nothing else may keep, and may leave two behind.
        ("activations.checkpointing", "full", "none", 0.001, 2),
    ],
)
@pytest.mark.parametrize("seed", range(4))
def test_step_needs_no_less(seed: int, field: Any, less: Any, more: Any, share: float, inputs: int) -> None:
    """Check the expected value and both bounds of the step's peak; allow `share` of it and some layers' `inputs`."""
    wrong = []
    for turn, plan in enumerate(make_plans(60, seed)):
        shape = lookup.find_entry(MODELS[turn % len(MODELS)])
        assert shape is not None
        small, large = (
            [budgets[name] for name in ("forward", "backward", "optimizer step") if name in budgets]
            for budgets in estimate_series(plan, shape, turn, field, (less, more))
        )
        if not small:
            continue
        batch, formats = small[0].setup.batch, small[0].setup.formats
        slack = inputs * batch.tokens * shape.hidden * shape.streams * formats.residual
        for bound in ("low", "expected", "high"):
            lower, higher = (max(getattr(budget, bound) for budget in budgets) for budgets in (small, large))
            if higher < lower * (1 - share) - slack:
                wrong.append(f"{turn} {plan.parallel.strategy}, {bound}: {lower} to {higher}")
    assert wrong == []


def test_replayed_steps_reserve_no_more_if_layers_are_recomputed() -> None:
    """Compare replays of the same step with kept and with recomputed activations.

    In a third of them the update is the peak, so that torch allocates the same bytes at it either way.
    """
    replays = {
        row["id"]: [int(size) for size in re.findall(r"(?:reserved|allocated) (\d+)", row["what"])]
        for row in read_evidence("derived")
        if row["id"].startswith("replay-")
    }
    pairs = [
        (replays[name.replace("-checkpointed", "")], figures)
        for name, figures in replays.items()
        if name.replace("-checkpointed", "") in replays and "-checkpointed" in name
    ]
    assert len(pairs) == 30
    assert sum(abs(kept[1] - recomputed[1]) < 1e-3 * kept[1] for kept, recomputed in pairs) == 10
    assert all(kept[0] > recomputed[0] for kept, recomputed in pairs)


def test_one_token_more_than_the_model_is_wide() -> None:
    """Fit the gradients of a full 8B training with 8-bit states into blocks of activations from 4,096 tokens on.

    The counter is lower there, but no verdict is: torch gives the blocks back.
    """
    short, wide = (
        get_gpu(
            estimate(
                make_plan(sequence__length=length, optimizer__state_bits=8, activations__checkpointing="none"), LLAMA_8B
            ),
            "backward",
        )
        for length in (4095, 4096)
    )
    assert short.expected <= wide.expected < short.expected + 0.1 * GIB
    assert short.high <= wide.high
    assert short.cached > 5 * GIB
    assert wide.cached == 0


UNSHARED = [row for row in read_evidence("derived") if re.fullmatch(r"replay-llama3.1-8b-full-\d+x1", row["id"])]


def test_blocks_that_no_gradient_fits_are_given_back() -> None:
    """Need less than the reserve if a batch has fewer tokens than the model is wide.

    Both are rounded up to whole segments.
    """
    for row in UNSHARED:
        match = re.search(r"reserved (\d+), allocated (\d+).* a card of (\d+) bytes is enough", row["what"])
        if match is None:
            continue
        reserved, allocated, needed = (int(size) for size in match.groups())
        length = int(row["id"].rsplit("-", 1)[1][:-2])
        assert needed - allocated < 2.5 * GIB
        assert (reserved - allocated > 5 * GIB) == (length <= 2048)
    assert sum("a card of" in row["what"] for row in UNSHARED) == 4
