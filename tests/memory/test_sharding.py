"""A rank's share of a model, and the micro batches that it holds, compared with torch's and OLMo-core's own code.

`pipelines.jsonl` is the output of `tests/oracles/pipeline_order.py` (torch 2.13.0); the slow tests run both programs in
this Python, or in the one that CFGLINT_ORACLE_PYTHON names.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cfglint_train.memory.estimate import estimate
from cfglint_train.memory.explanation import explain
from cfglint_train.memory.setup import Setup
from cfglint_train.memory.setup_builder import read_setup
from cfglint_train.memory.sharding import Pipeline, Slice, build_rank_architecture, count_in_flight
from cfglint_train.memory.transients import compute_broadcast_buckets, compute_leftovers, count_head_elements
from cfglint_train.models.architecture import Architecture, Experts, Linear
from tests.memory.jobs import LLAMA_8B, get_gpu, make_llama, make_plan, sum_parts
from tests.memory.test_engine import PYTHON
from tests.support.cases import for_each

ORACLES = Path(__file__).parents[1] / "oracles"
ROWS = [json.loads(line) for line in Path(__file__).with_name("pipelines.jsonl").read_text("utf-8").splitlines()]
NAMES = {
    "1F1B": "1f1b", "GPipe": "gpipe", "Interleaved1F1B": "interleaved_1f1b", "LoopedBFS": "looped_bfs",
    "InterleavedZeroBubble": "zero_bubble", "ZBVZeroBubble": "zbv",
}  # fmt: skip


@for_each("row", ROWS, ids=lambda row: "-".join(map(str, row[:4])))
def test_a_stage_holds_what_the_schedule_runs_ahead(row: Any) -> None:
    name, ranks, each, count, held = row
    pipeline = Pipeline(ranks, NAMES[name], count, each)
    assert count_in_flight(pipeline, 0) * each == held[0]
    if name != "ZBVZeroBubble":  # its first rank has the last stage, too
        assert count_in_flight(pipeline, ranks - 1) * each == held[-1]


def run_oracle(program: str, *arguments: str) -> str:
    command = [PYTHON, "-W", "ignore", str(ORACLES / program), *arguments]
    out = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if out.returncode and "ModuleNotFoundError" in out.stderr:
        pytest.skip(f"needs {out.stderr.strip().splitlines()[-1]}")
    assert out.returncode == 0, out.stderr[-2000:]
    return out.stdout


@pytest.mark.oracle
def test_schedules_run_as_they_did() -> None:
    assert [json.loads(line) for line in run_oracle("pipeline_order.py").splitlines()] == ROWS


@pytest.mark.oracle
def test_olmo_core_splits_so() -> None:
    output = json.loads(run_oracle("olmo_core_parts.py").splitlines()[-1])
    shape = make_llama(output["whole"], 16, 1024, 16, 8, output["width"], 32000)
    for degree, elements in output["tensor"].items():
        ranks = int(degree)
        assert build_rank_architecture(shape, Slice(ranks, embedding=ranks, head=ranks)).parameters == elements
    for key, layers in output["stages"].items():
        degree, name = key.split()
        fields = make_parallel(pipeline=int(degree), schedule=NAMES[name])
        assert build_setup(fields, shape).architecture.layers == sum(layers) // int(degree)


def make_parallel(**degrees: Any) -> Any:
    fields = {f"parallel__{name}": value for name, value in degrees.items()}
    changes = {"parallel__strategy": "fsdp2", "launch__nodes": 2, "launch__gpus_per_node": 8, **fields}
    return make_plan(batch__accumulation=8, **changes)


def build_setup(fields: Any, shape: Architecture = LLAMA_8B, ends: bool = True) -> Setup:
    setup, reader = read_setup(fields, shape, ends)
    assert setup is not None, reader.missing
    return setup


def test_a_tensor_parallel_rank_has_its_share_and_all_norms() -> None:
    vocabulary = LLAMA_8B.vocab * LLAMA_8B.hidden
    norms = LLAMA_8B.parameters - sum(item.elements for item in LLAMA_8B.linears)
    matrices = LLAMA_8B.parameters - norms - 2 * vocabulary
    shares = {"none": 2 * vocabulary, "head": vocabulary * 9 // 8, "ends": vocabulary // 4, "all": vocabulary // 4}
    for split, ends in shares.items():
        rank_setup = build_setup(make_parallel(tensor=8, split_vocabulary=split))
        assert rank_setup.architecture.parameters == matrices // 8 + ends + norms
        assert rank_setup.whole is LLAMA_8B
        assert rank_setup.ranks.shards == 2


def test_a_split_output_matrix_leaves_a_share_of_its_gradient() -> None:
    """Leave a share of the gradient, whether the logits are split with the matrix or gathered on every rank."""
    vocabulary = LLAMA_8B.vocab * LLAMA_8B.hidden
    for split, share in (("none", 1), ("head", 8), ("ends", 8), ("all", 8)):
        rank_setup = build_setup(make_parallel(tensor=8, split_vocabulary=split))
        assert count_head_elements(rank_setup) == vocabulary // share
        assert rank_setup.architecture.vocab == LLAMA_8B.vocab // (8 if split == "all" else 1)


def test_sequence_parallelism_splits_checkpoints_and_norms() -> None:
    for mode, least in (("full", 0.7), ("none", 0.1)):
        activations = {}
        for split in (False, True):
            fields = make_parallel(tensor=8, sequence_parallel=split).replace({"activations.checkpointing": mode})
            activations[split] = sum_parts(get_gpu(estimate(fields, LLAMA_8B), "forward"), "activations")
        assert 1 - activations[True] / activations[False] > least


def test_the_stages_of_a_pipeline_have_the_ends() -> None:
    fields = make_parallel(pipeline=4, schedule="1f1b")
    first, last = build_setup(fields, ends=False), build_setup(fields)
    vocabulary = LLAMA_8B.vocab * LLAMA_8B.hidden
    assert (first.architecture.layers, last.architecture.layers) == (8, 8)
    assert (first.part.in_flight, last.part.in_flight) == (4, 1)
    assert (first.part.ends, last.part.ends) == (False, True)
    for stage in (first, last):
        assert stage.architecture.parameters == pytest.approx(
            (LLAMA_8B.parameters - 2 * vocabulary) / 4 + vocabulary, rel=1e-4
        )


def test_of_both_ends_the_higher_counts() -> None:
    fields = make_parallel(pipeline=4, schedule="1f1b")
    assert get_gpu(estimate(fields, LLAMA_8B), "forward").expected
    events = {phase.name: phase.event for phase in estimate(fields, LLAMA_8B).phases}
    assert events["forward"].startswith("last stage: the loss")
    fused = fields.replace({"activations.fused_loss": "liger", "activations.checkpointing": "none"})
    events = {phase.name: phase.event for phase in estimate(fused, LLAMA_8B).phases}
    assert events["backward"].startswith("first stage")


MIXTURE = LLAMA_8B._replace(
    model_type="mixtral",
    experts=Experts(8, 2, 14336),
    linears=(
        *(item for item in LLAMA_8B.linears if item.name not in ("gate_proj", "up_proj", "down_proj")),
        Linear("gate_up_proj", 2 * 14336, 4096, 32, experts=8), Linear("down_proj", 4096, 14336, 32, experts=8),
    ),
    expert_parameters=32 * 8 * 3 * 14336 * 4096,
    parameters=LLAMA_8B.parameters + 32 * 7 * 3 * 14336 * 4096,
    layer_parameters=LLAMA_8B.layer_parameters + 7 * 3 * 14336 * 4096,
)  # fmt: skip


def test_expert_parallelism_gathers_a_share_of_the_experts() -> None:
    """Shard the other experts over the other ranks with FSDP, so that a rank holds as much as before."""
    whole, split = build_setup(make_parallel(), MIXTURE), build_setup(make_parallel(expert=8), MIXTURE)
    assert split.weights.trained == whole.weights.trained
    assert whole.architecture.layer_parameters - split.architecture.layer_parameters == 7 * 3 * 14336 * 4096
    replicas = build_setup(make_parallel(expert=8, strategy="ddp"), MIXTURE)
    assert replicas.weights.trained == MIXTURE.parameters - MIXTURE.expert_parameters * 7 // 8
    assert whole.weights.computed == whole.weights.trained == split.weights.trained
    assert split.weights.computed == replicas.weights.trained


def test_adapters_of_experts_go_with_their_experts() -> None:
    """Shard the adapters with the experts before FSDP wraps them.

    Source: axolotl 0.21.0, integrations/expert_parallel/shard.py.

    A rank computes with an eighth, and PEFT's product for one layer's experts is an eighth, too.
    """
    adapters = {
        "method.tuning": "lora", "method.lora_rank": 8, "precision.adapter": "fp32",
        "method.lora_target_parameters": ("experts.gate_up_proj", "experts.down_proj"),
    }  # fmt: skip
    whole = build_setup(make_parallel().replace(adapters), MIXTURE)
    split = build_setup(make_parallel(expert=8).replace(adapters), MIXTURE)
    replicas = build_setup(make_parallel(expert=8, strategy="ddp").replace(adapters), MIXTURE)
    routed = 32 * 8 * 8 * ((4096 + 2 * 14336) + (14336 + 4096))
    assert whole.weights.computed == whole.weights.trained == split.weights.trained
    assert split.weights.computed == replicas.weights.trained == whole.weights.trained - routed * 7 // 8
    deferred = make_parallel(expert=8, defers_reduction=True).replace(adapters)
    shown = {item.name: item.formula for item in explain(get_gpu(estimate(deferred, MIXTURE), "backward"))}
    assert shown["gradients"].startswith(f"{split.weights.computed:,} trained elements x ")
    transients = [
        sum_parts(
            get_gpu(estimate(make_parallel(expert=ranks).replace(adapters), MIXTURE), "backward"), "backward transients"
        )
        for ranks in (1, 8)
    ]
    matrices = 7 * 14336 * 4096 * 2
    # Gate, up and down of seven experts in 16 bits, and at worst the gradient of gate and up.
    assert 5 * matrices < transients[0] - transients[1] < 6 * matrices


def test_deepspeeds_own_mixtures_are_missing() -> None:
    result = estimate(make_parallel(expert=8, strategy="zero", zero_stage=2), MIXTURE)
    assert result.missing == ("parallel.expert",)


def test_context_parallelism_shares_tokens_and_exchanges_keys() -> None:
    single, pair = build_setup(make_parallel()), build_setup(make_parallel(context=2))
    assert pair.batch.tokens * 2 == single.batch.tokens
    assert pair.ranks.shards == single.ranks.shards
    moved = sum_parts(get_gpu(estimate(make_parallel(context=2), LLAMA_8B), "backward"), "backward transients")
    assert moved


def test_checkpoints_are_those_of_all_ranks() -> None:
    saves = {"checkpoint.strategy": "steps", "checkpoint.state_dict": "full"}
    disks = []
    for fields in (make_parallel(), make_parallel(tensor=8), make_parallel(tensor=2, pipeline=4)):
        phase = estimate(fields.replace(saves), LLAMA_8B).find_phase("save")
        assert phase is not None
        assert phase.disk is not None
        disks.append(phase.disk.expected)
    assert disks[1] == pytest.approx(disks[0], rel=0.01)
    assert disks[2] == pytest.approx(disks[0], rel=0.01)


@pytest.mark.parametrize("strategy", ["fsdp1", "fsdp2"])
def test_reduced_gradients_join_those_of_earlier_micro_batches(strategy: str) -> None:
    """Add a reduced gradient in place in both FSDP versions (torch 2.13: foreach_reduce, _accumulate_sharded_grad)."""
    job = {"parallel__strategy": strategy, "launch__nodes": 1, "launch__gpus_per_node": 4, "batch__accumulation": 2}
    gradients = sum_parts(get_gpu(estimate(make_plan(**job), LLAMA_8B), "backward"), "gradients")
    shard = 2 * LLAMA_8B.parameters / 4
    ends = 2 * 2 * LLAMA_8B.vocab * LLAMA_8B.hidden
    assert shard <= gradients <= shard + ends


@pytest.mark.oracle
@pytest.mark.parametrize(("vocab", "tied"), [(128256, False), (128256, True), (32000, False), (8192, False)])
def test_buckets_of_the_root_are_those_of_torch(vocab: int, tied: bool) -> None:
    """Copy the tensors of a bucket that has several; the largest bucket stays in the cache."""
    shape = make_llama(8 * 10**9, 32, 4096, 32, 8, 14336, vocab, tied=tied)
    vocabulary_bytes, norm = 2 * vocab * 4096, 2 * 4096
    output = json.loads(
        run_oracle("broadcast_buckets.py", *map(str, [vocabulary_bytes, norm] + ([] if tied else [vocabulary_bytes])))
    )
    assert output["view"]
    copies = [sum(bucket) for bucket in output["buckets"] if len(bucket) > 1]
    setup = build_sharded(shape, "none")
    # The published parameters outside layers, embedding and head count as the root's, too.
    assert compute_broadcast_buckets(setup)[0] == pytest.approx(max(copies, default=0), abs=2**20)


def test_an_offloaded_root_leaves_its_shard_as_well() -> None:
    shape = make_llama(8030261248, 32, 4096, 32, 8, 14336, 128256)
    vocabulary_bytes = 2 * 128256 * 4096
    difference = compute_leftovers(build_sharded(shape, "cpu"), False) - compute_leftovers(
        build_sharded(shape, "none"), False
    )
    assert difference == pytest.approx(vocabulary_bytes, rel=1e-4)  # half of embedding and head


def build_sharded(shape: Architecture, offload: str) -> Setup:
    setup, reader = read_setup(
        make_plan(
            parallel__strategy="fsdp1", parallel__offload_params=offload, parallel__reshard_after_forward=True,
            launch__nodes=1, launch__gpus_per_node=2,
        ),
        shape,
    )  # fmt: skip
    assert setup is not None, reader.missing
    return setup
