"""Values that LLaMA-Factory derives from a configuration, its companions and the model."""

from __future__ import annotations

from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks.framework import Job
from cfglint_train.frameworks.hf_trainer import fsdp
from cfglint_train.frameworks.hf_trainer.infer import (
    DEFAULT_IMAGE_PIXELS,
    infer_compilation,
    infer_images,
    infer_loops,
    infer_mixed_precision,
    infer_plain_strategy,
    infer_published_quantization,
    infer_states,
)
from cfglint_train.frameworks.lens import is_before
from cfglint_train.frameworks.llamafactory.activations import find_liger_key
from cfglint_train.frameworks.llamafactory.settings import get_stage, get_tuning, is_megatron, is_on
from cfglint_train.plan.choices import FSDP
from cfglint_train.plan.fields import Role
from cfglint_train.plan.origin import Origin


def infer(job: Job) -> None:
    """Infer strategy, number formats, reference models, and the automatic choices of LLaMA-Factory and the Trainer."""
    config, reading = job.main, job.plan
    infer_mixed_precision(job, stated=is_on(config, "bf16") or is_on(config, "fp16"))
    infer_plain_strategy(job)
    packing = reading.get("sequence.packing")
    if packing is not None:
        note = "packed sequences are padded to the full length, others to the longest in the batch"
        reading.infer("sequence.padding", "max_length" if packing else "longest", note)
        builds_mask = is_on(config, "neat_packing") and config.get("flash_attn") != "fa2"
        reading.infer("sequence.block_mask", builds_mask, "neat packing without FlashAttention 2 builds a mask")
    rank = reading.get("method.lora_rank")
    if rank is not None:
        reading.infer("method.lora_alpha", 2.0 * rank, "lora_alpha follows lora_rank")
    infer_published_quantization(job, becomes=_DEQUANTIZED_KINDS, overrides=True)
    _infer_by_model(job)
    _infer_images(job)
    _infer_checkpointing(job)
    infer_states(job, _infer_formats, _infer_loading)
    _infer_stage_models(job)
    replaces_loss = any(is_on(config, key) for key in ("use_dft_loss", "use_asft_loss", "use_eaft_loss"))
    infer_compilation(job, own_loss=not replaces_loss)
    _infer_schedule(job)
    _infer_gpus_per_node(job)
    _mark_not_modelled(job)


_DEQUANTIZED_KINDS: Final = {"mxfp4": "none", "fp8": "none"}
"""Published quantizations that LLaMA-Factory converts to 16-bit weights when it loads them.

All others keep the checkpoint's format. `quantization_bit` has no effect on a checkpoint that is already quantized
(0.9.4, model_utils/quantization.py, configure_quantization).
"""


def _infer_images(job: Job) -> None:
    """Assume one image per sequence if the vision encoder is trained. Releases before 0.9.2 are skipped."""
    if job.plan.get("model.frozen_vision") is False and not is_before(job.main, "0.9.2"):
        pixels = job.main.get("image_max_pixels", default=DEFAULT_IMAGE_PIXELS)
        infer_images(job, pixels, "image_max_pixels bounds its size")


def _infer_checkpointing(job: Job) -> None:
    """Correct activation checkpointing that differs from its keys (model_utils/checkpointing.py)."""
    config, reading = job.main, job.plan
    if reading.get("parallel.strategy") == "fsdp2" and not is_on(config, "gradient_checkpointing"):
        note = "LLaMA-Factory sets use_reentrant_gc to false under FSDP2"
        reading.put("activations.reentrant", False, Origin("inferred", note=note))
    trains_vision = reading.get("model.frozen_vision") is False or reading.get("model.frozen_projector") is False
    if get_tuning(config) in ("full", "freeze") and reading.get("model.frozen_language") is True and trains_vision:
        # Layers without trained weights are not checkpointed, but gradients for trained parts before them flow
        # through them.
        origin = config.get_origin("freeze_language_model")
        note = "layers of the frozen language model are not checkpointed and keep their activations"
        if reading.get("activations.checkpointing") not in (None, "none"):  # the encoder's layers are checkpointed
            checkpoints_encoder = reading.get("model.frozen_vision") is False
            reading.put("activations.tower", checkpoints_encoder, Origin("inferred", origin.place, note, origin.key))
        reading.put("activations.checkpointing", "none", Origin("inferred", origin.place, note, origin.key))


