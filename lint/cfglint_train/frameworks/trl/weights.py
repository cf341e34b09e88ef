"""Placement and number formats of the weights in runs of TRL and the HF Trainer.

Sources: transformers 4.57.1 and 5.8.0 (`modeling_utils.py`, `trainer.py`); accelerate 1.15.0; peft 0.17
(`tuners/tuners_utils.py`, `utils/other.py`); trl 0.9.6 to 1.16.0 (`trainer/*_trainer.py`, `__init__`).
"""

from __future__ import annotations

from cfglint_train.documents.document import Unknown
from cfglint_train.frameworks.framework import Job
from cfglint_train.frameworks.hf_trainer import fsdp
from cfglint_train.frameworks.hf_trainer.infer import (
    infer_mixed_precision,
    infer_plain_strategy,
    infer_published_quantization,
    infer_states,
)
from cfglint_train.frameworks.lens import is_before
from cfglint_train.frameworks.trl.clues import LAUNCHER_FILES
from cfglint_train.frameworks.trl.dtype import find_dtype, find_dtype_key
from cfglint_train.frameworks.trl.settings import find_trainer
from cfglint_train.plan.choices import FSDP
from cfglint_train.plan.origin import Origin


def infer_placement(job: Job, is_precision_stated: bool) -> None:
    """Infer the parallel strategy and mixed precision.

    `is_precision_stated`: the config's own settings decide mixed precision, so the launcher's setting is ignored.
    """
    infer_mixed_precision(job, stated=is_precision_stated)
    _infer_unread_launcher(job)
    infer_plain_strategy(job)


def _infer_unread_launcher(job: Job) -> None:
    """Mark the sharding as unknown if the file that `trl` passes to its launcher cannot be determined."""
    config = job.main
    key = next((key for key in LAUNCHER_FILES if isinstance(config.get(key), Unknown)), None)
    if key is not None and job.plan.get_origin("parallel.strategy") is None:
        note = f"how `{key}` shards the model cannot be determined"
        job.plan.put("parallel.strategy", None, Origin("explicit", config.get_origin(key).place, note, key))


def infer_weights(job: Job) -> None:
    """Infer number formats, sharding, optimizer states and the batch."""
    plan = job.plan
    loaded, origin = find_dtype(job)
    plan.infer("model.dtype", loaded, f"`{origin.key or 'dtype'}`, or the default of TRL and transformers")
    infer_published_quantization(job)
    is_off = plan.get("precision.compute") is None and plan.get("precision.autocast") is False
    if is_off and plan.get("parallel.strategy") == "zero" and loaded == "fp32":
        note = "neither bf16 nor fp16: DeepSpeed keeps the dtype of the weights"
        plan.put("precision.compute", loaded, Origin("inferred", note=note, framework=job.main.framework))
    infer_states(job, _infer_formats, _infer_loaded)


def _infer_formats(job: Job) -> None:
    """Infer the number formats of runs without DeepSpeed."""
    plan = job.plan
    strategy, compute = plan.get("parallel.strategy"), plan.get("precision.compute")
    autocast = plan.get("precision.autocast")
    loaded, origin = find_dtype(job)
    key = origin.key or "dtype"
    stated_dtype = job.main.get(find_dtype_key(job.main))
    if loaded is None and isinstance(stated_dtype, str) and stated_dtype != "auto":
        unknown_origin = origin._replace(note=f"`{key}` is `{stated_dtype}`, an unknown dtype")
        plan.put("precision.params", None, unknown_origin)
    if compute is None and autocast is False:
        plan.infer("precision.compute", loaded, "no mixed precision: the dtype of the weights")
    sharded = fsdp.is_upcasting_trained(job)
    trained = "fp32" if sharded else loaded
    note = (
        "accelerate casts trained weights to fp32 for FSDP" if sharded else f"`{key}`, the dtype of the loaded weights"
    )
    quantised = plan.get("method.quantization") not in (None, "none")
    plan.infer("precision.params", trained, note)
    plan.infer("precision.grads", trained, note)
    casts_all = strategy == "fsdp2" and bool(autocast) and fsdp.is_upcasting_frozen(job)
    if casts_all and not quantised:
        plan.infer("precision.frozen", "fp32", "accelerate casts the whole model to fp32 for FSDP2")
    else:
        plan.infer("precision.frozen", loaded, f"`{key}`, the dtype of the loaded weights")
    plan.infer("precision.master", "none", "no second copy of the trained weights")
    if quantised and _is_kbit_prepared(job):
        note = "prepare_model_for_kbit_training casts unquantised weights to fp32"
        plan.infer("model.embeddings_fp32", True, note)
    if plan.trains_adapter:
        # PEFT creates adapters of 16-bit models in fp32; TRL casts adapters of quantized models to bf16.
        half = quantised and autocast and compute == "bf16" and find_trainer(job.main) is not None
        note = "TRL casts adapters of quantised models to bf16" if half else "PEFT keeps adapters in fp32"
        adapter_format = "bf16" if half else "fp32"
        plan.infer("precision.adapter", adapter_format, note)
        plan.infer("precision.grads", adapter_format, "gradients have the dtype of their weights")


def _is_kbit_prepared(job: Job) -> bool:
    """Return whether the trainer prepares quantized models with PEFT's `prepare_model_for_kbit_training`.

    SFT and reward do so up to 0.21, DPO up to 0.28, KTO up to 0.27, and ORPO and CPO always.
    """
    config = job.main
    trainer = find_trainer(config) or ""
    limit = {"sft": "0.22", "reward": "0.22", "dpo": "0.29", "kto": "0.28"}.get(trainer, "0")
    return trainer in ("orpo", "cpo") or is_before(config, limit)


def _infer_loaded(job: Job) -> None:
    """Infer the format of the weights that every GPU holds before DeepSpeed or FSDP shards them."""
    plan = job.plan
    strategy = plan.get("parallel.strategy")
    if strategy is None or (strategy == "zero" and plan.get("parallel.zero_stage") is None):
        return
    sharded = plan.get("parallel.zero_stage") == 3 or (
        strategy in FSDP and plan.get("parallel.cpu_efficient_loading") is True
    )
    quantization = plan.get("method.quantization")
    if sharded and strategy == "zero" and quantization not in (None, "none"):
        # transformers uses zero.Init only for models that are not quantized (modeling_utils.py; huggingface/trl#4100).
        plan.infer("precision.loaded", quantization, "ZeRO-3 shards a quantised model after loading it whole")
    elif sharded:
        launcher = job.companions.get("accelerate")
        published = job.architecture.dtype if job.architecture is not None else None
        loads_whole = launcher is not None and launcher.get("deepspeed_config", "zero3_init_flag") is False
        if loads_whole and find_dtype(job)[0] == "fp32" and published in ("bf16", "fp16"):
            # accelerate 1.15.0 utils/dataclasses.py (set_deepspeed_weakref): from_pretrained is not aware of ZeRO-3,
            # and each rank holds fp32 copies. Weights in the checkpoint's dtype may stay mapped, shared by the ranks.
            note = "`zero3_init_flag: false`: each rank loads the model on its host"
            plan.infer("model.init_device", "cpu", note)
        plan.infer("precision.loaded", "none", "weights are sharded as they are read, or stay on the host")
    else:
        plan.infer("precision.loaded", find_dtype(job)[0], "weights are moved to the GPU as they are loaded")
