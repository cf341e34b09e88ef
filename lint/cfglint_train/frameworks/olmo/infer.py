"""Values that OLMo derives from a configuration."""

from __future__ import annotations

from cfglint_train.frameworks.framework import Job
from cfglint_train.plan.origin import Origin


def infer(job: Job) -> None:
    """Infer number formats, shard groups, accumulation, and the micro batch if the batch per device is smaller."""
    reading = job.plan
    strategy = reading.get("parallel.strategy")
    note = "torch.autocast over fp32 weights; gradients are cast back to the dtype of the weights"
    if strategy in ("fsdp1", "ddp", "none"):
        reading.infer("precision.params", "fp32", note)
        reading.infer("precision.grads", "fp32", note)
        reading.infer("precision.master", "none", "the weights themselves are fp32")
        reading.infer("optimizer.state_bits", 32, "optimizer states have the dtype of the fp32 weights")
    compute = reading.get("precision.compute")
    if compute is not None:
        reading.infer("precision.autocast", compute != "fp32", "Trainer.train_batch")
    if strategy == "ddp":
        reading.infer("parallel.communication", "fp32", "DDP reduces gradients in their own dtype")
    _infer_shards(job)
    _infer_batch(job)


def _infer_shards(job: Job) -> None:
    reading = job.plan
    sharding, plan = reading.get("parallel.sharding"), reading.build_plan()
    if sharding is None:
        return
    reading.infer(
        "parallel.reshard_after_forward",
        sharding in ("full_shard", "hybrid_shard"),
        "torch's FSDP keeps weights gathered with SHARD_GRAD_OP, _HYBRID_SHARD_ZERO2 and NO_SHARD",
    )
    is_hybrid = sharding.startswith("hybrid")
    if not is_hybrid:
        # The key only applies to hybrid sharding.
        reading.put(
            "parallel.replicas", 1 if sharding != "no_shard" else plan.world_size, Origin("inferred", note=sharding)
        )
    else:
        reading.infer("parallel.replicas", plan.launch.nodes, "hybrid sharding: one replica per node")
    replicas = reading.get("parallel.replicas")
    if plan.world_size and replicas and plan.world_size % replicas == 0:
        reading.infer("parallel.shard_size", plan.world_size // replicas, "ranks / replicas")


def _infer_batch(job: Job) -> None:
    reading = job.plan
    world, global_batch, micro = reading.world_size, reading.get("batch.global_"), reading.get("batch.micro")
    if not world or not global_batch or not micro or global_batch < world:
        return
    device_batch = global_batch // world
    if device_batch < micro:
        # Trainer.split_batch does not split a batch that is no larger than the micro batch.
        note = (
            f"global batch {global_batch} / {world} ranks leaves {device_batch} per rank, below "
            "device_train_microbatch_size"
        )
        origin = reading.get_origin("batch.micro")
        reading.put("batch.micro", device_batch, Origin("inferred", origin.place if origin else None, note))
        micro = device_batch
    reading.infer("batch.accumulation", -(-device_batch // micro), "sequences per rank / micro batch")
