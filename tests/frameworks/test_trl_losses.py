"""Logits that the losses of TRL's trainers hold, compared with measurements of their own functions on a CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cfglint_train.foundation.typed import Any
from cfglint_train.memory import logits
from cfglint_train.memory.setup_builder import read_setup
from tests.memory.jobs import LLAMA_3B, make_plan
from tests.support.linting import list_runs

ROWS = [json.loads(line) for line in Path(__file__).parents[1].joinpath("memory", "trl_losses.jsonl").open()]
KEYS = {
    "sft": "packing: false\nloss_type: nll",
    "dpo": "precompute_ref_log_probs: {}",
    "kto": "desirable_weight: 1.0\nprecompute_ref_log_probs: {}",
    "grpo": "scale_rewards: false\nmax_completion_length: 512\nmax_prompt_length: 512",
    "rloo": "normalize_advantages: true\nmax_completion_length: 512\nmax_prompt_length: 512",
}
FORMATS: dict[str, dict[str, Any]] = {
    "fp32": {"precision__params": "fp32", "precision__autocast": True},
    "16 bits": {"precision__params": "bf16", "precision__autocast": False, "precision__master": "fp32"},
}
RECIPE = """\
model_name_or_path: Qwen/Qwen2.5-7B
dataset_name: x/y
per_device_train_batch_size: 2
output_dir: out
bf16: true
"""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(map(str, list(row.values())[:4])))
def test_logits_of_a_trainer_at_a_release(row: dict[str, Any], tmp_path: Path) -> None:
    keys = KEYS.get(row["trainer"], "max_length: 1024\nmax_prompt_length: 128").format(
        str(not row["reference"]).lower()
    )
    half = row["logits"] != "fp32"
    if half:
        (tmp_path / "z.json").write_text('{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}')
    name = f"{row['trainer']}.yaml"
    (tmp_path / name).write_text(f"{RECIPE}{keys}\n" + "deepspeed: z.json\n" * half)
    (tmp_path / "run.sh").write_text(f"trl {row['trainer']} --config {name}\n")
    (run,) = list_runs(tmp_path, trl=row["release"])
    activations = run.plan.activations
    setup, reader = read_setup(
        make_plan(activations__fused_loss=activations.fused_loss, **FORMATS[row["logits"]]), LLAMA_3B
    )
    assert setup is not None, reader.missing
    held_logits = logits.find_loss(setup)
    assert held_logits.saved == pytest.approx(row["saved"], abs=0.1)
    # A micro batch with fewer sequences than the four of the rows holds up to a quarter more during the recompute of a
    # row.
    assert held_logits.backward == pytest.approx(row["backward"], abs=0.1)
    # The rows include entropies of 128 tokens at a time, but not of 4,096 tokens.
    assert max(held_logits.forward, activations.passing_logits or 0) == pytest.approx(row["forward"], abs=1.1)


@pytest.mark.parametrize(("release", "fused"), [("0.28.0", None), ("0.29.0", True)])
def test_sft_skips_the_logits_of_an_evaluation_with_ligers_loss(
    release: str, fused: bool | None, tmp_path: Path
) -> None:
    (tmp_path / "sft.yaml").write_text(f"{RECIPE}{KEYS['sft']}\nuse_liger_kernel: true\n")
    (tmp_path / "run.sh").write_text("trl sft --config sft.yaml\n")
    (run,) = list_runs(tmp_path, trl=release)
    assert run.plan.activations.fused_evaluation is fused
