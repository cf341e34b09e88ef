"""Vision towers: their blocks compared with traces of transformers' own, and their share of an estimate.

The traces are in `towers.jsonl` (written by `tests/oracles/trace_towers.py`); a slow test traces two kinds again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cfglint_train.memory.estimate import estimate
from cfglint_train.memory.layers.families import FAMILIES
from cfglint_train.memory.layers.matrices import Mode
from cfglint_train.memory.vision_encoder import EncoderMemory, compute_encoder_memory
from cfglint_train.models import lookup
from cfglint_train.models.architecture import Tower
from cfglint_train.models.towers import KINDS, read_vision
from cfglint_train.plan.fields import Plan
from tests.memory.test_oracle import missing
from tests.support.cases import for_each

HERE = Path(__file__).parent
HEAD, *LINES = map(json.loads, (HERE / "towers.jsonl").read_text(encoding="utf-8").splitlines())
SIZES = HEAD["sizes"]
CASES = [(line["kind"], mode, bytes_) for line in LINES for mode, bytes_ in line["bytes"].items()]
GIB = 2**30


def test_every_kind_is_traced() -> None:
    kinds = {line["kind"] for line in LINES}
    assert kinds == set(KINDS.values())
    assert {f"vision:{kind}" for kind in kinds} == {name for name in FAMILIES if name.startswith("vision:")}


def estimate_blocks(kind: str, mode: str) -> tuple[EncoderMemory, float]:
    """Return the formula's result, and the bytes of one width of the residual stream."""
    checkpointing, precision = mode.split("-")
    weight = 4 if precision == "amp" else 2
    tower = Tower(1, 0, SIZES["layers"], SIZES["hidden"], None, kind, SIZES["heads"], SIZES["intermediate"], 4.0, 14)
    settings = Mode(weight=weight, trained=precision != "frozen", autocast=precision == "amp")
    memory = compute_encoder_memory(tower, settings, SIZES["patches"], checkpointing == "full")
    assert memory is not None
    return memory, float(SIZES["hidden"] * weight * SIZES["patches"])


@for_each(("kind", "mode", "traced"), CASES, ids=lambda value: str(value)[:20])
def test_blocks(kind: str, mode: str, traced: list[int]) -> None:
    """Keep within 0.1 % of the trace, except for the output, which the traced program's own variable holds."""
    memory, width = estimate_blocks(kind, mode)
    after, forward, backward = traced
    if "frozen" in mode:
        assert (memory.kept, memory.moments) == (0, ())
        assert after == width
    else:
        assert min(abs(memory.kept + memory.copies + outputs * width - after) for outputs in (0, 1)) <= 0.001 * after
        highest = max(turn.kept + turn.copies + turn.later_gradients + turn.peak for turn in memory.moments)
        assert highest == pytest.approx(backward, rel=0.02, abs=3 * width)
    assert memory.forward == pytest.approx(forward, rel=0.03, abs=width)


def estimate_run(model: str, **fields: Any) -> Any:
    """Estimate a full fine-tune in bf16."""
    settings = {
        "method.tuning": "full",
        "precision.params": "bf16",
        "precision.compute": "bf16",
        "precision.autocast": False,
        "precision.master": "none",
        "optimizer.name": "adamw",
        "batch.micro": 2,
        "sequence.length": 4096,
        "sequence.packing": True,
        "activations.attention": "flash",
        "activations.checkpointing": "none",
        "parallel.strategy": "none",
        **fields,
    }
    return estimate(Plan().replace(settings), lookup.find_entry(model))


def get_backward_peak(result: Any) -> int:
    """Return the expected peak of the backward pass."""
    return next(phase.gpu.expected for phase in result.phases if phase.name == "backward")


QWEN = "Qwen/Qwen2.5-VL-7B-Instruct"


