"""Values that axolotl derives from a config and its companions."""

from __future__ import annotations

from cfglint_train.frameworks.axolotl.activations import find_pinned_trl_loss
from cfglint_train.frameworks.axolotl.method import find_expert_kernel
from cfglint_train.frameworks.axolotl.settings import read_bool
from cfglint_train.frameworks.framework import Job
from cfglint_train.frameworks.hf_trainer import fsdp, optimizers
from cfglint_train.frameworks.hf_trainer.infer import (
    infer_batch,
    infer_compilation,
    infer_experts,
    infer_kept_inputs,
    infer_passing_logits,
    infer_plain_strategy,
    infer_published_quantization,
    infer_read_ahead,
    infer_saved_gather,
    infer_tensor_parallelism,
    infer_zero,
)
from cfglint_train.frameworks.lens import is_before
from cfglint_train.plan.choices import FSDP
from cfglint_train.plan.origin import Origin


def infer(job: Job) -> None:
    """Infer number formats, batches, reference models, and the kernels that axolotl turns on automatically."""
    config, reading = job.main, job.plan
    packing = reading.get("sequence.packing")
    if config.get("rl") is not None:
        # Only the causal builder reads the key (core/builders/rl.py; up to 0.9.2 core/trainer_builder.py).
        note = "rl trainers pad to the longest sample and ignore pad_to_sequence_len"
        reading.put("sequence.padding", "longest", Origin("inferred", note=note))
    else:
        padding = "max_length" if packing else "longest"
        reading.infer("sequence.padding", padding, "pad_to_sequence_len follows sample_packing")
    _infer_evaluation(job)
    infer_plain_strategy(job)
    if reading.get("parallel.strategy") == "zero":
        infer_zero(job)
    else:
        _infer_formats(job)
        _infer_cast_model(job)
    _infer_published_quantization(job)
    infer_experts(job)
    infer_kept_inputs(job)
    infer_read_ahead(job)
    infer_saved_gather(job)
    _infer_cast_experts(job)
    _infer_unpacked_experts(job)
    _infer_loading(job)
    _infer_adapter(job)
    optimizers.infer_optimizer_state(job)
    reading.infer(
        "parallel.reshard_after_forward", fsdp.is_resharding(reading.get("parallel.sharding")), "its strategy"
    )
    fsdp.infer_fsdp(job)
    infer_tensor_parallelism(job)
    fsdp.infer_deferred_reduction(job)
    infer_batch(job)
    _infer_completions(job)
    stage = reading.get("method.stage")
    if stage in ("dpo", "ipo", "orpo", "simpo", "rm"):
        reading.infer("batch.pairs", True, "chosen and rejected answers form one batch")
    if stage in ("dpo", "ipo", "kto", "simpo", "grpo"):
        # train.py setup_reference_model: full fine-tuning loads a second model for every `rl` except ORPO.
        is_full = reading.get("method.tuning") == "full"
        reading.infer("method.reference_model", "full" if is_full else "adapter-off", "train.py setup_reference_model")
    elif stage is not None:
        reading.infer("method.reference_model", "none", "this stage has no reference model")
    infer_compilation(job)
    if config.get("rl") is not None:
        infer_passing_logits(job, find_pinned_trl_loss(config))


def _infer_completions(job: Job) -> None:
    """Infer the number of completions that GRPO divides into groups, if `generation_batch_size` does not state it.

    From 0.17.0 on, axolotl counts the completions of one rank (utils/schemas/validation.py,
    check_grpo_batch_size_divisibility); TRL counts those of all ranks.
    """
    config, reading = job.main, job.plan
    micro, accumulation = reading.get("batch.micro"), reading.get("batch.accumulation")
    if config.get("rl") != "grpo" or config.get("trl", "generation_batch_size") is not None:
        return
    if micro is None or accumulation is None:
        return
    counts_one_rank = job.releases.is_certainly_at_least("axolotl", "0.17.0")
    global_batch, group_size = reading.get("batch.global_"), reading.get("rollout.samples_per_prompt")
    if counts_one_rank is None and global_batch and group_size and global_batch % group_size:
        note = "micro batch x accumulation x ranks; the share of each rank must be whole too"
        reading.infer("rollout.completions", global_batch, note)
    elif counts_one_rank is None:
        note = "axolotl 0.17 or newer, which counts the completions per rank; set axolotl=RELEASE"
        reading.put("rollout.completions", micro * accumulation, Origin("assumed", note=note))
    elif counts_one_rank:
        reading.infer("rollout.completions", micro * accumulation, "micro batch x accumulation, per rank")
    else:
        reading.infer("rollout.completions", reading.get("batch.global_"), "micro batch x accumulation x ranks")


