"""Inference for runs of the HF Trainer and accelerate."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cfglint_train.documents.document import MISSING
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks.framework import Job
from cfglint_train.frameworks.hf_trainer import fsdp, optimizers
from cfglint_train.frameworks.registry import list_frameworks
from cfglint_train.models.names import QUANTIZATIONS
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin

if TYPE_CHECKING:
    from cfglint_train.frameworks.hf_trainer.trl_losses import TrlLoss


def infer_batch(job: Job) -> None:
    """Infer the global batch if the micro batch, accumulation and data-parallel ranks are known."""
    reading = job.plan
    micro, accumulation = reading.get("batch.micro"), reading.get("batch.accumulation")
    ranks = reading.data_parallel
    if micro and accumulation and ranks:
        reading.infer(
            "batch.global_",
            micro * accumulation * ranks,
            "micro batch x accumulation x data-parallel ranks",
        )


def infer_mixed_precision(job: Job, stated: bool) -> None:
    """Apply the launch's mixed precision unless the Trainer's own `bf16` or `fp16` is `stated`.

    If neither is set, TrainingArguments reads ACCELERATE_MIXED_PRECISION (5.8.0, section 5 of `__post_init__`).
    """
    companion, reading = job.companions.get("accelerate"), job.plan
    if companion is None or stated or reading.get("parallel.strategy") == "zero":
        return
    launch_precision = companion.get("mixed_precision")
    if launch_precision in ("bf16", "fp16"):
        origin = Origin("inferred", companion.find_place("mixed_precision"), "the launch's mixed precision")
        reading.put("precision.compute", launch_precision, origin)
        reading.put("precision.autocast", True, origin)


# Mixture-of-experts models whose experts are separate linear layers in transformers 4 (4.57.1,
# models/*/modeling_*.py: ModuleList).
_LISTED_EXPERTS_TYPES: Final = frozenset((
    "deepseek", "deepseek_v2", "deepseek_v3", "dots1", "ernie4_5_moe", "flex_olmo", "glm4_moe", "glm4v_moe",
    "hunyuan_v1_moe", "jamba", "minimax", "mixtral", "olmoe", "phimoe", "qwen2_moe", "qwen3_moe", "qwen3_next",
))  # fmt: skip


def infer_experts(job: Job) -> None:
    """Infer whether experts are quantized: only transformers 4 stores the experts of most models as linear layers."""
    reading, model = job.plan, job.architecture
    if model is None or model.experts is None or model.model_type not in _LISTED_EXPERTS_TYPES:
        return
    field: Final = "method.quantized_experts"
    if reading.get("method.quantization") not in ("nf4", "fp4", "int8") or reading.get(field):
        return
    has_fused_experts = job.releases.is_at_least("transformers", "5.0")
    if has_fused_experts is False or _is_older_than_known(job):
        reading.put(field, True, Origin("inferred", note="transformers 4 stores experts as linear layers"))
    elif has_fused_experts and parse_release(job.releases.find_candidates("transformers").releases[0]) < parse_release(
        "5.0"
    ):
        note = "transformers 5, which leaves the experts in 16 bits; set transformers=RELEASE to be sure"
        reading.put(field, False, Origin("assumed", note=note))


_KNOWN_QUANTIZATIONS: Final = frozenset((*QUANTIZATIONS.values(), "int8"))

DEQUANTIZED_KINDS: Final[Mapping[str, str | None]] = {"mxfp4": "none", "fp8": None}
"""Published quantizations that transformers may not keep, with the quantization after loading (None: unknown).

