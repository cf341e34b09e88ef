"""Heads of TRL's trainers: whole logits, and tiles and chunks of the output matrix.

The expected bytes come from a run on the CPU with the code of the wheels: the tiles of 1.16.0 (8,192 tokens, 65,536
words, width 512), and the chunks of 1.9.0 (512 to 1,024 tokens, 2,048 to 8,192 words, widths 128 to 3,072: the two
moments of each format within 6 %). `tests/frameworks/test_trl_losses.py` compares whole logits with the rows of
`trl_losses.jsonl`.
"""

from __future__ import annotations

import pytest

from cfglint_train.foundation.typed import Any
from cfglint_train.memory import logits
from cfglint_train.memory.estimate import estimate
from cfglint_train.memory.explanation import explain
from cfglint_train.memory.setup import Setup
from cfglint_train.memory.setup_builder import read_setup
from tests.memory.jobs import LLAMA_3B, make_plan


def build_head(**changes: Any) -> tuple[Setup, logits.Head]:
    setup, reader = read_setup(make_plan(**changes), LLAMA_3B)
    assert setup is not None, reader.missing
    return setup, logits.build_head(setup)


def test_only_completions_have_logits() -> None:
    _, whole = build_head(activations__fused_loss="rows", sequence__length=2048)
    _, half = build_head(activations__fused_loss="rows", sequence__length=2048, activations__scored_tokens=1024)
    assert half.backward == whole.backward / 2


def test_tiles_hold_no_logits() -> None:
    setup, loss_head = build_head(activations__fused_loss="tiles", batch__micro=4, sequence__length=4096)
    _, whole = build_head(activations__fused_loss="none", batch__micro=4, sequence__length=4096)
    tile = 4096 * 32768 * 2
    assert loss_head.forward < 3 * tile + 64 * setup.batch.tokens
    assert loss_head.forward < whole.forward / 10
    # Gradients of the input and of the matrix, summed in fp32.
    assert loss_head.backward >= setup.batch.tokens * LLAMA_3B.hidden * 4
    assert loss_head.fixed_backward >= LLAMA_3B.vocab * LLAMA_3B.hidden * 4


@pytest.mark.parametrize(
    ("formats", "forward", "backward"),
    [
        ({"precision__params": "fp32", "precision__autocast": True}, (4, 2), (12, 10)),
        ({"precision__params": "bf16", "precision__autocast": False, "precision__master": "fp32"}, (8, 4), (12, 10)),
    ],
)
def test_chunks_that_are_recomputed(
    formats: dict[str, Any], forward: tuple[int, int], backward: tuple[int, int]
) -> None:
    """Count more for the copies of a wide model's output matrix and its gradients than for a chunk's logits."""
    setup, loss_head = build_head(
        activations__fused_loss="checkpointed", batch__micro=4, sequence__length=4096, **formats
    )
    chunk, matrix = 256 * LLAMA_3B.vocab, LLAMA_3B.vocab * LLAMA_3B.hidden
    assert (loss_head.forward - loss_head.saved, loss_head.fixed_forward) == (forward[0] * chunk, forward[1] * matrix)
    assert (loss_head.backward - 2 * loss_head.saved, loss_head.fixed_backward) == (
        backward[0] * chunk,
        backward[1] * matrix,
    )
    assert logits.compute_evaluation_bytes(setup) == 0


def test_chunks_of_an_adapter_make_no_gradient_of_the_matrix() -> None:
    _, loss_head = build_head(
        activations__fused_loss="checkpointed", method__tuning="lora", method__lora_rank=8, precision__params="bf16"
    )
    _, whole = build_head(activations__fused_loss="checkpointed", precision__params="bf16")
    assert loss_head.fixed_backward < whole.fixed_backward


def test_an_evaluation_by_tiles_makes_no_logits() -> None:
    setup, _ = build_head(activations__fused_loss="tiles")
    assert logits.compute_evaluation_bytes(setup) == 0


def test_an_evaluation_with_ligers_loss_has_logits_unless_it_skips_them() -> None:
    setup, _ = build_head(activations__fused_loss="liger", batch__eval_micro=8)
    assert logits.compute_evaluation_bytes(setup) == 10
    skipping, loss_head = build_head(
        activations__fused_loss="liger", activations__fused_evaluation=True, batch__eval_micro=8
    )
    assert logits.compute_evaluation_bytes(skipping) == 0
    assert loss_head.forward < logits.compute_evaluation_chunk(skipping) < 10 * loss_head.forward


def test_the_formula_counts_tokens_with_logits() -> None:
    result = estimate(
        make_plan(
            activations__fused_loss="rows", activations__scored_tokens=512, sequence__length=1024, batch__micro=8
        ),
        LLAMA_3B,
    )
    budgets = [phase.gpu for phase in result.phases if phase.gpu is not None]
    shown = [part.formula for budget in budgets for part in explain(budget) if part.name == "logits and loss"]
    assert any("4,096 tokens x vocabulary" in text for text in shown)
