"""Values that DeepSpeed's engine derives from its settings."""

from __future__ import annotations

from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.deepspeed.lenses import HOST_FILLED_FIELDS, read_bool
from cfglint_train.frameworks.framework import Job
from cfglint_train.frameworks.lens import Auto, Config
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin


def find_deepspeed_config(job: Job) -> Config | None:
    """Return the DeepSpeed config of a job, which is its main file or a companion, or None."""
    return job.main if job.main.framework == "deepspeed" else job.companions.get("deepspeed")


def infer_engine(job: Job) -> None:
    """Infer the values that the engine derives under any host: effective offloading, number formats and reduction."""
    reading = job.plan
    stage = reading.get("parallel.zero_stage")
    if stage is not None:
        reading.infer("parallel.overlap_comm", stage == 3, f"the default of ZeRO stage {stage}")
        for field, stages, effective, note in _IGNORED_OFFLOADS:
            if stage in stages and reading.get(field) in ("cpu", "nvme") and reading.get(field) != effective:
                known_origin = reading.get_origin(field)
                place = None if known_origin is None else known_origin.place
                reading.put(
                    field, effective, Origin("inferred", place, note, "" if known_origin is None else known_origin.key)
                )
    if (reading.get("parallel.tensor") or 1) > 1:
        note = "AutoTP slices the embedding and the output matrix, and gathers the logits (auto_tp.py, 0.19.8)"
        reading.infer("parallel.split_vocabulary", "ends", note)
        reading.infer("parallel.sequence_parallel", False, "AutoTP does not split the sequence")
    config = find_deepspeed_config(job)
    autocast = config is not None and read_bool(config, "torch_autocast", "enabled") is True
    compute = reading.get("precision.compute")
    model_format = "fp32" if autocast else {"fp8": "bf16"}.get(str(compute), compute)
    if model_format is not None:
        _infer_formats(job, model_format)
    reading.put("precision.autocast", autocast, Origin("inferred", note="DeepSpeed casts the model itself"))
    if config is not None and config.has("optimizer") and reading.get("parallel.offload_optimizer") in ("cpu", "nvme"):
        known_origin = reading.get_origin("optimizer.name")
        if reading.get("optimizer.name") in ("adamw", "adam", "adagrad", "lion"):
            note = "DeepSpeed uses its CPU optimizer when states are offloaded"
            place = None if known_origin is None else known_origin.place
            reading.put("optimizer.implementation", "cpu", Origin("inferred", place, note))


_IGNORED_OFFLOADS: Final[tuple[tuple[Field, tuple[int, ...], str, str], ...]] = (
    ("parallel.offload_params", (0, 1, 2), "none", "offload_param is ignored below ZeRO stage 3"),
    ("parallel.offload_optimizer", (0,), "none", "offload_optimizer is ignored without ZeRO"),
    ("parallel.offload_optimizer", (1, 2), "cpu", "below ZeRO stage 3 nvme is treated as cpu"),
)


def _infer_formats(job: Job, model_format: str) -> None:
    reading = job.plan
    note = "DeepSpeed keeps the whole model in the run's dtype"
    reading.infer("precision.params", model_format, note)
    reading.infer("precision.grads", model_format, note)
    reading.infer("precision.frozen", model_format, note)
    if reading.trains_adapter:
        reading.infer("precision.adapter", model_format, note)
    reading.infer("parallel.communication", model_format, "gradients are reduced in the model's dtype")
    if model_format in ("bf16", "fp16"):
        reading.infer("precision.master", "fp32", "an fp32 copy for the optimizer")
    elif reading.get("parallel.zero_stage") in (1, 2, 3):
        # Stage 3 is meant to alias fp32 partitions, but compares a torch.device with a string, which is never equal.
        reading.infer("precision.master", "fp32", "ZeRO copies even fp32 weights for the optimizer")
    elif reading.get("parallel.zero_stage") is not None:
        reading.infer("precision.master", "none", "fp32 weights are their own master copy")


def infer(job: Job) -> None:
    """Infer the values of a DeepSpeed file without a host: "auto", number formats and batch sizes.

    If the file is a companion but the program that loads it is unknown, values that a host would fill in are unknown.
    DeepSpeed itself drops "auto".
    """
    reading = job.plan
    is_companion = job.main.role != "main"
    for field, value in list(reading):
        if isinstance(value.value, Auto):
            place, key = value.origin.place, value.origin.key
            if is_companion and field in HOST_FILLED_FIELDS:
                reading.put(
                    field, None, Origin("inferred", place, "auto, filled in by the program that reads this file", key)
                )
            else:
                note = "auto, but no program fills it in" if is_companion else "auto, which DeepSpeed ignores"
                reading.put(field, value.value.fallback, Origin("inferred", place, note, key))
    infer_engine(job)
    _infer_batches(job)


_BATCH_FIELDS: Final[tuple[Field, ...]] = ("batch.micro", "batch.accumulation", "batch.global_")


def _infer_batches(job: Job) -> None:
    # config.py _set_batch_related_parameters: two sizes determine the third; the micro or the global batch is enough.
    reading = job.plan
    ranks = reading.data_parallel
    micro, accumulation, global_batch = map(reading.get, _BATCH_FIELDS)
    is_waiting = any(
        (origin := reading.get_origin(field)) is not None and "waits" in origin.note for field in _BATCH_FIELDS
    )
    if ranks is None or is_waiting or (micro is None and global_batch is None):
        return
    note = "train_batch_size = micro batch x accumulation x data-parallel ranks"
    if accumulation is None:
        accumulation = max(1, global_batch // micro // ranks) if global_batch and micro else 1
        reading.infer("batch.accumulation", accumulation, note)
    if micro is None:
        reading.infer("batch.micro", max(1, global_batch // ranks // accumulation), note)
    if global_batch is None:
        reading.infer("batch.global_", micro * accumulation * ranks, note)