transformers expands MXFP4 to 16 bits or rejects training. It does the same with FP8 if the GPU has no FP8 arithmetic
(5.23.0, quantizers/quantizer_mxfp4.py, quantizer_finegrained_fp8.py).
"""


def infer_published_quantization(
    job: Job, becomes: Mapping[str, str | None] = DEQUANTIZED_KINDS, overrides: bool = False
) -> None:
    """Infer the quantization from a checkpoint that is published quantized.

    The checkpoint's own `quantization_config` applies (transformers 5.23.0, quantizers/auto.py,
    merge_quantization_configs). `becomes`: the quantization after loading, for kinds that change; None means unknown.
    A kind that the plan cannot represent is unknown, too. `overrides`: the checkpoint's kind also replaces a
    quantization that the config requests.
    """
    model, reading = job.architecture, job.plan
    requested, requested_origin = reading.get("method.quantization"), reading.get_origin("method.quantization")
    if (
        model is None
        or model.quantization is None
        or (requested_origin is not None and requested_origin.kind == "user")
    ):
        return
    if requested != "none" and not overrides:
        return
    kind = becomes.get(model.quantization, model.quantization if model.quantization in _KNOWN_QUANTIZATIONS else None)
    model_origin = reading.get_origin("model.id")
    place, key = (None, "") if model_origin is None else (model_origin.place, model_origin.key)
    note = f"{model.id} is published in {model.quantization}"
    origin = Origin("inferred" if kind else "explicit", place, note, "" if kind else key)
    reading.put("method.quantization", kind, origin)
    if kind in ("nf4", "fp4"):
        # As in unsloth, which published most of these checkpoints (unsloth 2025.9.1 models/llama.py, from_pretrained).
        reading.put("method.double_quantization", True, Origin("inferred", place, note))


def infer_kept_inputs(job: Job) -> None:
    """Infer that bitsandbytes keeps inputs of frozen 4-bit matrices, as before 0.43.1 (autograd/_functions.py)."""
    is_4bit = job.plan.get("method.quantization") in ("nf4", "fp4")
    if is_4bit and job.releases.is_certainly_at_least("bitsandbytes", "0.43.1") is False:
        job.plan.infer("method.keeps_inputs", True, "MatMul4Bit of bitsandbytes before 0.43.1")


def infer_read_ahead(job: Job) -> None:
    """Infer that 16-bit weights are read onto the GPU ahead of the quantizer, as transformers 5.0 to 5.3 do.

    Their loader threads do not wait for the quantizer (core_model_loading.py; fixed in 5.4 by
    huggingface/transformers#44576). A quantized checkpoint has no 16-bit weights to read ahead.
    """
    published = job.architecture.quantization if job.architecture is not None else None
    if published or job.plan.get("method.quantization") not in ("nf4", "fp4", "int8"):
        return
    if (
        job.releases.is_certainly_at_least("transformers", "5.0")
        and job.releases.is_certainly_at_least("transformers", "5.4") is False
    ):
        job.plan.infer("method.reads_ahead", True, "transformers 5.0 to 5.3 load in threads")


def _is_older_than_known(job: Job) -> bool:
    """Return whether the framework is older than all known releases, and so older than transformers 5.

    Return False if the repository states the transformers release.
    """
    package = list_frameworks()[job.main.framework].package
    is_stated = job.releases.is_stated("transformers")
    return not is_stated and package in job.releases.by_package and job.releases.find_candidates(package).is_outdated


def infer_saved_gather(job: Job) -> None:
    """Infer that ZeRO-3 copies the frozen weights to rank 0's host to save an adapter, as transformers 4 does.

    It calls accelerate's get_state_dict; 5.0.0 is the first release that excludes frozen parameters (trainer.py,
    save_model, of 4.57.6 and 5.0.0).
    """
    reading = job.plan
    if reading.get("method.tuning") != "lora" or reading.get("parallel.zero_stage") != 3:
        return
    if job.releases.is_at_least("transformers", "5.0.0") is False or _is_older_than_known(job):
        reading.infer("checkpoint.gathers_frozen", True, "transformers 4 gathers frozen weights at each save")


DEFAULT_IMAGE_PIXELS: Final = 768 * 768
"""Pixels of an image of unknown size: the default of LLaMA-Factory's `image_max_pixels` (hparams/model_args.py)."""


def infer_images(job: Job, pixels: Any, bound: str) -> None:
    """Assume one image per sequence for a trained vision encoder, which keeps the activations of its tokens.

    The number of images depends on the data. `bound`: the source of their maximum size, `pixels`.
    """
    encoder = job.architecture.tower if job.architecture is not None else None
    if encoder is None or job.plan.get("sequence.image_tokens") is not None:
        return
    tokens, reason = encoder.tokens, "the model fixes its size"
    if tokens is None and encoder.patch and encoder.patches and isinstance(pixels, int) and pixels > 0:
        tokens, reason = int(pixels / (encoder.patch**2 * encoder.patches)), bound
    if tokens is not None:
        tokens = min(tokens, job.plan.get("sequence.length") or tokens)
        note = f"one image of {tokens} tokens in each sequence ({reason})"
        job.plan.put("sequence.image_tokens", tokens, Origin("assumed", note=note))