def test_images_of_a_trained_tower_count() -> None:
    text, multimodal = (
        estimate_run(QWEN, **{"sequence.image_tokens": 0}),
        estimate_run(QWEN, **{"sequence.image_tokens": 1024}),
    )
    assert (text.missing, multimodal.missing) == ((), ())
    tower = lookup.find_entry(QWEN).tower
    cost = compute_encoder_memory(tower, Mode(), 2 * 1024 * 4, False)
    assert get_backward_peak(multimodal) - get_backward_peak(text) == pytest.approx(cost.kept, rel=0.15)
    assert cost.kept > 8 * GIB


def test_unknown_images_are_told() -> None:
    assert estimate_run(QWEN).missing == ("sequence.image_tokens",)
    assert get_backward_peak(estimate_run(QWEN)) == get_backward_peak(
        estimate_run(QWEN, **{"sequence.image_tokens": 0})
    )
    frozen = estimate_run(QWEN, **{"model.frozen_vision": True})
    assert frozen.missing == ()
    assert "sequence.image_tokens" in frozen.assumed
    lora = {"method.tuning": "lora", "method.lora_rank": 8, "method.lora_targets": ("q_proj",)}
    assert estimate_run(QWEN, **lora).missing == ()


def test_a_frozen_tower_leaves_nothing_behind() -> None:
    frozen = {"model.frozen_vision": True}
    assert get_backward_peak(estimate_run(QWEN, **frozen, **{"sequence.image_tokens": 2048})) == get_backward_peak(
        estimate_run(QWEN, **frozen)
    )


def test_a_tower_without_a_formula_says_so() -> None:
    assert "model" in estimate_run("meta-llama/Llama-3.2-11B-Vision", **{"sequence.image_tokens": 1024}).missing


def test_models_without_a_tower_are_asked_nothing() -> None:
    result = estimate_run("Qwen/Qwen3-8B")
    assert result.missing == ()
    assert "sequence.image_tokens" not in result.assumed


@pytest.mark.parametrize(
    ("model", "kind", "patches", "tokens"),
    [
        (QWEN, "qwen2_5_vl", 4, None),
        ("Qwen/Qwen3-VL-8B-Instruct", "qwen3_vl", 4, None),
        ("google/gemma-3-4b-it", "siglip", 16, 256),
        ("llava-hf/llava-1.5-7b-hf", "clip", 1, 576),
        ("mistralai/Mistral-Small-3.1-24B-Instruct-2503", "pixtral", 4, None),
        ("OpenGVLab/InternVL3_5-8B-HF", "internvl", 4, None),
        ("meta-llama/Llama-4-Scout-17B-16E", "llama4", 4, None),
        ("zai-org/GLM-4.6V-Flash", "glm4v", 4, None),
        ("moonshotai/Kimi-K2.5", "kimi_k25", 4, None),
    ],
)
def test_the_catalogue_knows_the_towers(model: str, kind: str, patches: float, tokens: int | None) -> None:
    tower = lookup.find_entry(model).tower
    assert (tower.kind, tower.patches, tower.tokens) == (kind, patches, tokens)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"vision_config": {}},
        {"vision_config": {"model_type": "siglip_vision_model"}},
        {"vision_config": {"model_type": "unheard_of", "hidden_size": 8}},
        {"vision_config": {"model_type": "clip_vision_model", "hidden_size": "8", "num_hidden_layers": 2}},
        {"vision_config": []},
        {"vision_config": {"model_type": "internvl_vision", "hidden_size": 8, "use_qk_norm": True}},
    ],
)
def test_odd_configurations_have_no_tower(config: dict[str, Any]) -> None:
    assert read_vision(config) is None


PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
from trace_towers import MODES, traced
for kind in sys.argv[2:]:
    print(json.dumps({"kind": kind, "bytes": {name: traced(kind, **mode) for name, mode in MODES.items()}}), flush=True)
"""


@pytest.mark.oracle
@pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}")
def test_the_rows_are_what_the_model_code_does() -> None:
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(HERE.parent / "oracles"), "siglip", "qwen2_5_vl"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    stored = {line["kind"]: line["bytes"] for line in LINES}
    traced = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert len(traced) == 2
    for line in traced:
        assert line["bytes"] == stored[line["kind"]]
