"""Differences between phases: loading under DeepSpeed, evaluation, models that sleep, cast experts."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cfglint_train.hardware.catalogue import Hardware
from cfglint_train.memory import transients
from cfglint_train.memory.activations import compute_kept_inputs
from cfglint_train.memory.estimate import estimate
from cfglint_train.memory.explanation import explain
from cfglint_train.memory.layers.layer import compute_layer_cost
from cfglint_train.memory.logits import build_head, compute_evaluation_bytes, find_loss
from cfglint_train.memory.setup_builder import read_setup
from cfglint_train.models.find import find_architecture
from cfglint_train.models.lookup import find_entry
from cfglint_train.plan.fields import Plan, Role
from tests.memory.jobs import GIB, LLAMA_8B, get_gpu, make_plan, make_zero, sum_parts
from tests.memory.test_engine import PYTHON

EMBEDDING = LLAMA_8B.vocab * LLAMA_8B.hidden


def test_deepspeed_casts_before_it_flattens() -> None:
    """Take the maximum of fp32 weights plus the first cast tensor, and of 16-bit weights plus their flat copy."""
    fp32 = get_gpu(estimate(make_zero(2, 8, precision__loaded="fp32"), LLAMA_8B), "load")
    assert sum_parts(fp32, "parameters", "backward transients") == 4 * LLAMA_8B.parameters + 2 * EMBEDDING
    flat = estimate(make_zero(2, 8, precision__loaded="bf16"), LLAMA_8B)
    assert sum_parts(get_gpu(flat, "load"), "parameters", "backward transients") == 2 * 2 * LLAMA_8B.parameters
    phase = flat.find_phase("load")
    assert phase is not None
    assert phase.event == "DeepSpeed flattens the weights"


def test_deepspeed_flattens_on_the_cpu_where_the_gpu_has_no_room() -> None:
    job = make_zero(1, 8, precision__loaded="bf16")
    for size, copies in ((40, 2), (24, 1)):
        budget = get_gpu(estimate(job, LLAMA_8B, Hardware(gpu_bytes=size * GIB)), "load")
        flat = LLAMA_8B.parameters if copies == 1 else 2 * LLAMA_8B.parameters  # 8 bytes of a rank's eighth
        assert sum_parts(budget, "parameters", "backward transients") == 2 * LLAMA_8B.parameters + flat


@pytest.mark.parametrize(("loss", "each"), [("none", 10), ("liger", 10), ("cce", 0)])
def test_cut_cross_entropy_makes_no_logits_in_evaluation_either(loss: str, each: int) -> None:
    job = make_plan(activations__fused_loss=loss, batch__eval_micro=4, eval__enabled=True)
    assert sum_parts(get_gpu(estimate(job, LLAMA_8B), "eval"), "logits and loss") == 4 * 2048 * LLAMA_8B.vocab * each


@pytest.mark.parametrize(("asleep", "each"), [(False, 16), (True, 2)])
def test_a_sleeping_critic_keeps_its_16_bit_weights(asleep: bool, each: int) -> None:
    roles = (Role("actor", None, True, pool="all"), Role("critic", None, True, pool="all"))
    job = make_zero(3, 8, model__roles=roles, rollout__train_sleep=asleep)
    budget = get_gpu(estimate(job, LLAMA_8B), "optimizer step")
    assert sum_parts(budget, "other models") == each * LLAMA_8B.parameters // 8


def sum_on_host(job: Plan, name: str) -> int:
    step = estimate(job, LLAMA_8B).find_phase("optimizer step")
    assert step is not None
    assert step.host is not None
    return sum_parts(step.host, name)


def test_sleeping_training_states_are_pinned_blocks() -> None:
    """Pin three fp32 tensors of each sub-group, and the gradients as one block (stage3.py offload_states).

    8.03 B elements on 8 ranks are 1.004 B of each, in two sub-groups whose blocks have 2 GiB; the gradients' block has
    2 GiB.
    """
    job = make_zero(3, 8, rollout__train_sleep=True, parallel__sub_group=510_000_000)
    assert sum_on_host(job, "sleeping training states") == 8 * (2 * 3 * 2 * GIB + 2 * GIB)
    assert sum_on_host(job.replace({"rollout.train_sleep": False}), "sleeping training states") == 0
    roles = (Role("actor", None, True, pool="all"), Role("critic", None, True, pool="all"))
    both = sum_on_host(job.replace({"model.roles": roles}), "sleeping training states")
    assert both == pytest.approx(2 * sum_on_host(job, "sleeping training states"), abs=2)


def test_generation_begins_with_what_training_left() -> None:
    """Keep the flat gradients and a bucket from step to step under ZeRO-3, unless the training states sleep."""
    card, engine = Hardware(gpu_bytes=80 * GIB), {"rollout__engine": "vllm", "rollout__mode": "colocate"}
    job = make_zero(3, 8, **engine, rollout__utilization=0.5, parallel__reduce_bucket=10**8)
    awake = get_gpu(estimate(job, LLAMA_8B, card), "rollout")
    assert sum_parts(awake, "gradients", "gradient buckets") == 2 * LLAMA_8B.parameters // 8 + 2 * 10**8
    asleep = get_gpu(estimate(job.replace({"rollout.train_sleep": True}), LLAMA_8B, card), "rollout")
    assert sum_parts(asleep, "gradients", "gradient buckets", "master weights", "optimizer state") == 0


def test_an_engine_that_sleeps_is_awake_at_a_checkpoint_only_where_the_framework_left_it_so() -> None:
    job = make_zero(
        3, 8, rollout__engine="vllm", rollout__mode="colocate", rollout__sleep=True, rollout__tensor=2,
        checkpoint__gather=True,
    )  # fmt: skip
    asleep, awake = (
        sum_parts(get_gpu(estimate(job.replace({"rollout.awake_at_save": value}), LLAMA_8B), "save"), "rollout engine")
        for value in (False, True)
    )
    assert asleep == sum_parts(get_gpu(estimate(job, LLAMA_8B), "optimizer step"), "rollout engine") > 0
    assert awake - asleep == 2 * LLAMA_8B.parameters // 2


@pytest.mark.parametrize(("stage", "offloaded"), [(2, False), (3, True)])
def test_a_reference_model_waits_on_the_host_under_zero_3(stage: int, offloaded: bool) -> None:
    """Cover a second model, and one among several; below stage 3 DeepSpeed keeps it on every GPU."""
    roles = (Role("actor", None, True, pool="all"), Role("reference", None, False, pool="all"))
    for job in (make_zero(stage, 8, method__reference_model="full"), make_zero(stage, 8, model__roles=roles)):
        waiting = job.replace({"method.reference_offload": True})
        before, after = (get_gpu(estimate(item, LLAMA_8B), "backward") for item in (job, waiting))
        whole = 2 * LLAMA_8B.parameters // (8 if stage == 3 else 1)
        assert sum_parts(before, "reference model", "other models") == whole
        assert sum_parts(after, "reference model", "other models") == (0 if offloaded else whole)
        assert sum_on_host(job, "offloaded models") == 0
        # A matrix of 14,336 x 4,096 needs a block of 16 MiB for its shard of 14; others have powers of two.
        share = sum_on_host(waiting, "offloaded models") / (2 * LLAMA_8B.parameters)
        assert 1.05 < share < 1.15 if offloaded else share == 0


def test_experts_that_the_quantiser_leaves_out_may_be_cast() -> None:
    model = find_architecture("Qwen/Qwen3-30B-A3B")
    assert model is not None
    lora = make_plan(method__tuning="lora", method__lora_rank=16, method__quantization="nf4", precision__adapter="fp32")

    def sum_frozen(experts: str | None = None, quantized: bool = False) -> int:
        job = lora.replace({"precision.experts": experts, "method.quantized_experts": quantized})
        return sum_parts(get_gpu(estimate(job, model), "forward"), "frozen parameters")

    assert sum_frozen("fp32") - sum_frozen() == 2 * model.expert_parameters
    assert sum_frozen("fp32", quantized=True) == sum_frozen(quantized=True)


_CAST = """
import torch
from peft import prepare_model_for_kbit_training
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM
model = Qwen3MoeForCausalLM(Qwen3MoeConfig(
    vocab_size=64, hidden_size=32, intermediate_size=32, moe_intermediate_size=16, num_hidden_layers=1, num_experts=4,
    num_attention_heads=2, num_key_value_heads=1, head_dim=16)).to(torch.bfloat16)
