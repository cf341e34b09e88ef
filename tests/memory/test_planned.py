"""Plans stated as JSON, and what-if grids."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tools.plan_reference import build_page

from cfglint_train.foundation.errors import UsageError
from cfglint_train.front.cli import main
from cfglint_train.memory.estimate import estimate
from cfglint_train.models.lookup import find_entry
from cfglint_train.plan.fields import FIELDS, Plan
from cfglint_train.whatif.plan_file import parse_plan

FULL = {
    "model": {"id": "meta-llama/Llama-3.1-8B"},
    "method": {"tuning": "full"},
    "precision": {"params": "bf16", "compute": "bf16", "master": "none"},
    "optimizer": {"name": "adamw", "implementation": "fused"},
    "batch.micro": 1,
    "batch.accumulation": 1,
    "sequence": {"length": 4096, "packing": True},
    "activations": {"checkpointing": "full", "attention": "flash", "fused_loss": "none"},
    "parallel": {"strategy": "none"},
}


def write_plan(folder: Path, content: object) -> str:
    path = folder / "plan.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(path)


def test_a_plan_is_estimated_as_the_same_plan_elsewhere() -> None:
    result = parse_plan({**FULL, "gpu": "H100"})
    fields = {"method.tuning": "full", "precision.params": "bf16", "precision.compute": "bf16",
              "precision.master": "none", "optimizer.name": "adamw", "optimizer.implementation": "fused",
              "batch.micro": 1, "batch.accumulation": 1, "sequence.length": 4096, "sequence.packing": True,
              "activations.checkpointing": "full", "activations.attention": "flash",
              "activations.fused_loss": "none", "parallel.strategy": "none",
              "model.id": "meta-llama/Llama-3.1-8B"}  # fmt: skip
    assert result.plan == Plan().replace(fields)
    expected = estimate(Plan().replace(fields), find_entry("meta-llama/Llama-3.1-8B"), result.hardware)
    assert [phase.gpu.expected for phase in result.estimate.phases if phase.gpu] == [
        phase.gpu.expected for phase in expected.phases if phase.gpu
    ]


def test_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "--plan", write_plan(tmp_path, FULL), "--gpu", "H100", "--format", "json"]) == 0
    run = json.loads(capsys.readouterr().out)["runs"][0]
    assert run["gpu"] == "H100-80GB"
    backward = next(phase for phase in run["phases"] if phase["name"] == "backward")
    assert backward["gpu"]["low"] < backward["gpu"]["expected"] < backward["gpu"]["high"]
    assert sum(part["bytes"] for part in backward["gpu"]["components"]) == backward["gpu"]["expected"]
    assert main(["estimate", "--plan", write_plan(tmp_path, FULL)]) == 0
    assert "a stated plan" in " ".join(capsys.readouterr().out.split())


def test_a_model_without_a_formula_has_states_and_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["estimate", "--plan", write_plan(tmp_path, {**FULL, "model": {"id": "google/flan-t5-xl"}})]) == 2
    out = capsys.readouterr().out
    assert "2,849,757,184 trained elements" in out
    plain = " ".join(out.split())
    assert "not known: the activations of google/flan-t5-xl (no complete formula for t5 models)" in plain
    assert "backward" not in out


def test_what_is_missing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fields = {key: value for key, value in FULL.items() if key not in ("batch.micro", "model")}
    assert main(["estimate", "--plan", write_plan(tmp_path, {**fields, "model": {"id": "nobody/nothing"}})]) == 2
    out = capsys.readouterr().out
    assert "the shape of nobody/nothing" in out
    assert "batch.micro" in out
    assert "GiB " not in out.replace("79.1 GiB", "")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "not valid JSON"),
        ([], "a plan must be a JSON object"),
        ({"batch": {"mikro": 1}}, "did you mean batch.micro"),
        ({"batch": 3}, "batch must be an object"),
        ({"batch.micro": "4"}, "whole number"),
        ({"batch.micro": True}, "whole number"),
        ({"batch.micro": -1}, "must be 0 or more"),
        ({"batch.micro": 1e999}, "whole number"),
        ({"rollout.utilization": 1e999}, "must be 0 or more"),
        ({"sequence.packing": 1}, "true or false"),
        ({"parallel.strategy": "FSDP"}, "one of none, ddp"),
        ({"method.lora_targets": "q_proj"}, "must be a list"),
        ({"model.roles": [{"model": "x"}]}, "name and trained"),
        ({"hardware": {"gpu": "Abacus"}}, "gpu"),
        ({"hardware": {"tpu": "v5"}}, "hardware has no field tpu"),
        ({"activations.attention": "flsh"}, "unknown value 'flsh' of activations.attention; did you mean flash"),
        ({"nodes": 0}, "must be a positive integer"),
    ],
)
def test_what_makes_no_sense(content: object, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "--plan", write_plan(tmp_path, content)]) == 2
    assert told in capsys.readouterr().err


def test_no_such_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "--plan", "nowhere.json"]) == 2
    assert "nowhere.json" in capsys.readouterr().err
    assert main(["estimate"]) == 2


def test_a_model_of_ones_own() -> None:
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "vocab_size": 32000,
              "intermediate_size": 4096, "num_hidden_layers": 8, "num_attention_heads": 16}  # fmt: skip
    fields = {key: value for key, value in FULL.items() if key != "model"}
    result = parse_plan({**fields, "model_config": config})
    assert result.architecture is not None
    assert result.architecture.layers == 8
    assert result.estimate.find_phase("backward") is not None


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**9) | st.floats(allow_nan=True) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(FIELDS)) | st.text(max_size=8), _JSON, max_size=5))
def test_any_object_is_estimated_or_refused(changes: dict[str, Any]) -> None:
    try:
        parse_plan({**FULL, **changes})
    except UsageError as refusal:
        message = str(refusal)
    else:
        return
    assert message


def test_grid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_plan(tmp_path, {**FULL, "model": {"id": "meta-llama/Llama-3.2-1B"}})
    axes = ["--what-if", "micro_batch=1,2", "sequence.length=2048,4096,8192", "checkpointing=none,full"]
    assert main(["estimate", "--plan", path, "--format", "json", *axes]) == 0
    cells = json.loads(capsys.readouterr().out)["runs"][0]["what_if"]
    assert len(cells) == 12
    sizes = {tuple(cell["changes"].values()): cell["expected"] for cell in cells}
    assert sizes[1, 2048, "full"] < sizes[2, 2048, "full"] < sizes[2, 4096, "full"] < sizes[2, 4096, "none"]
    # The same tokens in another shape need the same memory.
    assert sizes[2, 4096, "full"] == pytest.approx(sizes[1, 8192, "full"], rel=1e-6)
    assert main(["estimate", "--plan", path, *axes]) == 0
    assert "micro_batch 2, sequence.length 8192" in capsys.readouterr().out


@pytest.mark.parametrize(
    "word", ["micro_batch", "micro_batch=", "speed=1", "micro_batch=x", "strategy=best", "model.roles=1",
             "micro_batch=" + ",".join(map(str, range(1, 500)))],
)  # fmt: skip
def test_axes_that_make_no_sense(word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "--plan", write_plan(tmp_path, FULL), "--what-if", word]) == 2
    assert capsys.readouterr().err


def test_grid_of_a_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    config = os.path.join(os.path.dirname(__file__), "..", "..", "fixtures", "cases", "5-axolotl-3b", "llama-3b.yaml")
    assert main(["estimate", config, "--isolated", "--what-if", "micro_batch=1,4", "sequence=2048,4096"]) == 0
    out = capsys.readouterr().out
    assert "micro_batch 4" in out
    assert "GiB fits" in out


def test_the_reference_is_up_to_date() -> None:
    path = Path(__file__).parents[2] / "docs" / "plan-file.md"
    assert path.read_text(encoding="utf-8") == build_page(), "python -m tools.plan_reference"


def test_a_method_that_is_not_stated_is_no_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fields = {key: value for key, value in FULL.items() if key != "method" and not key.startswith("method.")}
    assert main(["estimate", "--plan", write_plan(tmp_path, fields)]) == 2
    out = capsys.readouterr().out
    assert "None" not in out
    assert "method not stated" in out