def _infer_gpus_per_node(job: Job) -> None:
    """Discard `num_processes` of accelerate's file if a comment asks users to change it before the launch.

    LLaMA-Factory's examples for Ascend have this comment.
    """
    stated = job.plan.get_origin("launch.gpus_per_node")
    if stated is None or stated.key != "num_processes" or b"num_processes" not in job.main.document.source:
        return
    if any(_CHANGE_COMMENT.search(comment.text) for comment in job.main.document.list_comments()):
        note = "a comment has `num_processes` changed before the launch"
        job.plan.put("launch.gpus_per_node", None, stated._replace(note=note))


_CHANGE_COMMENT: Final = compile_on_use(r"(?i)\b(?:change|set|adjust)\b.{0,20}\bnum_processes\b")


def _mark_not_modelled(job: Job) -> None:
    """Mark the strategy as unsupported if the plan cannot express how the model is trained or placed."""
    config, reading = job.main, job.plan
    for key, is_stated, note in (
        ("use_kt", is_on(config, "use_kt"), "KTransformers keeps experts on the host"),
        ("use_hyper_parallel", is_on(config, "use_hyper_parallel"), "HyperParallel shards by its own settings"),
        ("tensor_model_parallel_size", is_megatron(config), "a Megatron backend shards by its own rules"),
    ):
        if is_stated:
            origin = config.get_origin(key)
            reading.put(
                "parallel.strategy", None, Origin("inferred", origin.place, note, origin.key, is_unsupported=True)
            )


# attention.py: model types that use eager attention even if the file requests SDPA.
_EAGER_ONLY: Final = frozenset(("youtu", "youtu_vl"))

# liger_kernel.py, 0.9.5: model types with a Liger kernel; for a multimodal model, the type of the whole model.
_LIGER_TYPES: Final = frozenset((
    "gemma", "gemma2", "gemma3", "gemma3_text", "glm", "glm4", "glm4v", "granite", "llama", "llava", "mistral",
    "mixtral", "mllama", "olmo2", "paligemma", "phi3", "qwen2", "qwen2_vl", "qwen2_5_vl", "qwen3", "qwen3_moe",
    "qwen3_next", "qwen3_5", "gpt_oss",
))  # fmt: skip

# moe.py, 0.9.5: mixtures of experts whose blocks ZeRO-3 gathers as a whole (leaf modules).
_LEAF_TYPES: Final = frozenset((
    "dbrx", "deepseek_v2", "deepseek_v3", "kimi_vl", "hy_v3", "ernie4_5_moe", "granitemoe", "glm4_moe",
    "glm4_moe_lite", "glm4v_moe", "gpt_oss", "jamba", "jetmoe", "llama4", "mixtral", "olmoe", "phimoe", "qwen2_moe",
    "qwen3_moe", "qwen3_vl_moe", "qwen3_omni_moe", "qwen3_omni_moe_thinker", "qwen3_next", "qwen3_5_moe",
))  # fmt: skip


def _infer_by_model(job: Job) -> None:
    """Infer values that depend on the model type."""
    config, reading, architecture = job.main, job.plan, job.architecture
    if architecture is None:
        return
    kind = architecture.outer_type
    is_automatic = config.get("flash_attn") in (None, "auto")
    attention: tuple[str | None, str] | None = None
    if kind == "gpt_oss" and not is_before(config, "0.9.4"):
        attention = ("flash3", "LLaMA-Factory uses FlashAttention 3 for gpt-oss")
    elif kind in _EAGER_ONLY and (is_automatic or config.get("flash_attn") == "sdpa"):
        attention = ("eager", "LLaMA-Factory uses eager attention for this model")
    elif kind == "gemma2" and is_automatic:
        attention = (None, "Gemma 2 uses FlashAttention 2 if it is installed, and eager attention otherwise")
    if attention is not None:
        reading.put("activations.attention", attention[0], Origin("inferred", note=attention[1]))
    if is_on(config, "enable_liger_kernel") and kind not in _LIGER_TYPES:
        origin = config.get_origin("enable_liger_kernel")
        note = "LLaMA-Factory has no Liger kernel for this model"
        if find_liger_key(config) == "enable_liger_kernel":
            reading.put("activations.fused_loss", "none", Origin("inferred", origin.place, note, origin.key))
        reading.put("activations.liger_layers", False, Origin("inferred", origin.place, note, origin.key))
    has_leaf_modules = (
        kind in _LEAF_TYPES or architecture.model_type == "qwen3_moe"
    )  # qwen3_moe is InternVL 3.5's decoder
    if reading.get("parallel.zero_stage") == 3 and architecture.experts is not None and has_leaf_modules:
        reading.infer(
            "parallel.leaf_modules", True, "LLaMA-Factory marks the mixture-of-experts blocks as ZeRO-3 leaf modules"
        )
    if kind == "gemma3n" and not reading.is_stated("activations.checkpointing"):
        reading.put("activations.checkpointing", "none", Origin("inferred", note="turned off for Gemma 3n"))
    if architecture.experts is not None and reading.get("method.quantization") not in (None, "none"):
        transformers = job.releases.get("transformers")
        if transformers is not None:
            quantises_experts = parse_release(transformers) < parse_release("5") or not architecture.experts.fused
            reading.infer(
                "method.quantized_experts", quantises_experts, "quantised if the experts are separate matrices"
            )