def _infer_published_quantization(job: Job) -> None:
    """Infer the quantization that a published checkpoint keeps (loaders/model.py _set_quantization_config).

    GPTQ, AWQ and bitsandbytes checkpoints keep their own config. An Mxfp4Config with `dequantize` expands MXFP4 weights
    to 16 bits, four times the size of the checkpoint.
    """
    quantization_kwargs = job.main.get("model_quantization_config_kwargs")
    if not (isinstance(quantization_kwargs, dict) and quantization_kwargs.get("dequantize")):
        infer_published_quantization(job, becomes={})


def _infer_cast_model(job: Job) -> None:
    """Infer that PEFT casts the frozen model to fp32 if `load_in_4bit` with `adapter: lora` does not quantize it."""
    reading, config = job.plan, job.main
    if not read_bool(config, "load_in_4bit") or config.get("adapter") != "lora":
        return
    if reading.get("method.quantization") != "none" or (job.architecture is not None and job.architecture.quantization):
        return
    if reading.get("parallel.strategy") in ("none", "ddp") and config.get("peft", "loftq_config") is None:
        reading.infer("precision.frozen", "fp32", "PEFT's prepare_model_for_kbit_training casts the model")
        reading.infer("model.embeddings_fp32", False, "axolotl casts embeddings and head back")


def _infer_cast_experts(job: Job) -> None:
    """Infer that PEFT casts the experts that bitsandbytes leaves in 16 bits to fp32.

    PEFT's prepare_model_for_kbit_training casts them (peft 0.21.2, utils/other.py). axolotl calls it for 4 and 8 bits
    outside FSDP and ZeRO-3 (0.18.0, loaders/model.py _prepare_model_for_quantization). It then casts embeddings, head
    and norms back, but not the experts. DeepSpeed casts all weights.
    """
    reading = job.plan
    if reading.get("method.quantization") not in ("nf4", "fp4", "int8") or reading.get("method.tuning") != "lora":
        return
    if reading.get("parallel.strategy") not in ("none", "ddp") or job.main.get("peft", "loftq_config") is not None:
        return
    if job.architecture is not None and job.architecture.experts is not None:
        reading.infer("precision.experts", "fp32", "PEFT's prepare_model_for_kbit_training casts them")


def _infer_unpacked_experts(job: Job) -> None:
    """Infer whether the forward pass unpacks quantized experts to 16 bits.

    They are stored as a parametrization, which all code except the expert kernels reads as a 16-bit tensor (0.18.0,
    monkeypatch/moe_quant.py).
    """
    is_unpacked = bool(job.plan.get("method.quantized_experts")) and not find_expert_kernel(job.main)
    job.plan.infer("method.unpacks_experts", is_unpacked, "follows quantize_moe_experts and the experts' kernel")


def _infer_loading(job: Job) -> None:
    """Infer that each FSDP rank loads the whole quantized model onto its GPU before sharding.

    This does not apply if only rank 0 loads the model. Source: 0.18.0 loaders/model.py sets device_map
    {"": LOCAL_RANK} for 4 bits. For 8 bits it sets none, and transformers uses the process's GPU
    (quantizers/quantizer_bnb_8bit.py, update_device_map).
    """
    reading = job.plan
    if reading.get("method.quantization") not in ("nf4", "fp4", "int8") or reading.get("parallel.strategy") not in FSDP:
        return
    if reading.get("parallel.cpu_efficient_loading") is False and not is_before(job.main, "0.18.0"):
        reading.infer("model.init_device", "cuda", "loaders/model.py puts a quantised model on the rank's GPU")


