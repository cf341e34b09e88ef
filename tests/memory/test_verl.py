"""verl's hybrid engine: log-probabilities and entropies.

The rows of `verl_losses.jsonl` were measured on a CPU with the functions of verl's wheels (`oracles/verl_losses.py`).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cfglint_train.foundation.typed import Any
from cfglint_train.memory import logits
from cfglint_train.memory.setup_builder import read_setup
from tests.memory.jobs import LLAMA_8B, make_plan

ROWS = [json.loads(line) for line in (Path(__file__).parent / "verl_losses.jsonl").read_text().splitlines()]
_KINDS = {
    "none": "policy", "compiled": "policy_entropy", "eager": "policy_entropy_eager",
    "compiled_chunks": "policy_entropy_chunks", "fused": "policy_fused", "fused_entropy": "policy_fused_entropy",
}  # fmt: skip


def get_kind(row: dict[str, Any]) -> str:
    kind: str = _KINDS[row["entropy"]]
    if kind != "policy":
        return kind
    return "policy_scaled" if row["release"] < "0.9" else "policy_copied" if row["temperature"] != 1 else kind


@pytest.mark.parametrize(
    "row",
    [row for row in ROWS if row["entropy"] in _KINDS and "width" not in row],
    ids=lambda row: f"{row['release']}-{row['entropy']}-{row['temperature']}",
)
def test_whole_logits_as_the_wheels_functions_hold_them(row: dict[str, Any]) -> None:
    """Allow for the second copy of divided logits that a release with an entropy holds before the peak."""
    setup, _ = read_setup(make_plan(method__stage="grpo", activations__fused_loss=get_kind(row)), LLAMA_8B)
    assert setup is not None
    loss = logits.find_loss(setup)
    copied = 2 if row["temperature"] != 1 and row["entropy"] != "none" else 0
    assert loss.saved == row["saved"]
    assert 0 <= loss.forward + copied - row["forward"] <= copied
    assert -0.05 <= loss.backward - row["backward"] <= {"eager": 2, "compiled_chunks": 3}.get(row["entropy"], 0.05)
    assert 0 <= loss.scored + copied - row["scored"] <= copied + 2


@pytest.mark.parametrize(
    "row",
    [row for row in ROWS if "width" in row],
    ids=lambda row: f"{row['release']}-{row['entropy']}-{row['width']}-{row['trained']}",
)
def test_fused_log_probabilities_as_the_wheels_functions_hold_them(row: dict[str, Any]) -> None:
    shape = LLAMA_8B._replace(vocab=row["words"], hidden=row["width"])
    setup, _ = read_setup(
        make_plan(
            method__stage="grpo", activations__fused_loss=get_kind(row), batch__micro=1, sequence__length=row["tokens"]
        ),
        shape,
    )
    assert setup is not None
    setup = setup._replace(weights=setup.weights._replace(head_trained=row["trained"]))
    head = logits.build_head(setup)
    assert logits.compute_scored_logits(setup, row["tokens"]) == pytest.approx(row["forward"], rel=0.34)
    states = 4 * 512 * row["width"]  # gradients of a chunk's states, of this and the last chunk
    assert head.backward - head.saved + head.fixed_backward + states == pytest.approx(row["backward"], rel=0.06)
