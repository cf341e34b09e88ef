"""`cfglint fit` with a stated host or disk: their verdicts count as the GPU's does."""

from __future__ import annotations

import json

import pytest

from cfglint_train import api
from cfglint_train.reports import fit as report
from tests.support.corpus import REPOSITORY

Z3 = json.loads((REPOSITORY / "fixtures" / "fit" / "z3.json").read_text())
OFFLOADED = {**Z3, "zero_optimization": {**Z3["zero_optimization"], "offload_optimizer": {"device": "cpu"}}}
FULL = """\
# cfglint: axolotl=0.18.0 nodes=1 gpus-per-node=8 gpu=H100
base_model: meta-llama/Llama-3.1-8B
datasets: [{path: x.jsonl, type: alpaca}]
output_dir: out
bf16: true
sequence_len: 4096
sample_packing: true
pad_to_sequence_len: true
gradient_checkpointing: true
micro_batch_size: 1
gradient_accumulation_steps: 4
deepspeed: z3.json
num_epochs: 8
save_total_limit: 4
save_steps: 100
optimizer: adamw_torch_fused
"""


def run_fit(config: object = Z3, text: str = FULL, **arguments: object) -> tuple[api.RunFit, api.FitResult]:
    goal = arguments.pop("goal", "throughput")
    options = api.Options(isolated=True, **arguments)  # type: ignore[arg-type]
    result = api.fit("run.yaml", options, {"run.yaml": text, "z3.json": json.dumps(config)}, goal=goal)  # type: ignore[arg-type]
    return result.runs[0], result


def test_a_host_that_is_too_small_is_no_fit() -> None:
    """Count 8 ranks that read files of 5 GB at once: 37 GiB, for any settings."""
    run, result = run_fit(host_memory="24GiB")
    assert run.verdict == "fits"
    assert [(judgement.place, judgement.phase, judgement.verdict) for judgement in run.elsewhere] == [
        ("host", "load", "does not fit")
    ]
    assert result.needs_change
    assert result.hopeless == ("run.yaml",)
    assert run.holding is not None
    assert run.holding.beside == {"host": run.elsewhere[0].expected}
    lines = "\n".join(report.render_text(result.ladders))
    assert "load (host): 37.3 GiB expected" in lines
    assert "no change needed" not in lines
    assert "use 37.3 GiB of host memory per node; more GPUs do not help\n" in lines


@pytest.mark.parametrize("size", [None, "64GiB"])
def test_a_host_that_is_unknown_or_large_enough_needs_no_change(size: str | None) -> None:
    run, result = run_fit(host_memory=size)
    assert not result.needs_change
    assert run.solution is None
    assert len(run.elsewhere) == (size is not None)


def test_the_disk_counts_too() -> None:
    """Fit 8.03 B x 14 B of weights and states, 5 times, into 100 GB: only the 2 B of the weights have room."""
    run, _ = run_fit(disk="100GB")
    assert [(judgement.place, judgement.verdict) for judgement in run.elsewhere] == [("disk", "does not fit")]
    assert run.solution is not None
    assert (run.solution.settings, run.solution.applicability) == (("save_only_model: true",), "unsafe")
    assert [judgement.verdict for judgement in run.solution.elsewhere] == ["fits"]


def test_metadata_that_fill_the_host_are_left_to_another_checkpointer() -> None:
    """OLMo's `olmo_core` gathers 740 GiB per node on 512 ranks; a run that resumes by itself would misread the rest."""
    path = REPOSITORY / "fixtures" / "cases" / "1-olmo-64-nodes" / "olmo-7b.yaml"
    for resumes in ("", "try_load_latest_save: true\n"):
        result = api.fit("run.yaml", api.Options(isolated=True), {"run.yaml": path.read_text() + resumes})
        assert [judgement.verdict for judgement in result.runs[0].elsewhere] == ["does not fit"]
        solution = result.runs[0].solution
        assert (solution is None) == bool(resumes)
        if solution is not None:
            assert solution.settings[0] == "sharded_checkpointer: olmo_core -> torch_legacy"
            assert [judgement.verdict for judgement in solution.elsewhere] == ["fits"]


def test_what_relieves_a_gpu_that_has_room_is_no_rung() -> None:
    _, result = run_fit(disk="100GB")
    alternatives = result.ladders[0].alternatives
    assert {alternative.place for alternative in alternatives} == {"disk"}
    assert "activations.fused_loss" not in {field for alternative in alternatives for field in alternative.move.changes}


def test_the_files_of_a_change_are_named_where_one_is_a_companion() -> None:
    _, result = run_fit(OFFLOADED, host_memory="64GiB")
    assert "  in z3.json" in report.render_text(result.ladders)
    assert report.build_document(result.ladders)["runs"][0]["solution"]["files"] == ["z3.json"]
    _, alone = run_fit(disk="100GB")
    assert not [line for line in report.render_text(alone.ladders) if line.startswith("  in ")]


def test_what_fills_the_host_goes_back_where_the_gpu_has_room() -> None:
    run, _ = run_fit(OFFLOADED, host_memory="64GiB")
    assert run.solution is not None
    assert run.solution.settings == ("zero_optimization.offload_optimizer.device: cpu -> none",)
    assert run.solution.applicability == "safe"
    assert run.solution.expected > (run.expected or 0)
    [alternative] = [alternative for alternative in run.rungs if alternative.chosen]
    assert alternative.place == "host"
    unknown, _ = run_fit(OFFLOADED)
    assert not [alternative for alternative in unknown.rungs if alternative.place != "gpu"]


@pytest.mark.parametrize("goal", ["throughput", "memory"])
@pytest.mark.parametrize(("size", "offered"), [("64GiB", False), ("1TiB", True)])
def test_nothing_moves_to_a_host_without_room(goal: str, size: str, offered: bool) -> None:
    """Fit the states of 8.03 B parameters neither on a card of 24 GB nor on a host of 64 GiB."""
    run, result = run_fit(host_memory=size, gpu="RTX 4090", goal=goal)
    assert bool([alternative for alternative in run.rungs if "offload_optimizer" in alternative.settings[0]]) is offered
    for alternatives in result.ladders:
        if alternatives.solution is not None and goal == "throughput":
            assert alternatives.solution.is_enough


def test_a_fix_of_the_step_adds_nothing_to_a_host_that_lacks_room() -> None:
    """Move no optimizer states to a host that already lacks room for loading."""
    options = api.Options(isolated=True, gpu="RTX 4090", host_memory="24GiB", select=("MEM001",))
    [finding] = api.lint("run.yaml", options, {"run.yaml": FULL, "z3.json": json.dumps(Z3)}).findings
    assert finding.fix is None or "offload_optimizer" not in finding.fix.message