def _infer_evaluation(job: Job) -> None:
    """Infer the evaluation batch.

    From 0.8.0 on, evaluation packs are as large as training packs, whatever eval_batch_size is
    (core/trainers/base.py, _create_multipack_sampler). In 0.7.1, _get_eval_sampler used the evaluation batch size.
    """
    config, reading = job.main, job.plan
    micro, is_packed = reading.get("batch.micro"), reading.get("sequence.packing") and config.get("rl") is None
    if is_packed and micro and reading.get("sequence.eval_packing") is not False and not is_before(config, "0.8.0"):
        note = "evaluation packs are as large as training packs"
        reading.put("batch.eval_micro", micro, Origin("inferred", note=note))
    else:
        reading.infer("batch.eval_micro", micro, "eval_batch_size follows micro_batch_size")


def _infer_formats(job: Job) -> None:
    reading = job.plan
    strategy, compute = reading.get("parallel.strategy"), reading.get("precision.compute")
    reading.infer("precision.frozen", compute, "the model is loaded in the run's dtype")
    if strategy == "fsdp1":
        reading.infer("precision.params", "fp32", "accelerate upcasts trainable weights for FSDP1")
        reading.infer("precision.grads", "fp32", "accelerate upcasts trainable weights for FSDP1")
    else:
        reading.infer("precision.params", compute, "the model is loaded in the run's dtype")
        reading.infer("precision.grads", compute, "the model is loaded in the run's dtype")
    reading.infer("precision.master", "none", "no second copy of the trained weights")
    is_full = reading.get("method.tuning") == "full"
    if is_full and strategy in ("none", "ddp") and compute in ("bf16", "fp16"):
        # loaders/model.py _configure_embedding_dtypes: upcast to fp32, and cast back only with these kernels.
        attention, loss = reading.get("activations.attention"), reading.get("activations.fused_loss")
        cast_back = attention not in ("sdpa", "eager") or loss == "cce"
        reading.infer("model.embeddings_fp32", not cast_back, "axolotl upcasts embeddings, head and norms")


def _has_automatic_kernels(job: Job) -> bool:
    """Return whether axolotl turns on fused LoRA kernels that the file does not mention.

    Source: 0.9.1 to 0.21.0 utils/schemas/config.py, `check_auto_enable_lora_kernels`. Before 0.16.0, it does so only if
    the file states `lora_dropout: 0`, because the check runs before defaults are set.
    """
    config, reading = job.main, job.plan
    if is_before(config, "0.9.1") or reading.get("parallel.strategy") == "fsdp1":
        return False
    if reading.get("method.quantization") == "int8" or config.get("rl") is not None:
        return False
    if is_before(config, "0.16.0") and (config.get("lora_dropout") is None or reading.get("method.lora_dropout")):
        return False
    return is_before(config, "0.15.0") or not reading.get("model.trust_remote_code")


def _infer_adapter(job: Job) -> None:
    config, reading = job.main, job.plan
    if reading.get("method.tuning") != "lora":
        return
    autocast = read_bool(config, "peft_autocast_adapter_dtype")
    is_fp32 = autocast is not False and reading.get("parallel.strategy") not in ("zero",)
    adapter_format = "fp32" if is_fp32 else reading.get("precision.compute")
    reading.infer("precision.adapter", adapter_format, "PEFT's autocast_adapter_dtype")
    reading.infer("precision.grads", adapter_format, "gradients have the dtype of their weights")
    reading.infer("method.lora_kernels", _has_automatic_kernels(job), "check_auto_enable_lora_kernels")
    if is_before(config, "0.16.0") and reading.get("method.lora_kernels") and reading.get("method.lora_dropout"):
        note = "LoRA kernels need lora_dropout 0 before 0.16.0 (monkeypatch/lora_kernels.py)"
        reading.put("method.lora_kernels", False, Origin("inferred", config.find_place("lora_dropout"), note))
    if reading.get("method.lora_kernels") is False:
        reading.infer("method.lora_kernel_parts", (), "all kernels are off")
