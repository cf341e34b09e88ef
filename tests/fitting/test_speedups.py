"""Uses of free memory: all offers of a run fit together, each is reported for few examples, and the formulas hold."""

from __future__ import annotations

from collections import Counter

import pytest

from cfglint_train.findings.verdicts import judge
from cfglint_train.fitting import speedups
from tests.support.corpus import CORPUS, REPOSITORY, needs_corpus
from tests.support.linting import build_options, copy_folder, fix, lint, list_runs

RULES = REPOSITORY / "fixtures" / "rules"
KINDS = {"checkpointing": "PRF005", "hybrid": "PRF006", "accumulation": "PRF007", "bucket": "PRF008"}

MAIN = """# cfglint: axolotl=0.18.0 gpu=H200 nodes=2 gpus-per-node=8
base_model: Qwen/Qwen2.5-1.5B
datasets:
  - path: data/train.jsonl
    type: alpaca
output_dir: ./out
sequence_len: 2048
sample_packing: true
attn_implementation: flash_attention_2
micro_batch_size: 1
gradient_accumulation_steps: 8
num_epochs: 1
optimizer: adamw_torch_fused
learning_rate: 0.00002
bf16: true
gradient_checkpointing: true
deepspeed: zero3.json
"""
COMPANION = """{
  "zero_optimization": {"stage": 3, "overlap_comm": true, "reduce_bucket_size": 1000000},
  "bf16": {"enabled": true},
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto"
}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "main.yaml").write_text(MAIN)
    (tmp_path / "zero3.json").write_text(COMPANION)
    return tmp_path


def find_offers(run):
    return {name: offer for name in KINDS if (offer := speedups.find_speedup(run, name)) is not None}


def assert_all_fit(run):
    """Assert that no phase comes close to the GPU's memory with each offer added in turn."""
    for offer in find_offers(run).values():
        run = run.replace_fields(offer.changes)
        judgement = judge(run, "gpu")
        assert judgement.verdict == "fits"
        assert judgement.budget.high <= (1 - speedups.MARGIN) * judgement.capacity


def test_all_four_are_offered_and_fit_together(folder):
    [run] = [run for run in list_runs(folder) if run.main.document.path == "main.yaml"]
    assert set(find_offers(run)) == set(KINDS)
    assert_all_fit(run)


def test_the_written_fixes_leave_a_run_that_fits(folder):
    fixed = fix(folder, build_options(select=KINDS.values()), unsafe=True)
    assert fixed.refused == ()
    after = lint(folder)
    codes = {finding.code for finding in after.findings}
    assert codes.isdisjoint({*KINDS.values(), "MEM001", "MEM002"})
    [run] = [run for run in after.runs if run.main.document.path == "main.yaml"]
    assert judge(run, "gpu").verdict == "fits"
    assert run.plan.batch.micro * run.plan.batch.accumulation == 8


@pytest.mark.parametrize("code", KINDS.values())
def test_the_fixtures_fit_with_everything_that_is_offered(code):
    for run in list_runs(RULES / code / "fires"):
        assert_all_fit(run)


def test_a_file_that_two_runs_share_is_not_rewritten(folder):
    (folder / "other.yaml").write_text(MAIN.replace("Qwen2.5-1.5B", "Qwen2.5-0.5B"))
    shared = [
        finding for finding in lint(folder).findings if finding.path == "zero3.json" and finding.code in KINDS.values()
    ]
    assert {finding.code for finding in shared} == {"PRF006", "PRF008"}
    for finding in shared:
        assert finding.fix is None
        assert finding.intent is None
        assert "zero_optimization." in finding.help


def test_a_card_that_is_not_stated_gets_no_offer(folder):
    (folder / "main.yaml").write_text(MAIN.replace(" gpu=H200", ""))
    assert {finding.code for finding in lint(folder).findings}.isdisjoint(KINDS.values())


