"""Losses that are compiled with their model, compared to AOTAutograd's graphs (`tests/oracles/compiled_losses.py`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cfglint_train.foundation.typed import Any
from cfglint_train.memory.events import compute_mask_bytes
from cfglint_train.memory.logits import find_loss
from cfglint_train.memory.setup import Setup
from cfglint_train.memory.setup_builder import read_setup
from tests.memory.jobs import LLAMA_3B, LLAMA_8B, make_plan
from tests.memory.moments import Moment, list_moments

ROWS = [json.loads(line) for line in Path(__file__).with_name("compiled_losses.jsonl").read_text("utf-8").splitlines()]
COMPILED: dict[str, Any] = {
    "activations__compile": True, "activations__compiled_loss": True, "activations__attention": "sdpa",
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "bf16": {},
    "fp32": {"precision__params": "fp32", "precision__compute": "fp32", "precision__grads": "fp32"},
    "trainer": {"precision__params": "fp32", "precision__grads": "fp32", "precision__autocast": True},
}


HEADS = [json.loads(line) for line in Path(__file__).with_name("compiled_heads.jsonl").read_text("utf-8").splitlines()]
NUMBERS = {"bfloat16": "bf16", "float32": "fp32"}


def make_setup(shape: Any = LLAMA_8B, **changes: Any) -> Setup:
    setup, reader = read_setup(make_plan(**{**COMPILED, **changes}), shape)
    assert setup is not None, reader.missing
    return setup


def find_event(setup: Setup, name: str) -> Moment:
    """Find the event of the backward pass with this name."""
    events = list_moments(setup)
    return next(item for item in events if (item.phase, item.name) == ("backward", name))


def count_logits(setup: Setup) -> int:
    return setup.batch.tokens * setup.architecture.vocab


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['case']}-{row['tied']}")
def test_losses_are_those_of_the_graphs(row: dict[str, Any]) -> None:
    compiled = make_setup(LLAMA_3B if row["tied"] else LLAMA_8B, **CASES[row["case"]])
    loss = find_loss(compiled)
    assert (loss.forward, loss.saved, loss.backward) == (row["made"], row["kept"], row["given"] + row["product"])
    assert compute_mask_bytes(compiled) == row["mask"] * compiled.batch.tokens * compiled.batch.length


@pytest.mark.parametrize(
    ("changes", "shape", "bytes_"),
    [
        ({}, LLAMA_8B, 2),  # zeros for the logits that the model returned
        ({}, LLAMA_3B, 4),  # and the gradient of the logits, which waits for the product of the tied matrix
        (CASES["fp32"], LLAMA_3B, 8),
        (CASES["trainer"], LLAMA_3B, 4),  # zeros of 32 bits; a product of 16 bits is cast at once
        ({"parallel__strategy": "ddp", "launch__nodes": 1, "launch__gpus_per_node": 2}, LLAMA_3B, 0),
        ({"activations__fused_loss": "liger"}, LLAMA_3B, 0),
        ({"activations__compiled_loss": False}, LLAMA_3B, 0),
    ],
)
def test_what_waits_for_the_end_of_the_graph(changes: dict[str, Any], shape: Any, bytes_: int) -> None:
    compiled = make_setup(shape, **changes)
    for name in ("layer 0", "the last gradients"):
        sizes = {part.name: size for part, size in find_event(compiled, name).parts.items()}
        assert sizes.get("logits and loss", 0) == bytes_ * count_logits(compiled)


def test_one_graph_returns_all_gradients_before_any_is_added() -> None:
    """Add the gradients of the last micro batch to the sums of the earlier ones after the graph has returned."""
    single, accumulated = make_setup(), make_setup(batch__accumulation=2)
    added = find_event(accumulated, "the last gradients").total - find_event(single, "the last gradients").total
    assert added == pytest.approx(2 * LLAMA_8B.parameters)


def test_a_loss_beside_the_graph_does_not_add_its_gradients_sooner() -> None:
    """Return the gradients of all weights from one autograd node, with any loss on the model's outputs."""
    separate = {"activations__compiled_model": True, "activations__compiled_loss": False}
    single, accumulated = make_setup(**separate), make_setup(**separate, batch__accumulation=2)
    added = find_event(accumulated, "the last gradients").total - find_event(single, "the last gradients").total
    assert added == pytest.approx(2 * LLAMA_8B.parameters)
    layers = make_setup(activations__compiled_loss=False, batch__accumulation=2)
    assert (
        find_event(layers, "the last gradients").total
        < find_event(accumulated, "the last gradients").total - LLAMA_8B.parameters
    )


def test_compiled_sdpa_has_a_mask_and_repeats_keys() -> None:
    """Compile transformers' code before torch 2.14; eager code requests the kernel that needs neither."""
    assert (make_setup().mode.attention, make_setup().mode.sequence) == ("efficient", 0)
    assert make_setup(activations__attention="flash").mode.attention == "flash"
    assert make_setup(activations__compiled_loss=False).mode.attention == "flash"
    assert make_setup(activations__attention="eager").mode.attention == "eager"


@pytest.mark.parametrize("row", HEADS, ids=lambda row: f"{row['dtype']}-{row['squared']}")
def test_an_output_layer_that_is_compiled_with_its_loss_keeps_what_the_graphs_show(row: dict[str, Any]):
    apart = {**CASES[NUMBERS[row["dtype"]]], "activations__compiled_loss": False}
    loss = find_loss(make_setup(**apart, activations__compiled_head=True))
    assert (loss.forward, loss.saved, loss.backward) == (row["made"], row["kept"], row["kept"] + row["product"])
    shifted = find_loss(make_setup(**apart, activations__fused_loss="compiled_shifted"))
    assert (shifted.forward, shifted.saved, shifted.backward) == (
        2 * loss.forward, 2 * loss.saved, 2 * loss.backward
    )  # fmt: skip
