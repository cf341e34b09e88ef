"""Values that OLMo-core derives from a configuration."""

from __future__ import annotations

from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.framework import Job
from cfglint_train.frameworks.olmo_core.settings import find_first, is_before, parse_dtype


def infer(job: Job) -> None:
    """Infer number formats, compilation, shard groups, accumulation and the evaluation batch."""
    reading = job.plan
    strategy = reading.get("parallel.strategy")
    model_dtype = parse_dtype(find_first(job.main, "model.dtype")) or "fp32"
    if strategy == "ddp":
        # apply_ddp casts the model itself: no fp32 copy of the weights remains.
        weight_format = (
            parse_dtype(find_first(job.main, "train_module.dp_config.param_dtype", "model.dp_config.param_dtype"))
            or model_dtype
        )
        note = "DDP casts the model itself to param_dtype (apply_ddp)"
    else:
        weight_format, note = model_dtype, "FSDP keeps its shards in the model's dtype"
    if strategy is not None:
        reading.infer("precision.params", weight_format, note)
        reading.infer("precision.grads", weight_format, note)
        reading.infer("precision.master", "none", "no second copy of the trained weights")
        bits = {"fp32": 32, "bf16": 16, "fp16": 16}.get(weight_format)
        reading.infer("optimizer.state_bits", bits, "optimizer states have the dtype of the weights")
        reading.infer("parallel.communication", "fp32", "reduce_dtype is float32 by default")
    if (reading.get("parallel.tensor") or 1) > 1:
        reading.infer(
            "parallel.sequence_parallel", True, "Transformer.apply_tp splits the sequence outside the matrices"
        )
        reading.infer("parallel.split_vocabulary", "all", "Transformer.apply_tp splits embedding, head and logits")
    if reading.get("activations.compile") and not is_before(job.main, "2.0.0"):
        # Before 2.0, `trainer.compile_loss` compiles the loss.
        reading.infer("activations.compiled_head", True, "Transformer.apply_compile compiles the output layer")
    _infer_shards(job)
    reading.infer("batch.eval_micro", reading.get("batch.micro"), "evaluators use rank_microbatch_size")
    micro, total, ranks = reading.get("batch.micro"), reading.get("batch.global_"), reading.data_parallel
    if micro and total and ranks and total % (micro * ranks) == 0:
        reading.infer("batch.accumulation", total // (micro * ranks), "global batch / (micro batch x ranks)")


_DEGREES: Final = ("parallel.replicas", "parallel.shard_size")


def _infer_shards(job: Job) -> None:
    """Infer replicas and shard size: one replica per node unless a degree is stated.

    Source: data_parallel.get_replicate_and_shard_degree.
    """
    reading = job.plan
    plan = reading.build_plan()
    sharding, ranks = reading.get("parallel.sharding"), plan.data_parallel
    if sharding is None or ranks is None:
        return
    if sharding == "full_shard":
        reading.infer("parallel.replicas", 1, "fsdp shards over all ranks")
        reading.infer("parallel.shard_size", ranks, "fsdp shards over all ranks")
        return
    replicas, shard_size = reading.get("parallel.replicas"), reading.get("parallel.shard_size")
    if any(field in reading.values and reading.get(field) is None for field in _DEGREES):
        # A degree is stated but cannot be determined.
        return
    if replicas is None and shard_size is None:
        replicas = plan.launch.nodes
    if replicas is None and shard_size and ranks % shard_size == 0:
        reading.infer("parallel.replicas", ranks // shard_size, "ranks / shard_degree")
    elif replicas and shard_size is None and ranks % replicas == 0:
        reading.infer("parallel.replicas", replicas, "one replica per node")
        reading.infer("parallel.shard_size", ranks // replicas, "ranks / replicas")