def _is_upcasting(job: Job) -> bool:
    """Return whether trained weights are cast to fp32 when the adapter is set up (adapter.py init_adapter)."""
    config, reading = job.main, job.plan
    if is_on(config, "pure_bf16") or is_on(config, "use_badam"):
        return False
    is_quantised = config.get("quantization_bit") is not None
    if not is_quantised and reading.get("parallel.zero_stage") == 3:
        return False
    fsdp = reading.get("parallel.strategy") in FSDP
    loads_on_rank_0 = reading.get("parallel.cpu_efficient_loading") is True
    return not (fsdp and loads_on_rank_0 and not is_quantised and is_before(config, "0.9.3"))


def _get_checkpoint_format(job: Job) -> str | None:
    """Return the dtype in which the weights are published and loaded, or None if it is unknown."""
    return job.architecture.dtype if job.architecture is not None else None


def _infer_formats(job: Job) -> None:
    """Infer number formats without DeepSpeed."""
    reading = job.plan
    strategy, compute = reading.get("parallel.strategy"), reading.get("precision.compute")
    autocast = reading.get("precision.autocast")
    checkpoint_format = _get_checkpoint_format(job) or ("bf16" if compute in ("bf16", "fp8") else compute)
    # With mixed precision, accelerate upcasts trained weights to fp32 under FSDP.
    is_upcast_by_fsdp = fsdp.is_upcasting_trained(job)
    is_upcast = _is_upcasting(job)
    if autocast is False and (compute is None or (compute == "fp32" and not is_upcast)):
        note = "no mixed precision: the checkpoint's dtype"
        reading.put("precision.compute", _get_checkpoint_format(job), Origin("inferred", note=note))
    trained_format = "fp32" if is_upcast or is_upcast_by_fsdp else checkpoint_format
    note = "LLaMA-Factory casts trained weights to fp32" if is_upcast else "the checkpoint's dtype"
    if is_upcast_by_fsdp and not is_upcast:
        note = "accelerate casts trained weights to fp32 for FSDP"
    reading.infer("precision.params", trained_format, note)
    reading.infer("precision.grads", trained_format, note)
    upcasts_frozen = strategy == "fsdp2" and bool(autocast) and fsdp.is_upcasting_frozen(job)
    if upcasts_frozen and reading.get("method.quantization") in (None, "none"):
        reading.infer("precision.frozen", "fp32", "accelerate casts the whole model to fp32 for FSDP2")
    else:
        reading.infer("precision.frozen", checkpoint_format, "the checkpoint's dtype")
    reading.infer("precision.master", "none", "no second copy of the trained weights")
    if reading.trains_adapter:
        # PEFT creates adapters of 16-bit models in fp32 (autocast_adapter_dtype).
        reading.infer("precision.adapter", "fp32", "PEFT and LLaMA-Factory keep adapters in fp32")
        reading.infer("precision.grads", "fp32", "gradients have the dtype of their weights")


def _infer_loading(job: Job) -> None:
    """Infer the dtype of the full model that every GPU loads before DeepSpeed or FSDP shards it.

    The dtype is `none` if no GPU loads the full model.
    """
    config, reading = job.main, job.plan
    strategy = reading.get("parallel.strategy")
    is_sharded_on_load = reading.get("parallel.zero_stage") == 3 or (
        strategy in FSDP and reading.get("parallel.cpu_efficient_loading") is True
    )
    if strategy is None or (strategy == "zero" and reading.get("parallel.zero_stage") is None):
        return
    if config.get("low_cpu_mem_usage") is False and strategy not in FSDP and not is_sharded_on_load:
        # model/patcher.py: without a device map every rank reads the model into its own memory.
        reading.infer("model.init_device", "cpu", "`low_cpu_mem_usage: false`: each rank loads the model on its host")
    if is_sharded_on_load or config.get("low_cpu_mem_usage") is False:
        reading.infer("precision.loaded", "none", "weights are sharded as they are read, or stay on the host")
    elif reading.trains_adapter:
        reading.infer("precision.loaded", _get_checkpoint_format(job), "the checkpoint's dtype")
    else:
        loaded_format = "fp32" if _is_upcasting(job) else _get_checkpoint_format(job)
        reading.infer("precision.loaded", loaded_format, "trained weights are cast on the GPU before they are sharded")


