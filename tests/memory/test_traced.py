"""The estimate compared with steps of the real model code on fake tensors (`calibration/data/traced.jsonl`)."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from cfglint_train.calibration.rows import read_evidence
from cfglint_train.calibration.traced import build_plan
from cfglint_train.memory.activations import compute_activations
from cfglint_train.memory.layers.families import FAMILIES
from cfglint_train.memory.logits import build_head
from cfglint_train.memory.setup import Setup
from cfglint_train.memory.setup_builder import read_setup
from cfglint_train.models.stated import parse_architecture
from tests.memory.moments import list_moments
from tests.memory.test_mixers import LINES as BESIDE
from tests.support.cases import for_each

ROWS = read_evidence("traced")
SMALL = [row for row in ROWS if row["architecture"]["hidden"] == 512]
PUBLISHED_SHAPES = [row for row in ROWS if row["architecture"]["hidden"] != 512]


def build_setup(row: dict[str, Any]) -> Setup:
    setup, reader = read_setup(build_plan(row["plan"]), parse_architecture(row["architecture"]))
    assert setup is not None, reader.missing
    if row["step"].get("attention") == "efficient" and not row["step"].get("padding"):
        # fp32 has no flash kernel: the memory-efficient one runs, without a mask.
        setup = setup._replace(mode=setup.mode._replace(attention="efficient", sequence=0))
    return setup


@functools.cache
def find_peaks(index: int) -> dict[str, float]:
    setup = build_setup(ROWS[index])
    best: dict[str, float] = {}
    for event in list_moments(setup):
        best[event.phase] = max(best.get(event.phase, 0.0), event.total)
    return {**best, "step": max(best.values())}


def compute_errors(rows: list[dict[str, Any]], phase: str, counter: str) -> list[float]:
    return [find_peaks(ROWS.index(row))[phase] / row["bytes"][counter] - 1 for row in rows]


def test_rows_are_there() -> None:
    assert len(PUBLISHED_SHAPES) >= 54 + 15
    assert sum(row["id"].startswith("fsdp2-") for row in ROWS) == 15


@pytest.mark.parametrize("kind", ["one GPU", "FSDP2"])
def test_peak_of_published_shapes(kind: str) -> None:
    """Agree within 0.1 % in the mean and 1 % at worst."""
    rows = [row for row in PUBLISHED_SHAPES if row["id"].startswith("fsdp2-") == (kind == "FSDP2")]
    deviations = compute_errors(rows, "step", "peak")
    assert sum(map(abs, deviations)) / len(deviations) <= 0.001
    assert max(map(abs, deviations)) <= 0.01


@pytest.mark.parametrize(
    ("phase", "counter", "worst"),
    [
        ("forward", "forward_peak", 0.02),
        ("backward", "backward_peak", 0.01),
        ("optimizer step", "optimizer_peak", 0.002),
    ],
)
def test_phases_of_published_shapes(phase: str, counter: str, worst: float) -> None:
    assert max(map(abs, compute_errors(PUBLISHED_SHAPES, phase, counter))) <= worst


def test_peak_of_small_shapes() -> None:
    """Let a layer decide the peak with a tiny vocabulary, which shows what is neglected elsewhere."""
    deviations = compute_errors(SMALL, "step", "peak")
    assert sum(map(abs, deviations)) / len(deviations) <= 0.005
    assert max(map(abs, deviations)) <= 0.03


@for_each("row", [row for row in SMALL if row["id"].endswith("-plain")], ids=lambda row: row["id"])
def test_saved_bytes_of_every_family(row: dict[str, Any]) -> None:
    """Compare the bytes that the layers keep: the end of the forward pass minus the start, without the loss."""
    setup = build_setup(row)
    flow, end = compute_activations(setup), build_head(setup)
    assert flow is not None
    saved = flow.kept + flow.copies + end.cost.saved * setup.batch.tokens + end.cost.fixed_saved + end.saved
    assert saved == pytest.approx(row["bytes"]["after_forward"] - row["bytes"]["base"], rel=0.005)


def test_every_traced_family_has_rows() -> None:
    """Require rows for each family that claims them or is traced separately, and none for others."""
    families = {row["architecture"]["model_type"] for row in ROWS}
    separately_traced = {parse_architecture(line["architecture"]).formula for line in BESIDE}
    # Text parts of vision models, and names that run the same code.
    same_code = {
        "qwen2_vl_text",
        "qwen2_5_vl_text",
        "qwen3_vl_text",
        "qwen3_vl_moe_text",
        "ministral",
        "kimi_k2",
        "glm4_moe_lite",
    }
    plain_families = {
        name: family for name, family in FAMILIES.items() if ":" not in name
    }  # others: calibration/foreign.py
    claimed = {name for name, family in plain_families.items() if family.traced} - same_code - {"gpt_oss"}
    assert claimed <= families | separately_traced
    assert not families & {name for name, family in plain_families.items() if not family.traced}
