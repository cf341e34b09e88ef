"""What TRL derives from a recipe, its companions and the model."""

from __future__ import annotations

from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.versions import release_key
from cfglint_train.frameworks.framework import Job
from cfglint_train.frameworks.hf_trainer.infer import (
    infer_compiled,
    infer_loops,
)
from cfglint_train.frameworks.lens import before
from cfglint_train.frameworks.trl.losses import infer_loss
from cfglint_train.frameworks.trl.method import fills_bf16
from cfglint_train.frameworks.trl.rollout import generates
from cfglint_train.frameworks.trl.sequence import length_key
from cfglint_train.frameworks.trl.settings import starts_launcher, stated, trainer_of
from cfglint_train.frameworks.trl.weights import infer_placement, infer_weights
from cfglint_train.plan.origin import Origin


def infer(job: Job) -> None:
    """Strategy, number formats, reference models, and what TRL and the Trainer do by themselves."""
    config, reading = job.main, job.reading
    half = any(config.get(key) is not None for key in ("bf16", "fp16"))
    infer_placement(job, stated=half or fills_bf16(config))
    _infer_launch(job)
    _infer_sequences(job)
    infer_weights(job)
    _infer_completions(job)
    _infer_models(job)
    infer_loss(job)
    infer_compiled(job)
    _infer_loops(job)
    if config.document.syntax == "python":
        from cfglint_train.frameworks.trainer_script.infer import infer_script

        infer_script(job)
    elif config.get("model_init_kwargs") is None:
        reading.infer("model.rope_scaling", "none", "the model is loaded as it is")


def _infer_launch(job: Job) -> None:
    """How many processes the recipe itself asks `trl` to start; a script of one's own leaves that to its launcher."""
    config, reading = job.main, job.reading
    if not starts_launcher(config, config.release):
        return
    processes, machines = config.get("num_processes"), config.get("num_machines", default=1)
    counted = [one for one in (processes, machines) if isinstance(one, int) and not isinstance(one, bool) and one > 0]
    if len(counted) == 2 and processes % machines == 0:
        reading.infer("launch.nodes", machines, "num_machines of the recipe")
        reading.infer("launch.gpus_per_node", processes // machines, "num_processes of the recipe")


_PROMPT: Final = 512
"""Tokens of a prompt where nothing limits them: the limit that GRPO had by default up to 0.25."""


def _infer_sequences(job: Job) -> None:
    config, reading = job.main, job.reading
    tokens = reading.get("rollout.new_tokens")
    unlimited = stated(config, "max_prompt_length", "integer") is None
    if generates(config) and tokens and unlimited and reading.get("sequence.length") is None:
        note = f"prompts are counted as {_PROMPT} tokens, as nothing limits them"
        reading.put("sequence.length", tokens + _PROMPT, Origin("inferred", note=note, key="max_completion_length"))
    key = length_key(config)
    if not generates(config) and config.has(key) and config.get(key) is None:
        note = f"without `{key}`, samples are as long as the data have them"
        reading.put("sequence.length", None, Origin("inferred", config.origin(key).place, note, key))
    packing = reading.get("sequence.packing")
    if packing is None:
        return
    free = stated(config, "padding_free", "boolean") is True
    if trainer_of(config) == "sft" and packing and not before(config, "0.18"):
        # `bfd` strings sequences together without padding; `wrapped` cuts them into blocks of the full length.
        strategy = stated(config, "packing_strategy", "string")
        free = free or strategy not in (None, "wrapped")
    if free:
        reading.infer("sequence.padding", "none", "sequences are strung together without padding")
    else:
        note = "packed sequences are filled up, others to the longest of their batch"
        reading.infer("sequence.padding", "max_length" if packing else "longest", note)
    reading.infer("sequence.block_mask", False, "TRL hands the positions to the attention kernel and builds no mask")


def _infer_completions(job: Job) -> None:
    """The completions that GRPO and RLOO divide into groups of one prompt.

    0.15 and 0.16 count one micro batch of all ranks (`trainer/grpo_trainer.py`), from 0.17 on accumulation counts, from
    0.18 on `generation_batch_size` or `steps_per_generation` (`trainer/grpo_config.py`, `__post_init__`).
    """
    config, reading = job.main, job.reading
    if not generates(config) or before(config, "0.15"):
        return
    given = stated(config, "generation_batch_size", "integer")
    ranks, micro = reading.data_parallel, reading.get("batch.micro")
    steps = 1
    if not before(config, "0.17"):
        steps = stated(config, "steps_per_generation", "integer") or reading.get("batch.accumulation")
    if given is not None:
        reading.infer("rollout.completions", given, "generation_batch_size")
    elif ranks and micro and steps:
        first = config.releases.window("trl").releases[0]
        later = "TRL 0.15 or later, which divides them into groups (set `trl=RELEASE` to be sure)"
        note = later if release_key(first) < release_key("0.15") else ""
        number = "micro batch x data-parallel ranks x steps"
        reading.infer("rollout.completions", micro * ranks * steps, number, assumed=note)


def _infer_models(job: Job) -> None:
    """Reference models, pairs, rollouts."""
    config, reading = job.main, job.reading
    trainer, tuning = trainer_of(config), reading.get("method.tuning")
    if trainer is None or tuning is None:
        return
    reading.infer("batch.pairs", trainer in ("dpo", "orpo", "cpo", "reward"), "chosen and rejected are one batch")
    if trainer in ("sft", "reward", "orpo", "cpo"):
        reading.infer("method.reference_model", "none", f"TRL's {trainer} trainer has none")
        return
    computed = stated(config, "precompute_ref_log_probs", "boolean") is True
    if trainer in ("dpo", "kto") and computed:
        reading.infer("method.reference_model", "none", "`precompute_ref_log_probs` drops it before the training")
    elif trainer in ("grpo", "rloo") and reading.get("rollout.kl_coefficient") == 0:
        reading.infer("method.reference_model", "none", "`beta` is 0")
    elif trainer == "grpo" and reading.get("rollout.kl_coefficient") is None:
        return
    elif tuning != "full":
        reading.infer("method.reference_model", "adapter-off", "the model without its adapter is the reference")
    else:
        reading.infer("method.reference_model", "full", "a second model that stays as it was")


def _infer_loops(job: Job) -> None:
    """Loading data, evaluating, saving and resuming."""
    reading = job.reading
    infer_loops(job)
    reading.infer("checkpoint.final", True, "every script saves the model at the end")