def _infer_stage_models(job: Job) -> None:
    """Infer the models and logits that a stage needs in addition to the policy, and whether batches are pairs."""
    config, reading = job.main, job.plan
    stage, tuning = reading.get("method.stage"), reading.get("method.tuning")
    if stage is None or tuning is None:
        return
    reading.infer(
        "batch.pairs", stage in ("dpo", "ipo", "orpo", "simpo", "rm"), "chosen and rejected answers form one batch"
    )
    if stage in ("dpo", "ipo", "kto", "ppo") or (stage == "sft" and is_on(config, "use_asft_loss")):
        # trainer_utils.py create_ref_model: only LoRA can reuse the policy's own weights.
        is_quantised = config.get("ref_model") is not None and config.get("ref_model_quantization_bit") is not None
        reference = "full" if config.get("ref_model") is not None or tuning != "lora" else "adapter-off"
        if is_quantised:
            # The plan has no value for a quantized reference model.
            reading.put("method.reference_model", None, config.get_origin("ref_model_quantization_bit"))
        else:
            reading.infer("method.reference_model", reference, "trainer_utils.py create_ref_model")
    else:
        reading.infer("method.reference_model", "none", "this stage has no reference model")
    if stage in _PASSING_LOGIT_BYTES and (stage == "rm" or reading.get("method.reference_model") != "none"):
        note = "the trainer keeps the policy's logits while it computes those of the reference model"
        is_cast = stage != "rm" or reading.get("precision.compute") != "fp32"
        reading.infer("activations.passing_logits", _PASSING_LOGIT_BYTES[stage] if is_cast else 4, note)
    if stage == "ppo":
        _infer_ppo(job)


# Bytes per token and vocabulary entry at the peak of a stage's forward pass. dpo/trainer.py: the policy's fp32 logits
# and their log-softmax (8), which are kept while the reference model computes the same (8). kto/trainer.py: copies of
# the chosen and the rejected logits and their log-softmax (8), beside the reference model's logits of the target (4)
# and of the KL pass (8). rm/trainer.py: the value head's wrapper computes logits and casts them to fp32 (trl 0.24.0,
# modeling_value_head.py).
_PASSING_LOGIT_BYTES: Final = {"dpo": 16, "ipo": 16, "kto": 20, "rm": 6}


def _infer_ppo(job: Job) -> None:
    config, reading = job.main, job.plan
    model = reading.get("model.id")
    # All models are on every GPU; `method.reference_model` counts the reference model.
    roles = [Role("actor", model, trained=True, pool="actor")]
    if reading.get("method.reference_model") == "full":
        reference = config.get("ref_model", default=model)
        roles.append(Role("reference", reference if isinstance(reference, str) else None, trained=False))
    if config.get("reward_model_type") == "full":
        reward = config.get("reward_model")
        roles.append(Role("reward", reward if isinstance(reward, str) else None, trained=False, pool="actor"))
    reading.infer("model.roles", tuple(roles), "the models that ppo/workflow.py loads")
    reading.infer("rollout.engine", "hf", "PPO generates with the model itself")
    reading.infer("rollout.mode", "colocate", "PPO generates with the model itself")
    reading.infer("rollout.gathers", True, "ppo/trainer.py generates within TRL's unwrap_model_for_generation")


def _infer_schedule(job: Job) -> None:
    """Infer how the run loads data, evaluates, saves and resumes."""
    config, reading = job.main, job.plan
    infer_loops(job)
    reading.infer("checkpoint.final", True, "every workflow saves the model at the end")
    overwrite, stage = reading.get("checkpoint.overwrite"), get_stage(config)
    cannot_resume = stage in ("rm", "ppo") and get_tuning(config) in ("full", "freeze")
    if cannot_resume:
        note = "LLaMA-Factory does not resume this stage"
        reading.put("checkpoint.resume_latest", False, Origin("inferred", note=note))
    elif overwrite is not None:
        resumes = reading.get("checkpoint.load_path") is None and not overwrite
        reading.infer(
            "checkpoint.resume_latest", resumes, "the newest checkpoint in output_dir, unless it is overwritten"
        )