def infer_tensor_parallelism(job: Job) -> None:
    """Infer how transformers' tensor-parallel plans split a model.

    They split the output matrix unless it is tied to the embedding, gather the logits, and do not split the sequence.
    """
    reading = job.plan
    if (reading.get("parallel.tensor") or 1) > 1 and reading.get("parallel.strategy") != "zero":
        reading.infer("parallel.sequence_parallel", False, "base_model_tp_plan of transformers")
        is_tied = job.architecture is not None and job.architecture.tied
        reading.infer("parallel.split_vocabulary", "none" if is_tied else "head", "_tp_plan of transformers' models")


def fill_auto(job: Job, field: Field) -> Any:
    """Return the value that the Trainer fills in for "auto" in a DeepSpeed file, or MISSING if it leaves "auto".

    Source: HfTrainerDeepSpeedConfig.trainer_config_process. Bucket sizes and the persistence threshold depend on the
    model's hidden size and are None (unknown) if the model is unknown.
    """
    reading = job.plan
    hidden = job.architecture.hidden if job.architecture is not None else None
    stage = reading.get("parallel.zero_stage")
    if field == "parallel.reduce_bucket":
        return None if hidden is None else hidden * hidden
    if stage == 3 and field == "parallel.prefetch_bucket":
        return None if hidden is None else int(0.9 * hidden * hidden)
    if stage == 3 and field == "parallel.persistence_threshold":
        return None if hidden is None else 10 * hidden
    if field == "precision.compute" and reading.get(field) is None:
        return _fill_precision(job)
    if field in _ARGUMENT_FIELDS:
        return reading.get(field)
    return MISSING


_ARGUMENT_FIELDS: Final = frozenset(
    ("batch.micro", "batch.accumulation", "batch.global_", "precision.compute", "optimizer.clipping")
)


def _fill_precision(job: Job) -> str | None:
    """Return the format of a run without `bf16` and `fp16`, in which the DeepSpeed file says "auto", if it is known.

    accelerate fills in its own mixed precision. The Trainer fills in false: stage 3 then creates the weights in fp32.
    Other stages keep the format of the weights, and so does a script that loads them before DeepSpeed is set up.

    Sources: transformers 4.49.0 integrations/deepspeed.py (trainer_config_process), accelerate 1.15.0
    utils/dataclasses.py (DeepSpeedPlugin.set_mixed_precision), DeepSpeed 0.16.4 runtime/zero/partition_parameters.py
    (_set_dtype) and runtime/engine.py (_configure_distributed_model).
    """
    launcher = job.companions.get("accelerate")
    launch_precision = None if launcher is None else launcher.get("mixed_precision")
    if launch_precision in ("bf16", "fp16"):
        return str(launch_precision)
    is_off = job.plan.get("precision.autocast") is False and job.main.document.syntax != "python"
    return "fp32" if is_off and job.plan.get("parallel.zero_stage") == 3 else None


def infer_zero(job: Job) -> None:
    """Infer the values that DeepSpeed and accelerate determine under ZeRO, independent of the Trainer's settings."""
    from cfglint_train.frameworks.deepspeed.infer import infer_engine

    infer_engine(job)
    replace_optimizer(job)


def replace_optimizer(job: Job) -> None:
    """Replace the optimizer with DeepSpeed's CPU optimizer if its states are offloaded, as accelerate does.

    Adagrad and 32-bit Lion have a CPU counterpart; all others become AdamW (utils/deepspeed.py, 1.11.0). The optimizer
    stays if the DeepSpeed file sets an optimizer, or states `zero_force_ds_cpu_optimizer: false`.
    """
    reading = job.plan
    companion = job.companions.get("deepspeed")
    if reading.get("parallel.offload_optimizer") not in ("cpu", "nvme"):
        return
    place = None
    if companion is not None:
        if companion.get("zero_force_ds_cpu_optimizer", default=True) is False or companion.has("optimizer"):
            return
        place = companion.find_place("zero_optimization", "offload_optimizer")
    note = "accelerate replaces the optimizer by DeepSpeed's CPU one when its states are offloaded"
    name = reading.get("optimizer.name")
    is_kept = name == "adagrad" or (name == "lion" and reading.get("optimizer.state_bits") == 32)
    origin = Origin("inferred", place, note)
    reading.put("optimizer.name", name if is_kept else "adamw", origin)
    reading.put("optimizer.implementation", "cpu", origin)
    reading.put("optimizer.state_bits", 32, origin)
    reading.put("optimizer.paged", False, origin)


