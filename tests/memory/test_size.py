"""Sizes compute as numbers do, and show their computation."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfglint_train.memory.explanation import _UNITS, trace
from cfglint_train.memory.setup_builder import read_setup
from cfglint_train.memory.size import Size, label_count, merge_terms
from tests.memory.jobs import LLAMA_8B, make_zero

TRAINED = Size.create(8_030_261_248, "trained elements")
RANKS = Size.create(8, "ranks")
HELD, MASTER = Size.create(2.0, "B"), Size.create(8.0, "B")
TOKENS, WIDTH = Size.create(2048, "tokens"), Size.create(4096, "width *")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (TRAINED * HELD / RANKS, "8,030,261,248 trained elements x 2 B / 8 ranks"),
        (TRAINED * (HELD + MASTER) / RANKS, "8,030,261,248 trained elements x 10 B / 8 ranks"),
        (TRAINED * HELD / RANKS + TRAINED * MASTER / RANKS, "8,030,261,248 trained elements x 10 B / 8 ranks"),
        (4.0 * TRAINED / RANKS, "8,030,261,248 trained elements x 4 B / 8 ranks"),
        (2 * (TOKENS * WIDTH * HELD), "2 x 2,048 tokens x width 4,096 x 2 B"),
        (98304 * TOKENS + 12345, "2,048 tokens x 98,304 B + 12,345 B"),
        (max(0, TOKENS * HELD - 4), "2,048 tokens x 2 B - 4 B"),
        (TOKENS * HELD * (1 - 1 / RANKS), "2,048 tokens x 2 B - 2,048 tokens x 2 B / 8 ranks"),
        (TRAINED * HELD * (TOKENS / TRAINED), "2,048 tokens x 2 B"),
        (RANKS * (TOKENS / RANKS * HELD), "8 ranks x 2,048 tokens x 2 B / 8 ranks"),
        (TOKENS // RANKS * HELD, "2,048 tokens x 2 B / 8 ranks"),
        (merge_terms(TOKENS * 0.5, "tokens with logits") * HELD, "1,024 tokens with logits x 2 B"),
        (label_count(32, "layers", TOKENS) * TOKENS * HELD + TOKENS * HELD, "33 layers x 2,048 tokens x 2 B"),
        (Size.create(1, "checkpoints") * TOKENS * HELD * Size.create(1, "ranks"), "1 checkpoint x 2,048 tokens x 2 B"),
    ],
)
def test_the_text_is_the_computation(size: Any, text: str) -> None:
    assert size.text == text


def test_plain_numbers_stay_plain() -> None:
    assert type(merge_terms(2, "tokens")) is type(label_count(2, "tokens", 1.0)) is int


numbers = st.integers(1, 1000)


@given(numbers, numbers, numbers)
def test_a_size_has_the_value_of_its_numbers(first: int, second: int, third: int) -> None:
    def compute(a: Any, b: Any, c: Any) -> Any:
        return max(a * b / c, a - b) + (a + b) * 2 - b // c + a % c + (c - a) * b + 1 / c + abs(int(a)) ** 2

    sizes = (Size.create(value, unit) for value, unit in ((first, "tokens"), (second, "B"), (third, "ranks")))
    assert compute(*sizes) == compute(first, second, third)


def test_each_unit_is_that_of_a_field() -> None:
    setup, _ = read_setup(make_zero(3, 8), LLAMA_8B)
    assert setup is not None

    def list_fields(record: Any) -> set[str]:
        inner = [value for value in record if hasattr(value, "_asdict")]
        return {*record._fields}.union(*map(list_fields, inner))

    assert set(_UNITS) <= list_fields(setup)
    assert trace(setup) == setup