model.is_loaded_in_4bit = True
model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
print({str(each.dtype) for name, each in model.named_parameters() if "experts" in name})
"""


@pytest.mark.oracle
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "transformers", "peft")), reason="needs peft"
)
def test_peft_casts_fused_experts() -> None:
    process = subprocess.run([PYTHON, "-W", "ignore", "-c", _CAST], capture_output=True, text=True, check=True)
    assert process.stdout.split("\n")[-2] == "{'torch.float32'}"


def measure_kept(**changes: object) -> float:
    """Measure the bytes per token that a layer of Llama 8B keeps under LoRA with autocast."""
    lora = {"method.tuning": "lora", "method.lora_rank": 16, "method.lora_targets": ("all-linear",)}
    precision = {"precision.adapter": "fp32", "precision.autocast": True, "activations.checkpointing": "none"}
    setup, reader = read_setup(make_plan().replace({**lora, **precision, **changes}), LLAMA_8B)
    assert setup is not None, reader.missing
    cost = compute_layer_cost(LLAMA_8B, setup.mode)
    assert cost is not None
    return cost.saved


def test_fused_lora_kernels_keep_inputs_gate_and_up() -> None:
    hidden, keys, inner, heads = 4096, 1024, 14336, 32
    attention = 4 * hidden + 4 * keys + 4 * heads
    assert measure_kept(**{"method.lora_kernels": True}) == 12 * hidden + attention + 4 * inner + 8
    plain, mlp = measure_kept(), measure_kept(**{"method.lora_kernels": True, "method.lora_kernel_parts": ("mlp",)})
    assert measure_kept(**{"method.lora_kernels": True}) < mlp < plain
    assert measure_kept(**{"method.lora_kernels": True, "method.lora_dora": True}) == measure_kept(
        **{"method.lora_dora": True}
    )
    two_targets = {"method.lora_targets": ("q_proj", "v_proj")}
    assert measure_kept(**two_targets, **{"method.lora_kernels": True}) == measure_kept(**two_targets)


def test_old_bitsandbytes_keeps_the_inputs_of_frozen_matrices() -> None:
    four = {"method.quantization": "nf4", "method.lora_targets": ("q_proj",)}
    # Inputs of the second norm's successors and of the gated product; the adapter keeps the first norm's output, and
    # attention keeps the output matrix's input.
    assert measure_kept(**four, **{"method.keeps_inputs": True}) - measure_kept(**four) == 2 * (4096 + 14336)


@pytest.mark.parametrize(
    ("quantization", "method", "kept"), [("int8", "none", True), ("int8", "full", False), ("nf4", "none", False)]
)
def test_an_estimate_says_that_int8_matrices_keep_their_inputs(quantization: str, method: str, kept: bool) -> None:
    """Name them beside the activations unless layers are recomputed or 4-bit kernels are used."""
    job = make_plan(method__tuning="lora", method__lora_rank=16, method__lora_targets=("q_proj",),
                    method__quantization=quantization, activations__checkpointing=method)  # fmt: skip
    budget = get_gpu(estimate(job, LLAMA_8B), "backward")
    formula = next(part.formula for part in explain(budget) if part.name == "activations")
    assert formula.endswith(", inputs of frozen matrices kept") is kept
    size = 2 * (4096 + 14336) * 2048 * (32 if kept else 0)
    assert compute_kept_inputs(budget.setup) == pytest.approx(size, rel=0.04)


LOSSES = [json.loads(line) for line in (Path(__file__).parent / "losses.jsonl").read_text().splitlines()]
_NAMES = {"orpo": "liger_pairs", "dpo": "liger_pairs", "kto": "liger_unpaired", "grpo": "liger_policy"}


@pytest.mark.parametrize("row", LOSSES, ids=lambda row: row["id"])
def test_chunked_losses_as_a_cpu_runs_them(row: dict[str, Any]) -> None:
    """Count logits and gradients of a chunk, of the inputs and of the output matrix.

    How much a kernel fuses depends on the sizes; the estimate is for the kernels that fuse least.
    """
    shape = LLAMA_8B._replace(vocab=row["vocab"], hidden=row["hidden"])
    job = make_plan(
        batch__micro=row["sequences"], sequence__length=row["length"],
        activations__fused_loss=_NAMES.get(row["loss"], "liger_distilled"),
    )  # fmt: skip
    setup, _ = read_setup(job, shape)
    assert setup is not None
    cost = build_head(setup)
    error = (cost.forward + cost.fixed_forward) / row["bytes"] - 1
    assert -0.04 <= error <= 0.5


CHUNKED = [json.loads(line) for line in (Path(__file__).parent / "chunked_losses.jsonl").read_text().splitlines()]
_FORMATS = {
    "bf16": {"precision__autocast": False},
    "fp32": {"precision__autocast": False, "precision__params": "fp32", "precision__compute": "fp32"},
    "trainer": {"precision__autocast": True},
}


@pytest.mark.parametrize("row", CHUNKED, ids=lambda row: f"{row['case']}-{row['sequences']}")
def test_the_upcast_in_chunks_as_a_cpu_runs_it(row: dict[str, Any]) -> None:
    job = make_plan(
        batch__micro=row["sequences"], batch__eval_micro=row["sequences"], activations__fused_loss="chunked",
        **_FORMATS[row["case"]],
    )  # fmt: skip
    setup, _ = read_setup(job, LLAMA_8B)
    assert setup is not None
    cost = find_loss(setup)
    assert (cost.forward, cost.saved, cost.backward) == (row["forward"], row["kept"], row["backward"])
    assert compute_evaluation_bytes(setup) == row["evaluation"]


def test_an_evaluation_goes_from_chunk_to_chunk_too() -> None:
    job = make_plan(
        batch__micro=4, batch__eval_micro=4, eval__enabled=True, eval__strategy="steps",
        activations__fused_loss="liger_distilled",
    )  # fmt: skip
    logits = sum_parts(get_gpu(estimate(job, LLAMA_8B), "eval"), "logits and loss")
    assert logits == 10 * 1024 * LLAMA_8B.vocab + 2 * EMBEDDING


def test_preferences_go_pair_by_pair() -> None:
    job = make_plan(method__stage="dpo", batch__pairs=True, batch__micro=4, activations__fused_loss="liger_pairs")
    logits = sum_parts(get_gpu(estimate(job, LLAMA_8B), "forward"), "logits and loss")
    vocabulary, tokens = LLAMA_8B.vocab, 8 * 2048
    assert logits == 2 * tokens * 4096 + 8 * 2 * 2048 * vocabulary + 2 * EMBEDDING


@pytest.mark.parametrize(
    ("kind", "double", "sharded", "unsharded"),
    [
        ("nf4", False, 0.5, 4 / 64),
        ("nf4", True, 0.5, 1 / 64 + 4 / (64 * 256)),
        ("gptq", False, 0, 0.5 + 2.5 / 128),
        ("awq", False, 0, 0.5 + 2.5 / 128),
    ],
)
def test_no_rank_shards_what_is_no_parameter(kind: str, double: bool, sharded: float, unsharded: float) -> None:
    """Leave buffers unsharded and on the GPU, and the scales of 4 bits (bitsandbytes' Params4bit.quant_state)."""
    fields = {
        "method__tuning": "lora", "method__lora_rank": 8, "method__lora_targets": ("q_proj",),
        "method__quantization": kind, "method__double_quantization": double, "precision__adapter": "bf16",
        "precision__frozen": "bf16", "parallel__strategy": "fsdp1", "launch__nodes": 1, "launch__gpus_per_node": 8,
    }  # fmt: skip
    quantized = LLAMA_8B.parameters - 2 * EMBEDDING - 65 * 4096
    others = LLAMA_8B.parameters - quantized
    frozen = sum_parts(get_gpu(estimate(make_plan(**fields), LLAMA_8B), "backward"), "frozen parameters")
    assert frozen == pytest.approx(quantized * (sharded / 8 + unsharded) + others * 2 / 8, abs=2)
    offloaded = estimate(make_plan(**fields, parallel__offload_params="cpu"), LLAMA_8B)
    assert sum_parts(get_gpu(offloaded, "backward"), "frozen parameters") == pytest.approx(quantized * unsharded, abs=2)


def test_shards_come_back_on_a_stream_of_their_own() -> None:
    """Hold the root's shard and a layer's beside the gathered copies (FSDP1 with offload)."""
    fields = {"parallel__strategy": "fsdp1", "launch__nodes": 1, "launch__gpus_per_node": 8}
    offloaded, _ = read_setup(make_plan(**fields, parallel__offload_params="cpu"), LLAMA_8B)
    resident, _ = read_setup(make_plan(**fields), LLAMA_8B)
    assert offloaded is not None
    assert resident is not None
    layers = 32 * LLAMA_8B.layer_parameters
    assert (
        transients.compute_staged_shards(offloaded)
        == (LLAMA_8B.parameters - layers + LLAMA_8B.layer_parameters) * 2 / 8
    )
    assert transients.compute_staged_shards(resident) == 0


def test_a_quantised_model_may_wait_whole_on_every_gpu() -> None:
    fields = {
        "method__tuning": "lora", "method__lora_rank": 8, "method__lora_targets": ("q_proj",),
        "precision__adapter": "bf16", "precision__frozen": "bf16", "parallel__strategy": "fsdp2",
        "launch__nodes": 1, "launch__gpus_per_node": 8,
    }  # fmt: skip
    weights = 2 * LLAMA_8B.parameters

    def sum_frozen(**changes: Any) -> int:
        return sum_parts(get_gpu(estimate(make_plan(**{**fields, **changes}), LLAMA_8B), "load"), "frozen parameters")

    assert sum_frozen() == weights // 8
    # FSDP2 makes its shards beside the state dict of the whole model, FSDP1 one unit after the other.
    assert sum_frozen(model__init_device="cuda") == weights + weights // 8
    assert sum_frozen(model__init_device="cuda", parallel__strategy="fsdp1") == weights


@pytest.mark.parametrize("version", [1, 2])
def test_fsdp_without_a_wrapping_policy_gathers_the_whole_model(version: int) -> None:
    job = make_plan(
        method__tuning="full", parallel__strategy=f"fsdp{version}", launch__nodes=1, launch__gpus_per_node=8,
        parallel__wrapping="root",
    )  # fmt: skip
    whole = get_gpu(estimate(job, LLAMA_8B), "forward")
    blocks = get_gpu(estimate(job.replace({"parallel.wrapping": "block"}), LLAMA_8B), "forward")
    assert sum_parts(whole, "gathered parameters") == pytest.approx(2 * LLAMA_8B.parameters, rel=0.001)
    assert sum_parts(blocks, "gathered parameters") < 0.5 * LLAMA_8B.parameters * 2


@pytest.mark.parametrize(
    ("version", "held", "wrapping", "units"),
    [
        (1, "fp32", "block", 1),
        (1, "fp32", "root", None),
        (1, "bf16", "block", 0),
        (2, "fp32", "block", 1),
        (2, "bf16", "block", 1),
        (2, "bf16", "root", None),
    ],
)
def test_fsdp_on_one_rank_copies_units_to_compute_with_them(
    version: int, held: str, wrapping: str, units: int | None
) -> None:
    job = make_plan(
        method__tuning="full", parallel__strategy=f"fsdp{version}", launch__nodes=1, launch__gpus_per_node=1,
        parallel__wrapping=wrapping, precision__params=held, precision__grads=held, precision__compute="bf16",
    )  # fmt: skip
    forward = get_gpu(estimate(job, LLAMA_8B), "forward")
    root = 2 * EMBEDDING
    unit = (LLAMA_8B.parameters - root) / LLAMA_8B.layers
    expected = LLAMA_8B.parameters if units is None else root + units * unit if units else 0
    assert sum_parts(forward, "gathered parameters") == pytest.approx(2 * expected, rel=0.01)


def test_one_rank_of_fsdp1_clones_the_model_to_save_all_of_it() -> None:
    job = make_plan(
        method__tuning="full", parallel__strategy="fsdp1", launch__nodes=1, launch__gpus_per_node=1,
        parallel__wrapping="block", precision__params="fp32", checkpoint__state_dict="full",
    )  # fmt: skip
    size = 4 * LLAMA_8B.parameters
    assert sum_parts(get_gpu(estimate(job, LLAMA_8B), "save"), "gathered parameters") == pytest.approx(size, rel=0.01)
    alone = job.replace({"checkpoint.model_only": True})
    assert sum_parts(get_gpu(estimate(alone, LLAMA_8B), "save"), "gathered parameters") < 0.2 * size


def test_the_whole_model_stays_in_the_cache_where_fsdp2_sharded_it() -> None:
    job = make_plan(
        method__tuning="lora", method__lora_rank=8, method__lora_targets=("q_proj",), precision__adapter="bf16",
        precision__frozen="bf16", parallel__strategy="fsdp2", launch__nodes=1, launch__gpus_per_node=8, batch__micro=1,
        sequence__length=128,
    )  # fmt: skip
    weights = 2 * LLAMA_8B.parameters
    apart = get_gpu(estimate(job, LLAMA_8B), "backward")
    whole = get_gpu(estimate(job.replace({"model.init_device": "cuda"}), LLAMA_8B), "backward")
    assert whole.allocated == apart.allocated
    assert apart.reserved + apart.cached < weights <= whole.reserved + whole.cached < 1.3 * weights


def test_weights_that_are_read_ahead_of_their_quantisation() -> None:
    """Allow all of them to wait in 16 bits; how many do depends on the disk."""
    job = make_plan(
        method__tuning="lora", method__lora_rank=8, method__lora_targets=("q_proj",), method__quantization="nf4",
        precision__adapter="fp32", precision__frozen="bf16",
    )  # fmt: skip
    waits = get_gpu(estimate(job, LLAMA_8B), "load")
    ahead = get_gpu(estimate(job.replace({"method.reads_ahead": True}), LLAMA_8B), "load")
    quantised = LLAMA_8B.parameters - 2 * EMBEDDING
    assert sum_parts(ahead, "frozen parameters") == pytest.approx(2 * LLAMA_8B.parameters, rel=0.001)
    assert ahead.allocated - waits.allocated == pytest.approx(1.5 * quantised, rel=0.05)
    assert ahead.low == waits.low
    assert ahead.high - waits.high == ahead.allocated - waits.allocated  # nothing else can wait


def test_a_published_load_that_reads_ahead_lies_in_the_interval() -> None:
    """Compare with Qwen2.5-7B in nf4 by transformers 5.3, without a context (huggingface/transformers#44576)."""
    model = find_entry("Qwen/Qwen2.5-7B-Instruct")
    assert model is not None
    job = make_plan(
        method__tuning="lora", method__lora_rank=8, method__lora_targets=("q_proj",), method__quantization="nf4",
        precision__adapter="fp32", precision__frozen="bf16", method__reads_ahead=True,
    )  # fmt: skip
    load = get_gpu(estimate(job, model), "load")
    others = load.expected - sum_parts(load, "frozen parameters")
    assert load.low - others < 13.47e9 < load.high - others
    assert sum_parts(load, "frozen parameters") == pytest.approx(13.47e9, rel=0.15)


@pytest.mark.parametrize(
    ("changes", "gathered"),
    [
        ({}, 2),
        ({"rollout.gathers": False}, 0),
        ({"rollout.engine": "vllm", "rollout.mode": "server"}, 0),
        ({"parallel.zero_stage": 2}, 0),
    ],
)
def test_training_code_that_generates_gathers_what_zero_3_sharded(changes: dict[str, Any], gathered: int) -> None:
    job = make_zero(3, 8, rollout__engine="hf", rollout__mode="colocate", rollout__gathers=True).replace(changes)
    phase = estimate(job, LLAMA_8B).find_phase("rollout")
    if not gathered:
        assert phase is None
        return
    assert phase is not None
    assert phase.gpu is not None
    assert sum_parts(phase.gpu, "gathered parameters") == gathered * LLAMA_8B.parameters


@pytest.mark.parametrize(
    ("changes", "whole"),
    [
        ({}, True),
        ({"precision.params": "bf16", "precision.grads": "bf16", "precision.compute": "bf16"}, False),
        ({"activations.attention": "flash"}, False),
        ({"sequence.packing": False, "sequence.padding": "longest"}, False),
    ],
)
def test_grouped_keys_in_fp32_get_no_kernel(changes: dict[str, Any], whole: bool) -> None:
    """Reproduce Llama-3.2-1B in fp32 without autocast, which ran out of memory on an H100 (`precision-1b-fp32`)."""
    job = make_plan(
        precision__params="fp32", precision__grads="fp32", precision__compute="fp32", precision__autocast=False,
        precision__master="none", activations__attention="sdpa", sequence__length=2048, batch__micro=4,
        sequence__packing=True, activations__checkpointing="none",
    )  # fmt: skip
    scores = 4 * 32 * 2048**2 * LLAMA_8B.layers * 4  # sequences, heads, scores, layers, bytes
    flash = sum_parts(
        get_gpu(estimate(job.replace({"activations.attention": "flash"}), LLAMA_8B), "forward"), "activations"
    )
    activations = sum_parts(get_gpu(estimate(job.replace(changes), LLAMA_8B), "forward"), "activations")
    assert (activations - flash > 0.99 * scores) is whole
