"""Lenses between OpenRLHF's flags and the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_train.documents.document import MISSING, CannotEdit, Change, Route
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.codec import accept_unknown_folder, build_choice
from cfglint_train.frameworks.launchers import read_launch
from cfglint_train.frameworks.lens import Changes, Config, Lens, Triple
from cfglint_train.frameworks.lens_types import refuse_write
from cfglint_train.frameworks.openrlhf import method, rollout
from cfglint_train.frameworks.openrlhf import names as flag
from cfglint_train.frameworks.openrlhf.flags import (
    build_default_origin,
    find_name,
    find_route,
    get_invocation,
    get_value,
    is_ray,
    read_usage,
)
from cfglint_train.frameworks.openrlhf.lens import (
    INTEGER,
    NUMBER,
    STRING,
    build_custom,
    build_fixed,
    build_flag,
    build_routes,
    build_switch,
    find_origin,
    is_before,
    is_on,
    is_ppo,
    put_flag,
    read_setting,
    remove_flag,
)
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin

FlagNames = tuple[str, ...]

_ATTENTION: Final[Mapping[str, str]] = {
    "flash_attention_2": "flash",
    "flash_attention_3": "flash3",
    "flash_attention_4": "flash4",
    "sdpa": "sdpa",
    "eager": "eager",
    "flex_attention": "flex",
}


def _read_length(config: Config) -> Iterator[Triple]:
    if not _list_length_terms(config):
        yield from _read_single_length(config)
        return
    prompt, generated = (
        read_setting(config, flag.PROMPT_LENGTH, INTEGER),
        read_setting(config, flag.GENERATED_LENGTH, INTEGER),
    )
    if prompt is not None and generated is not None:
        origin = find_origin(config, flag.PROMPT_LENGTH)
        yield "sequence.length", prompt + generated, origin._replace(note=origin.note or "prompt plus generated tokens")


def _list_length_terms(config: Config) -> tuple[Route, ...]:
    """Return the flags whose sum is the length, or () if a single flag states the length.

    Up to 0.9.7, max_len is deprecated for PPO but still used if set.
    """
    if not is_ppo(config) or not is_before(config, "0.9.8") or get_value(config, flag.MAX_LENGTH) is not MISSING:
        return ()
    return build_routes(flag.PROMPT_LENGTH, flag.GENERATED_LENGTH)


def _read_single_length(config: Config) -> Iterator[Triple]:
    if find_name(config, flag.MAX_LENGTH) is not None or get_value(config, flag.MAX_LENGTH) is not MISSING:
        yield "sequence.length", read_setting(config, flag.MAX_LENGTH, INTEGER), find_origin(config, flag.MAX_LENGTH)


def _write_length(config: Config, changes: Changes) -> list[Change]:
    length = changes["sequence.length"]
    if not isinstance(length, int):
        raise CannotEdit("lengths are numbers of tokens")
    if _list_length_terms(config):
        raise CannotEdit("the length is prompt_max_len + generate_max_len")
    return put_flag(config, flag.MAX_LENGTH, str(length))


def _read_attention(config: Config) -> Iterator[Triple]:
    if find_name(config, flag.ATTENTION) is not None:
        name = read_setting(config, flag.ATTENTION, STRING)
        kernel = "flash" if isinstance(name, str) and "flash" in name else name
        yield "activations.attention", _ATTENTION.get(str(name), kernel), find_origin(config, flag.ATTENTION)
        return
    # models/actor.py up to 0.8.9: eager unless --flash_attn is set.
    flash = is_on(config, flag.FLASH_ATTENTION)
    if flash is not None:
        yield "activations.attention", "flash" if flash else "eager", find_origin(config, flag.FLASH_ATTENTION)


def _write_attention(config: Config, changes: Changes) -> list[Change]:
    wanted = changes["activations.attention"]
    if find_name(config, flag.ATTENTION) is not None:
        spelling = next((name for name, plan_value in _ATTENTION.items() if plan_value == wanted), None)
        if spelling is None:
            raise CannotEdit(f"OpenRLHF has no attention called {wanted}")
        return put_flag(config, flag.ATTENTION, spelling)
    if wanted == "flash":
        return put_flag(config, flag.FLASH_ATTENTION, True)
    if wanted == "eager":
        return remove_flag(config, flag.FLASH_ATTENTION)
    raise CannotEdit(f"OpenRLHF {read_usage(config).release} has only flash and eager attention")


def _read_overlap(config: Config) -> Iterator[Triple]:
    # Without the flag, DeepSpeed decides based on the ZeRO stage (deepspeed.engine).
    if is_on(config, flag.OVERLAP_COMM):
        yield "parallel.overlap_comm", True, find_origin(config, flag.OVERLAP_COMM)


def _write_overlap(config: Config, changes: Changes) -> list[Change]:
    if changes["parallel.overlap_comm"] is True:
        return put_flag(config, flag.OVERLAP_COMM, True)
    if is_on(config, flag.OVERLAP_COMM):
        return remove_flag(config, flag.OVERLAP_COMM)
    raise CannotEdit("no flag turns overlap off")


_TRACE_CACHE_FIELDS: Final[tuple[Field, ...]] = (
    "parallel.prefetch_bucket", "parallel.max_live_parameters", "parallel.max_reuse_distance"
)  # fmt: skip


def _read_buckets(config: Config) -> Iterator[Triple]:
    """Yield DeepSpeed's own defaults, for which OpenRLHF writes "auto" (runtime/config_utils.py drops it)."""
    origin = Origin(
        "default", note=f"openrlhf {read_usage(config).release} leaves it to DeepSpeed", framework="openrlhf"
    )
    for field, value in _DEEPSPEED_DEFAULTS.items():
        yield field, value, origin
    if is_on(config, flag.NO_TRACE_CACHE):
        for field in _TRACE_CACHE_FIELDS:
            yield field, 0, find_origin(config, flag.NO_TRACE_CACHE)


