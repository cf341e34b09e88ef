"""Where the weights of a model are that transformers loads for its Trainer, and in which number formats.

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
from cfglint_train.frameworks.lens import before
from cfglint_train.frameworks.trl.clues import LAUNCHER_FILES
from cfglint_train.frameworks.trl.dtype import dtype_key, dtype_of
from cfglint_train.frameworks.trl.settings import trainer_of
from cfglint_train.plan.choices import FSDP
from cfglint_train.plan.origin import Origin


def infer_placement(job: Job, stated: bool) -> None:
    """The strategy, and mixed precision. `stated`: the settings say whether there is any."""
    infer_mixed_precision(job, stated=stated)
    _infer_unread_launcher(job)
    infer_plain_strategy(job)


def _infer_unread_launcher(job: Job) -> None:
    """Nothing is known of what shards the model where the file that `trl` gives its launcher cannot be determined."""
    config = job.main
    key = next((key for key in LAUNCHER_FILES if isinstance(config.get(key), Unknown)), None)
    if key is not None and job.reading.origin("parallel.strategy") is None:
        note = f"how `{key}` shards the model cannot be determined"
        job.reading.put("parallel.strategy", None, Origin("explicit", config.origin(key).place, note, key))


def infer_weights(job: Job) -> None:
    """Number formats, what is sharded when, the optimizer's states, and the batch."""
    reading = job.reading
    loaded, origin = dtype_of(job)
    reading.infer("model.dtype", loaded, f"`{origin.key or 'dtype'}`, or what TRL and transformers take without it")
    infer_published_quantization(job)
    infer_states(job, _infer_formats, _infer_loaded)


def _infer_formats(job: Job) -> None:
    """Number formats without DeepSpeed."""
    reading = job.reading
    strategy, compute = reading.get("parallel.strategy"), reading.get("precision.compute")
    autocast = reading.get("precision.autocast")
    loaded, origin = dtype_of(job)
    key = origin.key or "dtype"
    stated = job.main.get(dtype_key(job.main))
    if loaded is None and isinstance(stated, str) and stated != "auto":
        unknown = origin._replace(note=f"`{key}` is `{stated}`, which is no number format that is known")
        reading.put("precision.params", None, unknown)
    if compute is None and autocast is False:
        reading.infer("precision.compute", loaded, "no mixed precision: the format of the weights")
    sharded = strategy in FSDP and bool(autocast)
    trained = "fp32" if sharded else loaded
    note = "accelerate casts what FSDP trains to fp32" if sharded else f"`{key}`, in which the weights are loaded"
    quantised = reading.get("method.quantization") not in (None, "none")
    reading.infer("precision.params", trained, note)
    reading.infer("precision.grads", trained, note)
    whole = strategy == "fsdp2" and bool(autocast) and fsdp.upcasts_frozen(job)
    if whole and not quantised:
        reading.infer("precision.frozen", "fp32", "accelerate casts the whole model to fp32 for FSDP2")
    else:
        reading.infer("precision.frozen", loaded, f"`{key}`, in which the weights are loaded")
    reading.infer("precision.master", "none", "no copy beside the trained weights")
    if quantised and _prepares(job):
        note = "prepare_model_for_kbit_training casts what is not quantised to fp32"
        reading.infer("model.embeddings_fp32", True, note)
    if reading.trains_adapter:
        # PEFT makes adapters of 16-bit models in fp32; TRL casts those of quantised models to bf16.
        half = quantised and autocast and compute == "bf16" and trainer_of(job.main) is not None
        note = "TRL casts adapters of quantised models to bf16" if half else "PEFT keeps adapters in fp32"
        held = "bf16" if half else "fp32"
        reading.infer("precision.adapter", held, note)
        reading.infer("precision.grads", held, "autograd makes gradients in the format of their weights")


def _prepares(job: Job) -> bool:
    """Whether the trainer prepares quantised models as PEFT does: SFT and reward up to 0.21, DPO up to 0.28, KTO up to
    0.27, ORPO and CPO always.
    """
    config = job.main
    trainer = trainer_of(config) or ""
    until = {"sft": "0.22", "reward": "0.22", "dpo": "0.29", "kto": "0.28"}.get(trainer, "0")
    return trainer in ("orpo", "cpo") or before(config, until)


def _infer_loaded(job: Job) -> None:
    """What stands on every GPU before DeepSpeed or FSDP shards it."""
    reading = job.reading
    strategy = reading.get("parallel.strategy")
    if strategy is None or (strategy == "zero" and reading.get("parallel.zero_stage") is None):
        return
    sharded = reading.get("parallel.zero_stage") == 3 or (
        strategy in FSDP and reading.get("parallel.cpu_efficient_loading") is True
    )
    quantization = reading.get("method.quantization")
    if sharded and strategy == "zero" and quantization not in (None, "none"):
        # transformers leaves zero.Init to models that are not quantised (modeling_utils.py; huggingface/trl#4100).
        reading.infer("precision.loaded", quantization, "ZeRO-3 shards a quantised model after it was loaded whole")
    elif sharded:
        launcher = job.companions.get("accelerate")
        published = job.architecture.dtype if job.architecture is not None else None
        whole = launcher is not None and launcher.get("deepspeed_config", "zero3_init_flag") is False
        if whole and dtype_of(job)[0] == "fp32" and published in ("bf16", "fp16"):
            # accelerate 1.15.0 utils/dataclasses.py (set_deepspeed_weakref): from_pretrained does not know of ZeRO-3,
            # and each rank holds fp32 copies. Weights in the files' own format may stay mapped, which ranks share.
            note = "`zero3_init_flag: false`: each rank loads the model on its host"
            reading.infer("model.init_device", "cpu", note)
        reading.infer("precision.loaded", "none", "weights are sharded as they are read, or wait on the host")
    else:
        reading.infer("precision.loaded", dtype_of(job)[0], "the weights are moved to the GPU as they are loaded")
