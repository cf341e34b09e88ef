"""Random plans, drawn from choices that reach every branch of the memory model."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from cfglint_train.hardware.catalogue import Hardware
from cfglint_train.memory.budget import Budget, Estimate
from cfglint_train.memory.estimate import estimate
from cfglint_train.models import lookup
from cfglint_train.models.architecture import Architecture
from cfglint_train.plan.fields import Plan, Role
from cfglint_train.plan.names import Field

MODELS = (
    "meta-llama/Llama-3.1-8B",
    "meta-llama/Llama-3.2-1B",
    "Qwen/Qwen2.5-7B",
    "mistralai/Mixtral-8x7B-v0.1",
    "Qwen/Qwen3-30B-A3B",
    "google/gemma-2-9b",
    "Qwen/Qwen2.5-VL-7B-Instruct",
    "openai-community/gpt2",
    "deepseek-ai/DeepSeek-V2-Lite",
    "openai/gpt-oss-20b",
)
HARDWARE = (None, Hardware(gpu_bytes=80 * 2**30))

_ROLES = tuple(
    Role(name, None, trained, 1, 8, "all")
    for name, trained in (("actor", True), ("critic", True), ("reference", False))
)

# Values that occur more than once are drawn more often.
CHOICES: dict[Field, tuple[Any, ...]] = {
    "method.tuning": (
        "full",
        "full",
        "full",
        "lora",
        "lora",
        "freeze",
        "ia3",
        "oft",
        "vera",
        "adalora",
        "prompt_tuning",
        "prefix_tuning",
        "ln_tuning",
        "hra",
    ),
    "method.stage": ("sft", "sft", "pretrain", "dpo", "rm", "ppo", "kto", "grpo", None),
    "method.lora_rank": (8, 64, None),
    "method.lora_targets": ((), ("all-linear",), ("q_proj", "v_proj")),
    "method.lora_modules_to_save": ((), ("lm_head", "embed_tokens")),
    "method.lora_dora": (None, True),
    "method.lora_dropout": (None, 0.1),
    "method.quantization": ("none", "none", "nf4", "int8", "gptq", None),
    "method.double_quantization": (None, True),
    "method.lora_kernels": (None, None, True),
    "method.lora_kernel_parts": (None, ("mlp",), ("qkv", "o")),
    "method.keeps_inputs": (None, None, True),
    "method.reads_ahead": (None, None, True),
    "method.reference_model": (None, "full"),
    "method.reference_offload": (None, True),
    "method.virtual_tokens": (16,),
    "method.block_size": (32, None),
    "method.trainable_layers": (2, None),
    "method.active_layers": (None, None, 2),
    "model.host_experts": (None, None, True),
    "model.dtype": (None, None, "bf16"),
    "model.embeddings_fp32": (None, True),
    "model.roles": ((), (), _ROLES),
    "model.init_device": (None, "cpu", "meta", "cuda"),
    "parallel.cpu_efficient_loading": (None, True, False),
    "precision.params": ("bf16", "bf16", "fp32"),
    "precision.compute": ("bf16", "bf16", "fp32", "fp8"),
    "precision.autocast": (False, True),
    "precision.grads": ("bf16", "fp32", None),
    "precision.master": ("none", "fp32"),
    "precision.experts": (None, None, "fp32"),
    "precision.adapter": ("fp32", "bf16"),
    "precision.accumulation": (None, "fp32"),
    "precision.loaded": (None, "fp32"),
    "optimizer.name": (
        "adamw",
        "adamw",
        "adamw",
        "adamw",
        "adamw",
        "adamw",
        "adamw",
        "adamw",
        "adamw",
        "adamw",
        "adamw",
        "adafactor",
        "came",
        "lion",
        "sgd",
        "muon",
        "adam_mini",
        "galore_adamw",
        "galore_adamw_layerwise",
        "apollo_adamw",
        "adalomo",
        "badam",
        "schedule_free_adamw",
        "stable_adamw",
        "prodigy",
        "unknown_one",
    ),
    "optimizer.implementation": ("fused", "foreach", "single", "custom"),
    "optimizer.state_bits": (None, 8, 32, 32),
    "optimizer.embedding_bits": (None, 32),
    "optimizer.rank": (128,),
    "optimizer.paged": (None, True, False),
    "batch.micro": (1, 2, 8),
    "batch.accumulation": (1, 4, None),
    "batch.eval_micro": (None, 1, 8),
    "batch.pairs": (None, True),
    "batch.tokens_per_gpu": (None, None, None, 16384),
    "sequence.length": (256, 2048, 8192),
    "sequence.packing": (True, False),
    "sequence.padding": (None, "max_length", "none"),
    "activations.attention": ("eager", "sdpa", "flash", None),
    "activations.checkpointing": ("none", "full", "full", "selective", "selective_ops", "every_n", "budget"),
    "activations.every": (2,),
    "activations.of": (1,),
    "activations.budget": (0.5,),
    "activations.reentrant": (True, False),
    "activations.offload": (None, "cpu", "none"),
    "activations.fused_loss": (
        "none",
        "none",
        "liger",
        "cce",
        "chunked",
        "triton",
        "log_softmax",
        "rows",
        "rows_in_place",
        "row_kernel",
        "odds",
        "odds_rows",
        "odds_kernel",
        "tiles",
        "checkpointed",
        "checkpointed_half",
        "compiled_shifted",
        "chunked_logits",
        "liger_pairs",
        "liger_distilled",
        None,
    ),
    "activations.liger_layers": (None, True),
    "activations.liger_parts": (None, ("norm",), ("rotary", "mlp")),
    "activations.compile": (None, None, True),
    "activations.compiled_model": (None, True),
    "activations.compiled_loss": (None, True),
    "activations.compiled_head": (None, True),
    "activations.fused_evaluation": (None, True),
    "activations.keeps_outputs": (None, True),
    "activations.passing_logits": (None, None, 16, 6),
    "activations.scored_tokens": (None, None, 64),
    "parallel.strategy": ("none", "ddp", "zero", "zero", "zero", "fsdp1", "fsdp2"),
    "parallel.zero_stage": (0, 1, 2, 3, 3),
    "parallel.offload_optimizer": ("none", "none", "cpu"),
    "parallel.offload_params": ("none", "none", "cpu"),
    "parallel.pin_memory": (None, False),
    "parallel.reduce_bucket": (None, 1, 10000000, 500000000),
    "parallel.overlap_comm": (None, True),
    "parallel.reduce_scatter": (None, False),
    "parallel.prefetch_bucket": (None, 50000000),
    "parallel.persistence_threshold": (None, 100000),
    "parallel.max_live_parameters": (None, 1000000000),
    "parallel.sub_group": (None, 1000000000, 1000000000000),
    "parallel.secondary_partition": (None, None, 8),
    "parallel.quantized_gather": (None, None, True),
    "parallel.quantized_frozen": (None, None, True),
    "parallel.wrapping": (None, "block", "root", "block_and_size"),
    "parallel.reshard_after_forward": (None, False),
    "parallel.sharding": (None, "full_shard", "shard_grad_op", "hybrid_shard", "no_shard"),
    "parallel.communication": (None, "bf16"),
    "parallel.defers_reduction": (None, None, True),
    "parallel.tensor": (None, None, None, 2, 4),
    "parallel.pipeline": (None, None, None, 2),
    "parallel.context": (None, None, 2),
    "parallel.expert": (None, None, None, 2),
    "parallel.sequence_parallel": (None, True),
    "parallel.split_vocabulary": (None, "ends", "all", "head"),
    "parallel.schedule": (None, "gpipe", "interleaved_1f1b"),
    "launch.nodes": (1, 4),
    "launch.gpus_per_node": (1, 8),
    "checkpoint.strategy": ("no", "steps", "steps"),
    "checkpoint.state_dict": ("full", "sharded", None),
    "checkpoint.gather": (True, False),
    "checkpoint.keep": (None, 2),
    "checkpoint.model_only": (None, True),
    "checkpoint.checkpointer": (None, None, None, None, None, "olmo_core", "torch_legacy", "local"),
    "checkpoint.interval_unsharded": (None, None, 1000),
    "checkpoint.resume_latest": (None, True),
    "data.workers": (None, 4),
    "rollout.engine": (None, None, "vllm", "hf"),
    "rollout.gathers": (None, True),
    "rollout.mode": ("colocate",),
    "rollout.utilization": (0.4, None),
    "rollout.sleep": (None, True),
    "rollout.awake_at_save": (None, True),
    "rollout.tensor": (None, 2),
    "rollout.expert": (None, 4),
    "rollout.train_sleep": (None, True),
    "rollout.weights_sleep": (None, True),
    "rollout.sleep_discards": (None, True),
    "rollout.wakes_first": (None, True),
    "rollout.includes_training": (None, True),
    "rollout.sync_bucket": (None, 0, 2**30),
    "checkpoint.frozen": (None, True),
    "checkpoint.hf_export": (None, True),
}


def make_plans(count: int, seed: int = 7) -> Iterator[Plan]:
    """Yield `count` plans, the same ones for the same seed."""
    chances = {field: random.Random(f"{seed} {field}") for field in CHOICES}  # a new field does not change other draws
    for _ in range(count):
        values_by_field = {field: chances[field].choice(values) for field, values in CHOICES.items()}
        yield Plan().replace({field: value for field, value in values_by_field.items() if value is not None})


def make_cases(count: int, seed: int = 7) -> Iterator[tuple[Plan, Architecture, Hardware | None]]:
    """Yield these plans with the models in turn, with and without a known GPU."""
    for index, plan in enumerate(make_plans(count, seed)):
        architecture = lookup.find_entry(MODELS[index % len(MODELS)])
        assert architecture is not None
        yield plan, architecture, HARDWARE[index % len(HARDWARE)]


def make_estimates(count: int, seed: int = 7) -> Iterator[Estimate]:
    """Yield the estimates of these plans."""
    return (estimate(*case) for case in make_cases(count, seed))


def list_budgets(estimate_: Estimate) -> Iterator[Budget]:
    """Yield all budgets of an estimate."""
    for phase in estimate_.phases:
        yield from (budget for budget in (phase.gpu, phase.host, phase.disk) if budget is not None)
