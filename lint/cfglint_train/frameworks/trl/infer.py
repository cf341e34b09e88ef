"""Inference of plan fields from a TRL config, its companions and the model."""

from __future__ import annotations

import os

from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks.framework import Job
from cfglint_train.frameworks.hf_trainer.infer import (
    infer_compilation,
    infer_loops,
)
from cfglint_train.frameworks.lens import is_before
from cfglint_train.frameworks.trl.losses import infer_loss
from cfglint_train.frameworks.trl.method import has_bf16_default
from cfglint_train.frameworks.trl.rollout import is_generating
from cfglint_train.frameworks.trl.sequence import find_length_key
from cfglint_train.frameworks.trl.settings import find_trainer, has_launcher_passthrough, read_setting
from cfglint_train.frameworks.trl.weights import infer_placement, infer_weights
from cfglint_train.plan.origin import Origin


def infer(job: Job) -> None:
    """Infer strategy, number formats, reference models, and defaults of TRL and the Trainer."""
    config, plan = job.main, job.plan
    is_precision_stated = any(config.get(key) is not None for key in ("bf16", "fp16"))
    _infer_adapter(job)
    infer_placement(job, is_precision_stated=is_precision_stated or has_bf16_default(config))
    _infer_launch(job)
    _infer_sequences(job)
    infer_weights(job)
    _infer_completions(job)
    _infer_models(job)
    infer_loss(job)
    infer_compilation(job)
    _infer_loops(job)
    if config.document.syntax == "python":
        from cfglint_train.frameworks.trainer_script.infer import infer_script

        infer_script(job)
    elif config.get("model_init_kwargs") is None:
        plan.infer("model.rope_scaling", "none", "the model is loaded as it is")


def _infer_adapter(job: Job) -> None:
    """Leave the tuning method open if a program attaches an adapter of its own, whatever `use_peft` says."""
    from cfglint_train.documents.python.script import PythonScript

    for program, _ in job.main.evidence.programs if job.plan.get("method.tuning") == "full" else ():
        if (
            isinstance(program, PythonScript)
            and program.find_calls("LoraConfig", "get_peft_model")
            and not program.find_calls("get_peft_config")
            and b"use_peft" not in program.source
        ):
            note = f"`{os.path.basename(program.path)}` may attach an adapter of its own"
            job.plan.put("method.tuning", None, Origin("inferred", note=note, key="use_peft"))


def _infer_launch(job: Job) -> None:
    """Infer the nodes and GPUs per node from the recipe if `trl` passes them to the launcher.

    If a user's own script starts the recipe, only the launcher's settings count.
    """
    config, plan = job.main, job.plan
    if not has_launcher_passthrough(config, config.release):
        return
    processes, machines = config.get("num_processes"), config.get("num_machines", default=1)
    counts = [
        count for count in (processes, machines) if isinstance(count, int) and not isinstance(count, bool) and count > 0
    ]
    if len(counts) == 2 and processes % machines == 0:
        plan.infer("launch.nodes", machines, "num_machines of the recipe")
        plan.infer("launch.gpus_per_node", processes // machines, "num_processes of the recipe")


_PROMPT_TOKENS: Final = 512
"""Tokens per prompt if nothing limits prompts: GRPO's default limit up to 0.25."""


def _infer_sequences(job: Job) -> None:
    config, plan = job.main, job.plan
    tokens = plan.get("rollout.new_tokens")
    unlimited = read_setting(config, "max_prompt_length", "integer") is None
    if is_generating(config) and tokens and unlimited and plan.get("sequence.length") is None:
        note = f"prompts are counted as {_PROMPT_TOKENS} tokens, because nothing limits them"
        plan.put("sequence.length", tokens + _PROMPT_TOKENS, Origin("inferred", note=note, key="max_completion_length"))
    key = find_length_key(config)
    if not is_generating(config) and config.has(key) and config.get(key) is None:
        note = f"without `{key}`, samples are as long as in the data"
        plan.put("sequence.length", None, Origin("inferred", config.get_origin(key).place, note, key))
    packing = plan.get("sequence.packing")
    if packing is None:
        return
    is_padding_free = read_setting(config, "padding_free", "boolean") is True
    if find_trainer(config) == "sft" and packing and not is_before(config, "0.18"):
        # `bfd` concatenates sequences without padding; `wrapped` cuts them into blocks of the full length.
        strategy = read_setting(config, "packing_strategy", "string")
        is_padding_free = is_padding_free or strategy not in (None, "wrapped")
    if is_padding_free:
        plan.infer("sequence.padding", "none", "sequences are concatenated without padding")
    else:
        note = "packed sequences are padded to the full length, others to the longest in the batch"
        plan.infer("sequence.padding", "max_length" if packing else "longest", note)
    plan.infer("sequence.block_mask", False, "TRL passes positions to the attention kernel and builds no mask")


def _infer_completions(job: Job) -> None:
    """Infer the number of completions that GRPO and RLOO divide into groups per prompt.

    In 0.15 and 0.16, it is the micro batch of all ranks together (`trainer/grpo_trainer.py`). From 0.17 on, it is
    multiplied by gradient accumulation, and from 0.18 on by `steps_per_generation` or replaced by
    `generation_batch_size` (`trainer/grpo_config.py`, `__post_init__`).
    """
    config, plan = job.main, job.plan
    if not is_generating(config) or is_before(config, "0.15"):
        return
    batch_size = read_setting(config, "generation_batch_size", "integer")
    ranks, micro = plan.data_parallel, plan.get("batch.micro")
    steps = 1
    if not is_before(config, "0.17"):
        steps = read_setting(config, "steps_per_generation", "integer") or plan.get("batch.accumulation")
    if batch_size is not None:
        plan.infer("rollout.completions", batch_size, "generation_batch_size")
    elif ranks and micro and steps:
        oldest = config.releases.find_candidates("trl").releases[0]
        assumption = "TRL 0.15 or later, which divides them into groups (set `trl=RELEASE` to be sure)"
        note = assumption if parse_release(oldest) < parse_release("0.15") else ""
        number = "micro batch x data-parallel ranks x steps"
        plan.infer("rollout.completions", micro * ranks * steps, number, assumption=note)


def _infer_models(job: Job) -> None:
    """Infer the reference model, and whether a batch consists of pairs."""
    config, plan = job.main, job.plan
    trainer, tuning = find_trainer(config), plan.get("method.tuning")
    if trainer is None or tuning is None:
        return
    plan.infer("batch.pairs", trainer in ("dpo", "orpo", "cpo", "reward"), "chosen and rejected answers form one batch")
    if trainer in ("sft", "reward", "orpo", "cpo"):
        plan.infer("method.reference_model", "none", f"TRL's {trainer} trainer has none")
        return
    is_precomputed = read_setting(config, "precompute_ref_log_probs", "boolean") is True
    if trainer in ("dpo", "kto") and is_precomputed:
        plan.infer("method.reference_model", "none", "`precompute_ref_log_probs` drops it before training")
    elif trainer in ("grpo", "rloo") and plan.get("rollout.kl_coefficient") == 0:
        plan.infer("method.reference_model", "none", "`beta` is 0")
    elif trainer == "grpo" and plan.get("rollout.kl_coefficient") is None:
        return
    elif tuning != "full":
        plan.infer("method.reference_model", "adapter-off", "the model without its adapter is the reference")
    else:
        plan.infer("method.reference_model", "full", "a second, frozen model")


def _infer_loops(job: Job) -> None:
    """Infer data loading, evaluation, saving and resuming."""
    plan = job.plan
    infer_loops(job)
    plan.infer("checkpoint.final", True, "every script saves the model at the end")