# DeepSpeed 0.19.8 runtime/zero/config.py, unchanged since 0.12; sizes in elements.
_DEEPSPEED_DEFAULTS: Final[Mapping[Field, Any]] = {
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
    steps, origin = read_setting(config, flag.SAVE_STEPS, INTEGER), find_origin(config, flag.SAVE_STEPS)
    if steps is None:
        if find_route(config, flag.SAVE_STEPS) is not None:
            yield "checkpoint.strategy", None, origin
        return
    yield "checkpoint.strategy", "no" if steps < 0 else "steps", origin
    if steps >= 0:
        yield "checkpoint.interval", steps, origin


def _get_epoch_flags(config: Config) -> flag.Names:
    """Return the flags that set the passes over the data; in PPO, `max_epochs` counts passes over one rollout."""
    return flag.EPISODES if is_ppo(config) else flag.EPOCHS


def _read_epochs(config: Config) -> Iterator[Triple]:
    names = _get_epoch_flags(config)
    yield "batch.epochs", read_setting(config, names, INTEGER), find_origin(config, names)


def _find_epoch_flag(config: Config) -> tuple[Route, ...]:
    """Return the epoch flag as the script spells it, or would spell it."""
    names = _get_epoch_flags(config)
    route, name = find_route(config, names), find_name(config, names)
    return (route,) if route is not None else ((name,),) if name is not None else ()


def _write_epochs(config: Config, changes: Changes) -> list[Change]:
    if not float(changes["batch.epochs"]).is_integer():
        raise CannotEdit("OpenRLHF trains on whole epochs")
    return put_flag(config, _get_epoch_flags(config), str(int(changes["batch.epochs"])))


def _write_saving(config: Config, changes: Changes) -> list[Change]:
    strategy = changes.get("checkpoint.strategy", "steps")
    interval = changes.get("checkpoint.interval")
    if strategy == "steps" and isinstance(interval, int) and interval > 0:
        if "checkpoint.strategy" not in changes and (read_setting(config, flag.SAVE_STEPS, INTEGER) or -1) < 0:
            raise CannotEdit("the run saves no checkpoints")
        return put_flag(config, flag.SAVE_STEPS, str(interval))
    raise CannotEdit("OpenRLHF saves at a step interval or not at all")


def _read_eval(config: Config) -> Iterator[Triple]:
    if find_name(config, flag.EVAL_DATA) is not None:
        dataset = get_value(config, flag.EVAL_DATA)
        if dataset is MISSING and read_usage(config).has_hidden_flags:
            return
        enabled, origin = dataset is not MISSING, find_origin(config, flag.EVAL_DATA)
    else:
        # Releases before 0.7.0 evaluate a split of the training data; PPO does not evaluate.
        enabled, origin = not is_ppo(config), build_default_origin(config, flag.EVAL_STEPS)
    yield "eval.enabled", enabled, origin
    steps = read_setting(config, flag.EVAL_STEPS, INTEGER)
    if not enabled:
        yield "eval.strategy", "no", origin
    elif steps is not None:
        # -1 means once per epoch; in PPO from 0.8.1 on, never.
        fallback = "no" if is_ppo(config) and not is_before(config, "0.8.1") else "epoch"
        yield "eval.strategy", "steps" if steps >= 0 else fallback, find_origin(config, flag.EVAL_STEPS)
        if steps >= 0:
            yield "eval.interval", steps, find_origin(config, flag.EVAL_STEPS)


def _write_eval(config: Config, changes: Changes) -> list[Change]:
    interval = changes.get("eval.interval")
    if changes.keys() != {"eval.interval"} or not isinstance(interval, int) or interval < 1:
        raise CannotEdit("only the number of steps between evaluations has a flag")
    if find_name(config, flag.EVAL_DATA) is not None and get_value(config, flag.EVAL_DATA) is MISSING:
        raise CannotEdit("the run does not evaluate")
    return put_flag(config, flag.EVAL_STEPS, str(interval))


ACTOR_GROUP: Final[tuple[tuple[Field, FlagNames], ...]] = (
    ("launch.nodes", flag.list_node_flags("actor")),
    ("launch.gpus_per_node", flag.list_gpu_flags("actor")),
)


_LAUNCH_FIELDS: Final[tuple[Field, ...]] = (
    "launch.launcher",
    "launch.environment",
    "launch.working_copy",
    "launch.meets",
)


def _read_launch(config: Config) -> Iterator[Triple]:
    invocation = get_invocation(config.document, config.root)
    if invocation is None or not isinstance(config.document, ShellDocument):
        return
    launch = read_launch(config.document, invocation)
    yield from launch.list_common_fields(Origin("explicit", config.find_top(), framework="openrlhf"))
    if is_ray(config):
        # Only the actor group, which is trained; the roles hold the other models and their GPUs.
        for field, names in ACTOR_GROUP:
            count = read_setting(config, names, INTEGER)
            if count is not None or find_route(config, names) is not None:
                yield field, count, find_origin(config, names)
        return
    if launch.nodes is not None:
        yield "launch.nodes", *launch.nodes
    if launch.gpus_per_node is not None:
        yield "launch.gpus_per_node", *launch.gpus_per_node
    if launch.rendezvous is not None:
        yield "launch.meets", *launch.rendezvous


LENSES: Final[tuple[Lens, ...]] = (
    build_flag("model.id", flag.MODEL, accept_unknown_folder(STRING)),
    build_fixed("model.trust_remote_code", True),
    build_fixed("model.rope_scaling", "none"),
    build_switch("model.frozen_vision", ("--actor.freeze_visual_encoder", "--freeze_visual_encoder"), applies=is_ppo),
    method.STAGE,
    method.TUNING,
    build_flag("method.lora_alpha", ("--ds.lora.alpha", "--lora_alpha"), NUMBER, applies=method.has_adapter),
    build_flag("method.lora_dropout", ("--ds.lora.dropout", "--lora_dropout"), NUMBER, applies=method.has_adapter),
    method.QUANTIZATION,
    method.COMPUTE,
    method.ACCUMULATION,
    build_flag("optimizer.name", flag.OPTIMIZER, build_choice({"adam": "adamw", "muon": "muon"}), default="adamw"),
    build_flag("optimizer.learning_rate", flag.LEARNING_RATE, NUMBER),
    build_flag("optimizer.clipping", ("--actor.max_norm", "--max_norm"), NUMBER),
    build_flag("batch.micro", ("--train.micro_batch_size", "--micro_train_batch_size"), INTEGER),
    build_flag("batch.global_", ("--train.batch_size", "--train_batch_size"), INTEGER),
    build_custom(
        {"batch.epochs": build_routes(flag.EPISODES, flag.EPOCHS)}, _read_epochs, _write_epochs, _find_epoch_flag
    ),
    build_flag("batch.samples", ("--data.max_samples", "--max_samples"), INTEGER),
    build_custom(
        {"batch.tokens_per_gpu": build_routes(flag.TRAIN_TOKENS)},
        rollout.build_token_reader(flag.TRAIN_TOKENS, "batch.tokens_per_gpu"),
        rollout.build_token_writer(flag.TRAIN_TOKENS, "batch.tokens_per_gpu"),
    ),
    build_custom({"sequence.length": build_routes(flag.MAX_LENGTH)}, _read_length, _write_length, _list_length_terms),
    build_switch("sequence.packing", flag.PACKING),
    build_switch("activations.checkpointing", flag.CHECKPOINTING, "full", "none"),
    build_switch("activations.reentrant", flag.REENTRANT),
    build_custom(
        {"activations.attention": build_routes(flag.ATTENTION, flag.FLASH_ATTENTION)}, _read_attention, _write_attention
    ),
    build_switch("activations.liger_layers", ("--ds.use_liger_kernel", "--use_liger_kernel")),
    build_switch("activations.compile", ("--ds.deepcompile", "--deepcompile", "--torch_compile")),
    build_fixed("activations.fused_loss", "none"),
    build_fixed("parallel.strategy", "zero"),
    build_flag("parallel.zero_stage", flag.ZERO_STAGE, INTEGER),
    build_flag("parallel.tensor", ("--ds.tensor_parallel_size", "--ds_tensor_parallel_size"), INTEGER, default=1),
    build_flag("parallel.context", ("--ds.ring_attn_size", "--ring_attn_size"), INTEGER, default=1),
    build_flag("parallel.secondary_partition", ("--ds.zpg", "--zpg"), INTEGER, default=1),
    build_fixed("parallel.offload_params", "none"),
    build_switch("parallel.offload_optimizer", flag.ADAM_OFFLOAD, "cpu", "none"),
    build_switch("method.reference_offload", flag.REFERENCE_OFFLOAD),
    build_fixed("parallel.pin_memory", True),
    build_custom(
        {
            field: build_routes(flag.NO_TRACE_CACHE) if field in _TRACE_CACHE_FIELDS else ()
            for field in _DEEPSPEED_DEFAULTS
        },
        _read_buckets,
        refuse_write,
    ),
    build_custom({"parallel.overlap_comm": build_routes(flag.OVERLAP_COMM)}, _read_overlap, _write_overlap),
    build_custom(
        dict.fromkeys(("checkpoint.strategy", "checkpoint.interval"), build_routes(flag.SAVE_STEPS)),
        _read_saving,
        _write_saving,
    ),
    build_flag("checkpoint.keep", ("--ckpt.max_num", "--max_ckpt_num"), INTEGER),
    build_fixed("checkpoint.rotates_first", True),  # utils/deepspeed/deepspeed.py, save_ckpt
    build_flag("checkpoint.path", ("--ckpt.path", "--ckpt_path"), STRING),
    build_flag("checkpoint.final_path", ("--ckpt.output_dir", "--save_path"), STRING),
    build_fixed("checkpoint.final", True),
    build_switch("checkpoint.hf_export", ("--ckpt.save_hf", "--save_hf_ckpt")),
    build_switch("checkpoint.deepspeed_checkpoint", ("--ckpt.disable_ds", "--disable_ds_ckpt"), False, True),
    build_switch("checkpoint.resume_latest", ("--ckpt.load_enable", "--load_checkpoint")),
    build_custom(
        {
            "eval.enabled": build_routes(flag.EVAL_DATA),
            "eval.strategy": build_routes(flag.EVAL_STEPS),
            "eval.interval": build_routes(flag.EVAL_STEPS),
        },
        _read_eval,
        _write_eval,
    ),
    build_flag("logging.interval", ("--logger.logging_steps", "--logging_steps"), INTEGER),
    build_flag("data.workers", ("--data.dataloader_num_workers", "--dataloader_num_workers"), INTEGER, default=0),
    build_fixed("data.pin_memory", True),
    *rollout.LENSES,
    build_custom(
        {**dict.fromkeys(_LAUNCH_FIELDS, ()), **{field: build_routes(names) for field, names in ACTOR_GROUP}},
        _read_launch,
        refuse_write,
    ),
)
