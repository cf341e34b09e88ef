"""The lenses between OpenRLHF's flags and the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_train.documents.document import MISSING, CannotEdit, Change, Route
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.codec import choice
from cfglint_train.frameworks.launchers import launch_of
from cfglint_train.frameworks.lens import Changes, Config, Lens, Triple
from cfglint_train.frameworks.lens_types import read_only
from cfglint_train.frameworks.openrlhf import method, rollout
from cfglint_train.frameworks.openrlhf import names as flag
from cfglint_train.frameworks.openrlhf.flags import granted, invocation_of, is_ray, name_at, stated, usage, value_of
from cfglint_train.frameworks.openrlhf.lens import (
    INTEGER,
    NUMBER,
    STRING,
    before,
    custom,
    drop,
    fixed,
    flag_of,
    is_on,
    is_ppo,
    keys_of,
    origin_of,
    put,
    setting,
    switch,
)
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin

Names = tuple[str, ...]

_ATTENTION: Final[Mapping[str, str]] = {
    "flash_attention_2": "flash",
    "flash_attention_3": "flash3",
    "flash_attention_4": "flash4",
    "sdpa": "sdpa",
    "eager": "eager",
    "flex_attention": "flex",
}


def _read_length(config: Config) -> Iterator[Triple]:
    if not _length_terms(config):
        yield from _single_length(config)
        return
    prompt, generated = setting(config, flag.PROMPT, INTEGER), setting(config, flag.GENERATED, INTEGER)
    if prompt is not None and generated is not None:
        origin = origin_of(config, flag.PROMPT)
        yield "sequence.length", prompt + generated, origin._replace(note=origin.note or "prompt and generated tokens")


def _length_terms(config: Config) -> tuple[Route, ...]:
    """The flags that make up the length; none where one flag states it.

    Up to 0.9.7 max_len is deprecated for PPO, and counts where it is given.
    """
    if not is_ppo(config) or not before(config, "0.9.8") or value_of(config, flag.LENGTH) is not MISSING:
        return ()
    return keys_of(flag.PROMPT, flag.GENERATED)


def _single_length(config: Config) -> Iterator[Triple]:
    if name_at(config, flag.LENGTH) is not None or value_of(config, flag.LENGTH) is not MISSING:
        yield "sequence.length", setting(config, flag.LENGTH, INTEGER), origin_of(config, flag.LENGTH)


def _write_length(config: Config, changes: Changes) -> list[Change]:
    length = changes["sequence.length"]
    if not isinstance(length, int):
        raise CannotEdit("a length is a number of tokens")
    if _length_terms(config):
        raise CannotEdit("the length is prompt_max_len + generate_max_len")
    return put(config, flag.LENGTH, str(length))


def _read_attention(config: Config) -> Iterator[Triple]:
    if name_at(config, flag.ATTENTION) is not None:
        name = setting(config, flag.ATTENTION, STRING)
        kernel = "flash" if isinstance(name, str) and "flash" in name else name
        yield "activations.attention", _ATTENTION.get(str(name), kernel), origin_of(config, flag.ATTENTION)
        return
    # models/actor.py up to 0.8.9: eager unless --flash_attn is given.
    flash = is_on(config, flag.FLASH)
    if flash is not None:
        yield "activations.attention", "flash" if flash else "eager", origin_of(config, flag.FLASH)


def _write_attention(config: Config, changes: Changes) -> list[Change]:
    wanted = changes["activations.attention"]
    if name_at(config, flag.ATTENTION) is not None:
        spelling = next((name for name, meaning in _ATTENTION.items() if meaning == wanted), None)
        if spelling is None:
            raise CannotEdit(f"OpenRLHF has no attention called {wanted}")
        return put(config, flag.ATTENTION, spelling)
    if wanted == "flash":
        return put(config, flag.FLASH, True)
    if wanted == "eager":
        return drop(config, flag.FLASH)
    raise CannotEdit(f"OpenRLHF {usage(config).release} has only flash and eager attention")


def _read_overlap(config: Config) -> Iterator[Triple]:
    # Without the flag DeepSpeed decides by the stage (deepspeed.engine).
    if is_on(config, flag.OVERLAP):
        yield "parallel.overlap_comm", True, origin_of(config, flag.OVERLAP)


def _write_overlap(config: Config, changes: Changes) -> list[Change]:
    if changes["parallel.overlap_comm"] is True:
        return put(config, flag.OVERLAP, True)
    if is_on(config, flag.OVERLAP):
        return drop(config, flag.OVERLAP)
    raise CannotEdit("no flag switches overlapping off")


_WITHOUT_TRACE: Final[tuple[Field, ...]] = (
    "parallel.prefetch_bucket", "parallel.max_live_parameters", "parallel.max_reuse_distance"
)  # fmt: skip


def _read_buckets(config: Config) -> Iterator[Triple]:
    """What DeepSpeed takes where OpenRLHF writes "auto" (runtime/config_utils.py drops it): its own defaults."""
    origin = Origin("default", note=f"openrlhf {usage(config).release} leaves it to DeepSpeed", framework="openrlhf")
    for field, value in _DEEPSPEED.items():
        yield field, value, origin
    if is_on(config, flag.NO_TRACE):
        for field in _WITHOUT_TRACE:
            yield field, 0, origin_of(config, flag.NO_TRACE)


# DeepSpeed 0.19.8 runtime/zero/config.py, unchanged since 0.12; elements.
_DEEPSPEED: Final[Mapping[Field, Any]] = {
    "parallel.reduce_bucket": 500_000_000,
    "parallel.prefetch_bucket": 50_000_000,
    "parallel.persistence_threshold": 100_000,
    "parallel.max_live_parameters": 1_000_000_000,
    "parallel.max_reuse_distance": 1_000_000_000,
    "parallel.sub_group": 1_000_000_000,
    "parallel.contiguous_gradients": True,
    "parallel.reduce_scatter": True,
}


def _read_saving(config: Config) -> Iterator[Triple]:
    steps, origin = setting(config, flag.SAVE_STEPS, INTEGER), origin_of(config, flag.SAVE_STEPS)
    if steps is None:
        if stated(config, flag.SAVE_STEPS) is not None:
            yield "checkpoint.strategy", None, origin
        return
    yield "checkpoint.strategy", "no" if steps < 0 else "steps", origin
    if steps >= 0:
        yield "checkpoint.interval", steps, origin


def _passes(config: Config) -> flag.Names:
    """The flag of the passes over the data; in PPO, `max_epochs` are those over one rollout."""
    return flag.EPISODES if is_ppo(config) else flag.EPOCHS


def _read_epochs(config: Config) -> Iterator[Triple]:
    names = _passes(config)
    yield "batch.epochs", setting(config, names, INTEGER), origin_of(config, names)


def _epochs_key(config: Config) -> tuple[Route, ...]:
    """The flag of the passes as the script has it, or would have it."""
    names = _passes(config)
    route, name = stated(config, names), name_at(config, names)
    return (route,) if route is not None else ((name,),) if name is not None else ()


def _write_epochs(config: Config, changes: Changes) -> list[Change]:
    if not float(changes["batch.epochs"]).is_integer():
        raise CannotEdit("OpenRLHF trains on whole epochs")
    return put(config, _passes(config), str(int(changes["batch.epochs"])))


def _write_saving(config: Config, changes: Changes) -> list[Change]:
    strategy = changes.get("checkpoint.strategy", "steps")
    interval = changes.get("checkpoint.interval")
    if strategy == "steps" and isinstance(interval, int) and interval > 0:
        if "checkpoint.strategy" not in changes and (setting(config, flag.SAVE_STEPS, INTEGER) or -1) < 0:
            raise CannotEdit("the run saves no checkpoints")
        return put(config, flag.SAVE_STEPS, str(interval))
    raise CannotEdit("OpenRLHF saves every so many steps or not at all")


def _read_eval(config: Config) -> Iterator[Triple]:
    if name_at(config, flag.EVAL_DATA) is not None:
        given = value_of(config, flag.EVAL_DATA)
        if given is MISSING and usage(config).open:
            return
        enabled, origin = given is not MISSING, origin_of(config, flag.EVAL_DATA)
    else:
        # Before 0.7.0 a split of the training data is evaluated on, in PPO nothing.
        enabled, origin = not is_ppo(config), granted(config, flag.EVAL_STEPS)
    yield "eval.enabled", enabled, origin
    steps = setting(config, flag.EVAL_STEPS, INTEGER)
    if not enabled:
        yield "eval.strategy", "no", origin
    elif steps is not None:
        # -1 is once per epoch; in PPO never, from 0.8.1 on.
        rarely = "no" if is_ppo(config) and not before(config, "0.8.1") else "epoch"
        yield "eval.strategy", "steps" if steps >= 0 else rarely, origin_of(config, flag.EVAL_STEPS)
        if steps >= 0:
            yield "eval.interval", steps, origin_of(config, flag.EVAL_STEPS)


def _write_eval(config: Config, changes: Changes) -> list[Change]:
    interval = changes.get("eval.interval")
    if changes.keys() != {"eval.interval"} or not isinstance(interval, int) or interval < 1:
        raise CannotEdit("only the steps between two evaluations have a flag of their own")
    if name_at(config, flag.EVAL_DATA) is not None and value_of(config, flag.EVAL_DATA) is MISSING:
        raise CannotEdit("the run does not evaluate")
    return put(config, flag.EVAL_STEPS, str(interval))


ACTOR_GROUP: Final[tuple[tuple[Field, Names], ...]] = (
    ("launch.nodes", flag.nodes("actor")),
    ("launch.gpus_per_node", flag.gpus("actor")),
)


_LAUNCH: Final[tuple[Field, ...]] = ("launch.launcher", "launch.environment", "launch.working_copy", "launch.meets")


def _read_launch(config: Config) -> Iterator[Triple]:
    invocation = invocation_of(config.document, config.root)
    if invocation is None or not isinstance(config.document, ShellDocument):
        return
    launch = launch_of(config.document, invocation)
    if launch.launcher is not None:
        yield "launch.launcher", *launch.launcher
    if launch.working_copy is not None:
        yield "launch.working_copy", *launch.working_copy
    if launch.environment:
        here = Origin("explicit", config.top(), framework="openrlhf")
        yield "launch.environment", tuple(sorted(launch.environment.items())), here
    if is_ray(config):
        # The group that is trained; what else is on how many GPUs is in the roles.
        for field, names in ACTOR_GROUP:
            count = setting(config, names, INTEGER)
            if count is not None or stated(config, names) is not None:
                yield field, count, origin_of(config, names)
        return
    if launch.nodes is not None:
        yield "launch.nodes", *launch.nodes
    if launch.gpus_per_node is not None:
        yield "launch.gpus_per_node", *launch.gpus_per_node
    if launch.meets is not None:
        yield "launch.meets", *launch.meets


LENSES: Final[tuple[Lens, ...]] = (
    flag_of("model.id", flag.MODEL, STRING),
    fixed("model.trust_remote_code", True),
    fixed("model.rope_scaling", "none"),
    switch("model.frozen_vision", ("--actor.freeze_visual_encoder", "--freeze_visual_encoder"), applies=is_ppo),
    method.STAGE,
    method.TUNING,
    flag_of("method.lora_alpha", ("--ds.lora.alpha", "--lora_alpha"), NUMBER, applies=method.trains_adapter),
    flag_of("method.lora_dropout", ("--ds.lora.dropout", "--lora_dropout"), NUMBER, applies=method.trains_adapter),
    method.QUANTIZATION,
    method.COMPUTE,
    method.ACCUMULATION,
    flag_of("optimizer.name", flag.OPTIMIZER, choice({"adam": "adamw", "muon": "muon"}), missing="adamw"),
    flag_of("optimizer.learning_rate", flag.RATE, NUMBER),
    flag_of("optimizer.clipping", ("--actor.max_norm", "--max_norm"), NUMBER),
    flag_of("batch.micro", ("--train.micro_batch_size", "--micro_train_batch_size"), INTEGER),
    flag_of("batch.global_", ("--train.batch_size", "--train_batch_size"), INTEGER),
    custom({"batch.epochs": keys_of(flag.EPISODES, flag.EPOCHS)}, _read_epochs, _write_epochs, _epochs_key),
    flag_of("batch.samples", ("--data.max_samples", "--max_samples"), INTEGER),
    custom(
        {"batch.tokens_per_gpu": keys_of(flag.TRAIN_TOKENS)},
        rollout.read_tokens(flag.TRAIN_TOKENS, "batch.tokens_per_gpu"),
        rollout.write_tokens(flag.TRAIN_TOKENS, "batch.tokens_per_gpu"),
    ),
    custom({"sequence.length": keys_of(flag.LENGTH)}, _read_length, _write_length, _length_terms),
    switch("sequence.packing", flag.PACKING),
    switch("activations.checkpointing", flag.CHECKPOINTING, "full", "none"),
    switch("activations.reentrant", flag.REENTRANT),
    custom({"activations.attention": keys_of(flag.ATTENTION, flag.FLASH)}, _read_attention, _write_attention),
    switch("activations.liger_layers", ("--ds.use_liger_kernel", "--use_liger_kernel")),
    switch("activations.compile", ("--ds.deepcompile", "--deepcompile", "--torch_compile")),
    fixed("activations.fused_loss", "none"),
    fixed("parallel.strategy", "zero"),
    flag_of("parallel.zero_stage", flag.STAGE, INTEGER),
    flag_of("parallel.tensor", ("--ds.tensor_parallel_size", "--ds_tensor_parallel_size"), INTEGER, missing=1),
    flag_of("parallel.context", ("--ds.ring_attn_size", "--ring_attn_size"), INTEGER, missing=1),
    flag_of("parallel.secondary_partition", ("--ds.zpg", "--zpg"), INTEGER, missing=1),
    fixed("parallel.offload_params", "none"),
    switch("parallel.offload_optimizer", flag.ADAM_OFFLOAD, "cpu", "none"),
    switch("method.reference_offload", flag.REFERENCE_OFFLOAD),
    fixed("parallel.pin_memory", True),
    custom(
        {field: keys_of(flag.NO_TRACE) if field in _WITHOUT_TRACE else () for field in _DEEPSPEED},
        _read_buckets,
        read_only,
    ),
    custom({"parallel.overlap_comm": keys_of(flag.OVERLAP)}, _read_overlap, _write_overlap),
    custom(
        dict.fromkeys(("checkpoint.strategy", "checkpoint.interval"), keys_of(flag.SAVE_STEPS)),
        _read_saving,
        _write_saving,
    ),
    flag_of("checkpoint.keep", ("--ckpt.max_num", "--max_ckpt_num"), INTEGER),
    fixed("checkpoint.rotates_first", True),  # utils/deepspeed/deepspeed.py, save_ckpt
    flag_of("checkpoint.path", ("--ckpt.path", "--ckpt_path"), STRING),
    flag_of("checkpoint.final_path", ("--ckpt.output_dir", "--save_path"), STRING),
    fixed("checkpoint.final", True),
    switch("checkpoint.hf_export", ("--ckpt.save_hf", "--save_hf_ckpt")),
    switch("checkpoint.deepspeed_checkpoint", ("--ckpt.disable_ds", "--disable_ds_ckpt"), False, True),
    switch("checkpoint.resume_latest", ("--ckpt.load_enable", "--load_checkpoint")),
    custom(
        {
            "eval.enabled": keys_of(flag.EVAL_DATA),
            "eval.strategy": keys_of(flag.EVAL_STEPS),
            "eval.interval": keys_of(flag.EVAL_STEPS),
        },
        _read_eval,
        _write_eval,
    ),
    flag_of("logging.interval", ("--logger.logging_steps", "--logging_steps"), INTEGER),
    flag_of("data.workers", ("--data.dataloader_num_workers", "--dataloader_num_workers"), INTEGER, missing=0),
    fixed("data.pin_memory", True),
    *rollout.LENSES,
    custom(
        {**dict.fromkeys(_LAUNCH, ()), **{field: keys_of(names) for field, names in ACTOR_GROUP}},
        _read_launch,
        read_only,
    ),
)
