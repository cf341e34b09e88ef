"""Alternatives never stop the run: combinations with the other settings that a framework rejects are not offered."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfglint_train import api
from tests.fitting.test_four_bits import CAST, LLAMAFACTORY, OPENRLHF
from tests.support.corpus import REPOSITORY
from tests.support.linting import build_options, fix, lint

REFUSED = ("pissa_init: true\n", "resize_vocab: true\n", "adapter_name_or_path: a,b\n", "fp8: true\n")
DISK = """\
# cfglint: gpu=H100 gpus-per-node=8 nodes=1 llamafactory=0.9.4
model_name_or_path: Qwen/Qwen2.5-7B-Instruct
stage: sft
do_train: true
finetuning_type: full
dataset: alpaca_en_demo
template: qwen
cutoff_len: 2048
packing: true
output_dir: saves/x
per_device_train_batch_size: 1
per_device_eval_batch_size: 1
learning_rate: 1.0e-5
bf16: true
deepspeed: ds3.json
val_size: 0.1
eval_strategy: steps
eval_steps: 100
save_steps: 100
max_steps: 1000
save_total_limit: 10
"""
ZERO = """\
{
  "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto",
  "bf16": {"enabled": "auto"},
  "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}
}
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Create a separate repository."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "ds3.json").write_text(ZERO)
    monkeypatch.chdir(tmp_path)


def list_offered(run: api.RunFit) -> set[str]:
    return {alternative.name for alternative in run.rungs}


def run_fit(text: str, disk: str | None = None, name: str = "run.yaml") -> api.RunFit:
    Path(name).write_text(text)
    [run] = api.fit([name], api.Options(isolated=True, disk=disk)).runs
    return run


@pytest.mark.parametrize("line", REFUSED)
def test_fit_offers_no_4_bits_where_they_are_refused(line: str) -> None:
    assert "4-bit weights" in list_offered(run_fit(LLAMAFACTORY))
    run = run_fit(LLAMAFACTORY + line)
    assert "4-bit weights" not in list_offered(run)
    assert run.solution is None or not any("quantization_bit" in setting for setting in run.solution.settings)


@pytest.mark.parametrize("line", ["", *REFUSED])
def test_no_fix_makes_a_new_error(line: str, tmp_path: Path) -> None:
    (tmp_path / "ds3.json").unlink()
    (tmp_path / "run.yaml").write_text(LLAMAFACTORY + line)
    before = {finding.message for finding in lint(tmp_path).findings if finding.code == "KEY006"}
    fixed = fix(tmp_path, build_options(), unsafe=True)
    assert ("quantization_bit" in (tmp_path / "run.yaml").read_text()) is (line == "")
    assert {finding.message for finding in fixed.result.findings if finding.code == "KEY006"} <= before
    helps = [finding.help or "" for finding in lint(tmp_path).findings]
    assert not any("quantization_bit" in finding for finding in helps)


def test_weights_alone_are_not_saved_beside_the_best_model_under_deepspeed() -> None:
    run = run_fit(DISK, "110GB")
    assert run.solution is not None
    assert "save_only_model: true" in run.solution.settings
    best = run_fit(f"{DISK}load_best_model_at_end: true\n", "110GB")
    assert "weights alone" not in list_offered(best)


def test_fewer_checkpoints_cost_less_than_resuming() -> None:
    run = run_fit(DISK, "230GB")
    assert run.solution is not None
    assert list(run.solution.settings) == ["save_total_limit: 10 -> 1"]


@pytest.mark.parametrize(("card", "is_offered"), [("A100-40GB", True), ("MI250X", False)])
def test_experts_are_quantised_on_cuda_alone(card: str, is_offered: bool) -> None:
    """Respect axolotl 0.21.0, utils/schemas/config.py (check_quantize_moe_experts)."""
    run = run_fit(CAST.replace("A100-40GB", card))
    assert ("4-bit experts" in list_offered(run)) is is_offered


def test_what_a_change_needs_holds_for_the_combination() -> None:
    """Shard no 4-bit weights with ZeRO-3, although only then 70 B of them fit eight cards of 40 GB."""
    text = OPENRLHF.replace("gpus-per-node=1", "gpus-per-node=8").replace("Qwen2.5-32B", "Qwen2.5-72B")
    run = run_fit(text.replace("_train_batch_size 1 ", "_train_batch_size 8 "), name="run.sh")
    assert {"ZeRO stage", "4-bit weights"} <= list_offered(run)
    chosen = {alternative.name for alternative in run.rungs if alternative.chosen}
    assert not chosen >= {"ZeRO stage", "4-bit weights"}


def test_one_reader_per_node_broadcasts_what_it_reads() -> None:
    """Write both keys, since one without the other is rejected (accelerate 1.12.0, utils/launch.py)."""
    for name in ("accelerate.yaml", "train.sh", "sft.yaml"):
        source = REPOSITORY / "fixtures" / "acceptance" / "launchers" / "fsdp-every-process-reads" / name
        Path(name).write_bytes(source.read_bytes())
    api.fit(["sft.yaml"], api.Options(isolated=True), write=True)
    written = Path("accelerate.yaml").read_text()
    assert "fsdp_cpu_ram_efficient_loading: true" in written
    assert "fsdp_sync_module_states: true" in written


@pytest.mark.parametrize("model", ["openai/gpt-oss-120b", "Qwen/Qwen3-30B-A3B-FP8"])
def test_a_model_that_is_published_quantised_gets_no_other_quantisation(model: str) -> None:
    """Respect LLaMA-Factory 0.9.4, model_utils/quantization.py, and transformers 5.23.0, quantizers/auto.py."""
    text = LLAMAFACTORY.replace("Qwen/Qwen2.5-32B", model)
    assert not [name for name in list_offered(run_fit(text)) if "4-bit" in name]
    plain = LLAMAFACTORY.replace("Qwen/Qwen2.5-32B", "Qwen/Qwen3-30B-A3B")
    assert [name for name in list_offered(run_fit(plain)) if "4-bit" in name]
