"""Values that LLaMA-Factory v1 derives from a configuration and its companions."""

from __future__ import annotations

from cfglint_train.foundation.typed import Any
from cfglint_train.frameworks.framework import Job
from cfglint_train.frameworks.hf_trainer import fsdp, optimizers
from cfglint_train.frameworks.hf_trainer.infer import fill_auto, infer_batch, infer_zero
from cfglint_train.plan.names import Field


def fill_v1_auto(job: Job, field: Field) -> Any:
    """Return the value that v1 and accelerate's plugin fill in for "auto": bf16, and clipping at 1.

    All other fields are filled in as under the Trainer.
    """
    if field == "precision.compute":
        return "bf16"
    if field == "optimizer.clipping":
        return 1.0
    return fill_auto(job, field)


def infer(job: Job) -> None:
    """Infer the strategy, number formats, checkpoint contents and batch sizes."""
    config, reading = job.main, job.plan
    world = reading.world_size
    if reading.get_origin("parallel.strategy") is None and config.get("dist_config") is None and world is not None:
        reading.infer("parallel.strategy", "ddp" if world > 1 else "none", "no dist_config")
    reading.infer("activations.reentrant", False, "v1 checkpoints without re-entering autograd")
    reading.infer("activations.offload", "none", "v1 keeps checkpoints on the GPU")
    reading.infer("checkpoint.final", True, "the model is saved at the end")
    reading.infer("checkpoint.model_only", False, "checkpoints contain the optimizer")
    if reading.get("parallel.strategy") == "zero":
        infer_zero(job)
    elif reading.get("parallel.strategy") is not None:
        _infer_formats(job)
    _infer_accumulation(job)
    fsdp.infer_fsdp(job)
    if reading.get("parallel.strategy") == "fsdp2":
        reading.infer("parallel.communication", "fp32", "fsdp2.py: reduce_dtype is float32")
    optimizers.infer_optimizer_state(job)
    infer_batch(job)


def _infer_formats(job: Job) -> None:
    config, reading = job.main, job.plan
    checkpoint_format = job.architecture.dtype if job.architecture is not None else None
    is_full = reading.get("method.tuning") == "full"
    is_fsdp2 = reading.get("parallel.strategy") == "fsdp2"
    trained_format = "fp32" if is_full or reading.get("method.tuning") == "freeze" else checkpoint_format
    if is_fsdp2:
        # `bf16` only sets FSDP's mixed precision; without FSDP, nothing casts the weights.
        if config.get("bf16", default=True) is True:
            reading.infer("precision.compute", "bf16", "bf16 is FSDP2's mixed precision")
        else:
            reading.put("precision.compute", "fp32", config.get_origin("bf16"))
    else:
        reading.infer(
            "precision.compute", "fp32" if is_full else checkpoint_format, "without FSDP nothing casts the weights"
        )
    reading.infer("precision.autocast", False, "v1 does not autocast")
    reading.infer("precision.params", trained_format, "v1 trains fp32 weights")
    reading.infer("precision.grads", trained_format, "v1 trains fp32 weights")
    reading.infer("precision.frozen", checkpoint_format, "the checkpoint's dtype")
    reading.infer("precision.master", "none", "no second copy of the trained weights")
    if reading.trains_adapter:
        reading.infer("precision.adapter", "fp32", "PEFT creates adapters of 16-bit models in fp32")
        reading.infer("precision.grads", "fp32", "gradients have the dtype of their weights")


def _infer_accumulation(job: Job) -> None:
    # core/utils/batching.py: one micro batch unless a global batch requires more.
    reading = job.plan
    micro, global_batch, ranks = reading.get("batch.micro"), reading.get("batch.global_"), reading.data_parallel
    if global_batch is None and job.main.get("global_batch_size") is None:
        reading.infer("batch.accumulation", 1, "no global_batch_size")
    elif micro and global_batch and ranks and global_batch % (micro * ranks) == 0:
        reading.infer(
            "batch.accumulation", global_batch // (micro * ranks), "global_batch_size / (micro batch x ranks)"
        )