def infer_plain_strategy(job: Job) -> None:
    """Infer DDP or a single GPU if neither the config nor a companion names a strategy.

    DDP is only assumed if the launches are unknown, because they may select FSDP or DeepSpeed.
    """
    config, reading = job.main, job.plan
    if reading.get_origin("parallel.strategy") is not None or config.get("deepspeed") is not None:
        # A lens or companion already set the strategy, possibly to None (unknown).
        return
    world = reading.world_size
    if world is not None and world > 1 and job.launch_known:
        reading.infer("parallel.strategy", "ddp", "neither the file nor its launch names FSDP or DeepSpeed")
    elif world is not None and world > 1:
        note = "plain data parallelism; add the launch script to the repository to be sure"
        if job.launch_known is not None:
            note = "plain data parallelism; some launch options are unknown, so write all of the launcher's options out"
        reading.put("parallel.strategy", "ddp", Origin("assumed", note=note))
    elif world is not None:
        reading.infer("parallel.strategy", "none", "one GPU")


def infer_compilation(job: Job, own_loss: bool = True) -> None:
    """Infer the effect of `torch_compile`: the Trainer compiles the model and the loss in its forward pass.

    The model computes its own loss unless labels are smoothed (transformers 5.17, trainer.py `compute_loss`). Nothing
    is inferred for accelerate's regional compilation, which does not compile the loss. `own_loss`: False if other code
    of the framework computes the loss.
    """
    reading, companion = job.plan, job.companions.get("accelerate")
    is_regional = companion is not None and companion.get("dynamo_config", "dynamo_use_regional_compilation") is True
    is_model_loss = reading.get("activations.fused_loss") == "none" and reading.get("method.stage") in (
        "sft",
        "pretrain",
    )
    has_smoothing = job.main.get("label_smoothing_factor") not in (None, 0, 0.0)
    if not reading.get("activations.compile") or is_regional:
        return
    reading.infer("activations.compiled_model", True, "the Trainer compiles the whole model")
    if own_loss and is_model_loss and not has_smoothing:
        reading.infer("activations.compiled_loss", True, "the compiled model computes its own loss")


def infer_passing_logits(job: Job, trl_loss: TrlLoss) -> None:
    """Infer the bytes per token and vocabulary entry of logits that exist in addition to those of a TRL loss."""
    reading = job.plan
    passing_bytes = (
        trl_loss.without_reference
        if reading.get("method.reference_model") == "none"
        else trl_loss.with_reference or trl_loss.without_reference
    )
    if passing_bytes is not None and reading.get("activations.fused_loss") == trl_loss.loss:
        # accelerate converts outputs of autocast to fp32; without autocast, logits keep the format of the weights.
        has_no_autocast = reading.get("parallel.strategy") == "zero" or reading.get("precision.autocast") is False
        is_16bit = has_no_autocast and reading.get("precision.compute") != "fp32"
        note = "more logits and copies of them exist in addition to those of the loss"
        reading.infer("activations.passing_logits", passing_bytes[1 if is_16bit else 0], note)


def infer_states(job: Job, infer_formats: Callable[[Job], None], infer_loading: Callable[[Job], None]) -> None:
    """Infer number formats, the order of loading and sharding, optimizer states and the batch.

    `infer_formats`: the framework's inference of number formats without DeepSpeed. `infer_loading`: its inference of
    the weights that are loaded before sharding.
    """
    strategy = job.plan.get("parallel.strategy")
    if strategy == "zero":
        infer_zero(job)
    elif strategy is not None:
        infer_formats(job)
    infer_loading(job)
    infer_experts(job)
    infer_kept_inputs(job)
    infer_read_ahead(job)
    infer_saved_gather(job)
    fsdp.infer_fsdp(job)
    fsdp.infer_deferred_reduction(job)
    optimizers.infer_optimizer_state(job)
    infer_batch(job)


def infer_loops(job: Job) -> None:
    """Infer the data loader's prefetch depth and the evaluation interval."""
    reading = job.plan
    prefetch = 2 if reading.get("data.workers") else 0
    reading.infer("data.prefetch", prefetch, "torch's DataLoader prepares two batches per worker")
    if reading.get("eval.strategy") == "steps":
        reading.infer("eval.interval", reading.get("logging.interval"), "eval_steps follows logging_steps")
