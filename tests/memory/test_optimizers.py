"""States and temporary buffers of optimizers, compared with their packages' code on a small Llama (`optimizers.jsonl`).

The rows were measured on a CPU. A slow test measures them again with the packages that are installed in this Python, or
in the one that CFGLINT_ORACLE_PYTHON names.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cfglint_train.memory.estimate import estimate
from cfglint_train.memory.optimizers import RULES
from cfglint_train.memory.setup import Setup
from cfglint_train.memory.setup_builder import read_setup
from cfglint_train.models.architecture import Architecture, Linear
from tests.memory.jobs import LLAMA_8B, make_plan
from tests.memory.test_engine import PYTHON
from tests.support.cases import for_each

PROGRAM = Path(__file__).parents[1] / "oracles" / "optimizer_states.py"
ROWS = [json.loads(line) for line in Path(__file__).with_name("optimizers.jsonl").read_text("utf-8").splitlines()]

HIDDEN, WIDTH, LAYERS, VOCAB = 256, 688, 2, 4000
NORMS = (2 * LAYERS + 1) * HIDDEN
LINEARS = (
    Linear("q_proj", HIDDEN, HIDDEN, LAYERS),
    Linear("k_proj", HIDDEN, HIDDEN // 2, LAYERS),
    Linear("v_proj", HIDDEN, HIDDEN // 2, LAYERS),
    Linear("o_proj", HIDDEN, HIDDEN, LAYERS),
    Linear("gate_proj", HIDDEN, WIDTH, LAYERS),
    Linear("up_proj", HIDDEN, WIDTH, LAYERS),
    Linear("down_proj", WIDTH, HIDDEN, LAYERS),
    Linear("lm_head", HIDDEN, VOCAB, 1, "head"),
    Linear("embed_tokens", VOCAB, HIDDEN, 1, "embedding"),
)
TOTAL = sum(item.elements for item in LINEARS) + NORMS
SMALL = Architecture(
    "small", "llama", LAYERS, HIDDEN, VOCAB, 8, 4, 32, WIDTH, False, TOTAL, 21, VOCAB * HIDDEN,
    (TOTAL - 2 * VOCAB * HIDDEN - HIDDEN) // LAYERS, linears=LINEARS,
)  # fmt: skip

BITS = {
    "adamw_8bit": ("adamw", 8, 32),
    "lion_8bit": ("lion", 8, 32),
    "ademamix_8bit": ("ademamix", 8, 32),
    "adamw_torch_8bit": ("adamw", 8, None),
    "adamw_torch_4bit": ("adamw", 4, None),
    "kahan_adamw": ("kahan_adamw", 16, None),
}
FOREACH = ("schedule_free_adamw", "schedule_free_radam", "schedule_free_sgd", "sgd")
SINGLE = ("adamw", "rmsprop", "adagrad")


def make_setup(row: dict[str, Any]) -> Setup:
    name, bits, embeddings = BITS.get(row["name"], (row["name"].removesuffix("_foreach"), None, None))
    foreach = row["name"].endswith("_foreach") or name in FOREACH
    implementation = "foreach" if foreach else "single" if name in SINGLE else "custom"
    number_format = "fp32" if row["dtype"] == "float32" else "bf16"
    formats = {f"precision__{field}": number_format for field in ("params", "grads", "compute")}
    fields = make_plan(
        optimizer__name=name, optimizer__state_bits=bits, optimizer__embedding_bits=embeddings, optimizer__rank=16,
        optimizer__implementation=implementation, launch__nodes=1, launch__gpus_per_node=1, **formats,
    )  # fmt: skip
    setup, reader = read_setup(fields, SMALL)
    assert setup is not None, reader.missing
    return setup


def format_id(row: dict[str, Any]) -> str:
    return f"{row['name']}-{row['dtype']}"


def test_the_packages_were_all_there() -> None:
    assert not [row["name"] for row in ROWS if "skipped" in row]
    ours = {BITS.get(row["name"], (row["name"].removesuffix("_foreach"),))[0] for row in ROWS}
    assert set(RULES) - ours == {"adam", "adopt", "lamb", "lars", "lomo", "adalomo", "badam"}


@for_each("row", ROWS, ids=format_id)
def test_states_are_what_the_package_keeps(row: dict[str, Any]) -> None:
    setup = make_setup(row)
    assert setup.optimizer.state is not None
    tables = 2 * 4 * 256 * SMALL.tensors if row["name"] == "adamw_torch_8bit" else 0  # torchao: two with each tensor
    assert setup.weights.trained * setup.optimizer.state + tables == pytest.approx(row["state"], rel=0.003, abs=300)


@for_each("row", [row for row in ROWS if BITS.get(row["name"], ("", 16))[1] == 16], ids=format_id)
def test_one_call_makes_what_the_package_makes(row: dict[str, Any]) -> None:
    """Leave out the remainder of the previous tensor in the loop: the largest matrix of a layer at most."""
    setup = make_setup(row)
    per_element, largest, _ = setup.optimizer.scratch
    estimated = per_element * setup.weights.trained + largest * SMALL.largest_tensor
    remainder = WIDTH * HIDDEN * (4 if row["dtype"] == "float32" or row["name"] in ("came", "adafactor") else 2)
    assert row["scratch"] - 1.1 * remainder <= estimated <= row["scratch"] * 1.001


def test_adapters_of_experts_have_states_of_their_own_format() -> None:
    """Store eight bits and a maximum per block of 256, as for every matrix of 4,096 elements or more (bitsandbytes)."""
    experts = (
        Linear("gate_up_proj", 2 * WIDTH, HIDDEN, LAYERS, experts=8),
        Linear("down_proj", HIDDEN, WIDTH, LAYERS, experts=8),
    )
    shape = SMALL._replace(linears=(*SMALL.linears[:4], *experts))
    fields = make_plan(
        method__tuning="lora", method__lora_rank=8, precision__adapter="fp32", method__lora_targets=(),
        method__lora_target_parameters=("experts.gate_up_proj", "experts.down_proj"),
        optimizer__name="adamw", optimizer__implementation="bnb", optimizer__state_bits=8,
    )  # fmt: skip
    setup, reader = read_setup(fields, shape)
    assert setup is not None, reader.missing
    assert setup.optimizer.state == pytest.approx(2 * (1 + 4 / 256), rel=0.001)


@pytest.mark.parametrize("name", ["galore_adamw", "apollo_adamw"])
def test_targets_name_parts_of_full_names(name: str) -> None:
    def compute_state(*targets: str) -> float:
        setup, _ = read_setup(make_plan(optimizer__name=name, optimizer__rank=16, optimizer__targets=targets), SMALL)
        assert setup is not None
        assert setup.optimizer.state is not None
        return setup.optimizer.state * setup.weights.trained

    whole = 4.0 * TOTAL  # two states in bf16
    attention, mlp, all_linear = compute_state("attn"), compute_state("mlp"), compute_state("all-linear")
    assert compute_state("attn", "mlp") == pytest.approx(all_linear)
    assert attention + mlp == pytest.approx(whole + all_linear)
    assert compute_state("nothing") == pytest.approx(whole)
    assert compute_state("all-linear", "lm_head") < all_linear
    assert compute_state("layers.1.self_attn") == pytest.approx((whole + attention) / 2)


def test_states_of_flat_pieces_are_whole() -> None:
    fields = make_plan(
        optimizer__name="adafactor", optimizer__implementation="custom", parallel__strategy="zero",
        parallel__zero_stage=2, launch__nodes=1, launch__gpus_per_node=8,
    )  # fmt: skip
    setup, _ = read_setup(fields, SMALL)
    assert setup is not None
    assert setup.optimizer.state == 4.0


def estimate_layerwise(name: str) -> dict[str, int]:
    fields = make_plan(
        optimizer__name=name, optimizer__implementation="custom", optimizer__rank=16, parallel__strategy="none",
        batch__micro=1, batch__accumulation=1, sequence__length=64, activations__checkpointing="full",
    )  # fmt: skip
    result = estimate(fields, LLAMA_8B)
    return {phase.name: phase.gpu.expected for phase in result.phases if phase.gpu is not None}


def test_layerwise_updates_leave_no_gradients() -> None:
    whole, within = estimate_layerwise("galore_adamw"), estimate_layerwise("galore_adamw_layerwise")
    gradients = 2 * LLAMA_8B.parameters
    assert whole["optimizer step"] - within["optimizer step"] >= gradients
    assert whole["backward"] - within["backward"] >= 0.7 * gradients


def test_a_projection_without_a_rank_is_missing() -> None:
    result = estimate(make_plan(optimizer__name="galore_adamw", batch__micro=1, sequence__length=64), SMALL)
    assert "optimizer.rank" in result.missing
    assert result.find_phase("optimizer step") is None


def test_badam_trains_one_layer_at_a_time() -> None:
    """Hold an fp32 copy, two states and gradients in both formats for one layer, and 16-bit weights of all layers."""
    setup, _ = read_setup(make_plan(optimizer__name="badam", optimizer__implementation="foreach"), SMALL)
    assert setup is not None
    assert setup.weights.trained == SMALL.layer_parameters
    assert setup.weights.trained + setup.weights.frozen == TOTAL
    assert (setup.formats.master, setup.optimizer.state) == (4.0, 8.0)


@pytest.mark.oracle
def test_rows_are_what_the_packages_do() -> None:
    environment = {**os.environ, "TORCHDYNAMO_DISABLE": "1"}
    out = subprocess.run(
        [PYTHON, "-W", "ignore", str(PROGRAM)], capture_output=True, text=True, timeout=900, check=False,
        env=environment,
    )  # fmt: skip
    rows = [json.loads(line) for line in out.stdout.splitlines() if line.startswith("{")]
    if not rows:
        pytest.skip("needs torch and transformers")
    stored = {format_id(row): row for row in ROWS}
    measured = [row for row in rows if "skipped" not in row]
    assert len(measured) >= 10
    for row in measured:
        assert row["state"] == pytest.approx(stored[format_id(row)]["state"], rel=0.001), format_id(row)
