"""Losses that are compiled with their model, as AOTAutograd's graphs show them (`tests/oracles/compiled_losses.py`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cfglint_train.foundation.typed import Any
from cfglint_train.memory.events import mask_bytes
from cfglint_train.memory.logits import loss_of
from cfglint_train.memory.setup import Setup
from cfglint_train.memory.setup_builder import read
from tests.memory.jobs import LLAMA_3B, LLAMA_8B, plan
from tests.memory.moments import Moment, moments

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


def setup(shape: Any = LLAMA_8B, **changes: Any) -> Setup:
    found, reader = read(plan(**{**COMPILED, **changes}), shape)
    assert found is not None, reader.missing
    return found


def event(of: Setup, name: str) -> Moment:
    """The backward pass's event of a name."""
    found = moments(of)
    return next(one for one in found if (one.phase, one.name) == ("backward", name))


def logits(of: Setup) -> int:
    return of.batch.tokens * of.architecture.vocab


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['case']}-{row['tied']}")
def test_losses_are_those_of_the_graphs(row: dict[str, Any]) -> None:
    of = setup(LLAMA_3B if row["tied"] else LLAMA_8B, **CASES[row["case"]])
    loss = loss_of(of)
    assert (loss.forward, loss.saved, loss.backward) == (row["made"], row["kept"], row["given"] + row["product"])
    assert mask_bytes(of) == row["mask"] * of.batch.tokens * of.batch.length


@pytest.mark.parametrize(
    ("changes", "shape", "bytes_"),
    [
        ({}, LLAMA_8B, 2),  # zeros for the logits that the model returned
        ({}, LLAMA_3B, 4),  # and the gradient of the logits, which the tied matrix's product waits for
        (CASES["fp32"], LLAMA_3B, 8),
        (CASES["trainer"], LLAMA_3B, 4),  # zeros of 32 bits; a product of 16 bits is cast at once
        ({"parallel__strategy": "ddp", "launch__nodes": 1, "launch__gpus_per_node": 2}, LLAMA_3B, 0),
        ({"activations__fused_loss": "liger"}, LLAMA_3B, 0),
        ({"activations__compiled_loss": False}, LLAMA_3B, 0),
    ],
)
def test_what_waits_for_the_end_of_the_graph(changes: dict[str, Any], shape: Any, bytes_: int) -> None:
    of = setup(shape, **changes)
    for name in ("layer 0", "the last gradients"):
        found = {part.name: size for part, size in event(of, name).parts.items()}
        assert found.get("logits and loss", 0) == bytes_ * logits(of)


def test_one_graph_returns_all_gradients_before_any_is_added() -> None:
    """Of several micro batches: those of this one are added to the sums of those before last."""
    once, often = setup(), setup(batch__accumulation=2)
    added = event(often, "the last gradients").total - event(once, "the last gradients").total
    assert added == pytest.approx(2 * LLAMA_8B.parameters)


def test_a_loss_beside_the_graph_does_not_add_its_gradients_sooner() -> None:
    """One node of autograd has the gradients of all weights, whatever computes the loss of what the model returns."""
    beside = {"activations__compiled_model": True, "activations__compiled_loss": False}
    once, often = setup(**beside), setup(**beside, batch__accumulation=2)
    added = event(often, "the last gradients").total - event(once, "the last gradients").total
    assert added == pytest.approx(2 * LLAMA_8B.parameters)
    layers = setup(activations__compiled_loss=False, batch__accumulation=2)
    assert event(layers, "the last gradients").total < event(often, "the last gradients").total - LLAMA_8B.parameters


def test_compiled_sdpa_has_a_mask_and_repeats_keys() -> None:
    """Code of transformers before torch 2.14; plain code asks for the kernel that needs neither."""
    assert (setup().mode.attention, setup().mode.sequence) == ("efficient", 0)
    assert setup(activations__attention="flash").mode.attention == "flash"
    assert setup(activations__compiled_loss=False).mode.attention == "flash"
    assert setup(activations__attention="eager").mode.attention == "eager"


@pytest.mark.parametrize("row", HEADS, ids=lambda row: f"{row['dtype']}-{row['squared']}")
def test_an_output_layer_that_is_compiled_with_its_loss_keeps_what_the_graphs_show(row: dict[str, Any]):
    apart = {**CASES[NUMBERS[row["dtype"]]], "activations__compiled_loss": False}
    loss = loss_of(setup(**apart, activations__compiled_head=True))
    assert (loss.forward, loss.saved, loss.backward) == (row["made"], row["kept"], row["kept"] + row["product"])
    shifted = loss_of(setup(**apart, activations__fused_loss="compiled_shifted"))
    assert (shifted.forward, shifted.saved, shifted.backward) == (
        2 * loss.forward, 2 * loss.saved, 2 * loss.backward
    )  # fmt: skip