def test_the_host_limits_what_is_offered(tmp_path):
    for kind, offered in (("fires", True), ("silent", False)):
        folder = copy_folder(RULES / "PRF006" / kind, tmp_path / kind)
        names = {run.main.document.path for run in list_runs(folder) if "hybrid" in find_offers(run)}
        assert ("olmo-two-nodes.yaml" in names) == offered
        assert "unstated-host.yaml" not in names


def test_one_forward_pass_of_four_is_repeated(folder):
    """Check L = 1,310,340,608 without the tied embedding and H = 151,936 x 1,536 = 233,373,696 for Qwen2.5-1.5B."""
    [run] = [run for run in list_runs(folder) if run.main.document.path == "main.yaml"]
    layers, head = run.architecture.parameters - 233_373_696, 233_373_696
    assert run.architecture.embedding_parameters == head
    assert speedups.compute_recomputation(run) == pytest.approx(layers / (3 * (layers + head) + layers))
    adapter = run.replace_fields({"method.tuning": "lora"})
    assert speedups.compute_recomputation(adapter) == pytest.approx(layers / (2 * (layers + head) + layers))


def test_bytes_between_ranks_and_nodes(folder):
    """Gather P parameters of 2 bytes twice and reduce them once for each of 8 micro batches, over 16 ranks."""
    [run] = [run for run in list_runs(folder) if run.main.document.path == "main.yaml"]
    setup, whole = speedups.find_setup(run), run.architecture.parameters * 2
    assert speedups.compute_rank_traffic(setup) == pytest.approx(whole * 3 * 8 * 15 / 16)
    assert speedups.compute_node_traffic(setup) == pytest.approx(whole * 3 * 8 / 2)
    inside = speedups.find_setup(run.replace_fields({"parallel.secondary_partition": 8}))
    assert speedups.compute_node_traffic(inside) == pytest.approx(whole * 2 * 8 / 2)


@needs_corpus
@pytest.mark.slow
def test_the_offers_of_upstream_examples_fit_together():
    runs = list_runs(CORPUS, gpu="H100", nodes="2", gpus_per_node="8")
    assert len(runs) > 350
    for run in runs:
        assert_all_fit(run)


@needs_corpus
@pytest.mark.slow
def test_each_kind_is_said_of_a_fifth_of_upstream_examples_at_most():
    """Count 80 of 378 examples on an H100 at the time of writing (PRF005)."""
    result = lint(CORPUS, build_options(select=KINDS.values(), gpu="H100"))
    mains = [file for file in result.files if file.role == "main"]
    counts = Counter(finding.code for finding in result.findings)
    assert {finding.severity for finding in result.findings} == {"info"}
    assert len(mains) > 350
    assert max(counts.values()) < 0.22 * len(mains)


def test_a_larger_micro_batch_comes_out_even_over_the_ranks_of_every_group(tmp_path):
    """Divide the micro batch for the critic, too, which has twice the actor's ranks."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.sh").write_text(
        "# cfglint: openrlhf=0.9.0 gpu=H100 gpus-per-node=8\n"
        "python3 -m openrlhf.cli.train_ppo_ray --pretrain meta-llama/Llama-3.2-1B --prompt_data data "
        "--reward_pretrain meta-llama/Meta-Llama-3-8B-Instruct --colocate_critic_reward --ref_reward_offload "
        "--actor_num_nodes 1 --actor_num_gpus_per_node 2 --ref_num_nodes 1 --ref_num_gpus_per_node 1 "
        "--critic_num_nodes 1 --critic_num_gpus_per_node 4 --reward_num_nodes 1 --reward_num_gpus_per_node 4 "
        "--vllm_num_engines 1 --vllm_tensor_parallel_size 1 --micro_train_batch_size 1 --train_batch_size 16 "
        "--prompt_max_len 1024 --generate_max_len 1024 --zero_stage 3 --bf16 --gradient_checkpointing\n"
    )
    fixed = fix(tmp_path, build_options(select=["BAT002", "PRF007"]), unsafe=True)
    assert [finding.code for finding in fixed.applied] == ["PRF007"]
    assert "--micro_train_batch_size 4 " in (tmp_path / "train.sh").read_text()
    assert fixed.result.findings == ()
