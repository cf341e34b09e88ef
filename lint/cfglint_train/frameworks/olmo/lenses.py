"""Lenses between OLMo's keys and the plan."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from cfglint_train.documents.document import CannotEdit, Change
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.codec import Codec, UnreadableError
from cfglint_train.frameworks.lens import Changes, Config, Triple, build_default_origin, resolve_default
from cfglint_train.frameworks.lens_types import NOT_STATED, Custom, StatedValue, refuse_write
from cfglint_train.frameworks.loaders import OMEGACONF
from cfglint_train.frameworks.olmo import activations, checkpoints, parallel
from cfglint_train.frameworks.olmo.defaults import DEFAULTS
from cfglint_train.frameworks.olmo.settings import build_key, find, is_resolved, read_value, write_key
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin

# Behavior of OLMo's trainer that no configuration can change.
_FIXED_FIELDS: Final[Mapping[Field, Any]] = {
    "method.stage": "pretrain",
    "method.tuning": "full",
    "method.quantization": "none",
    "sequence.packing": True,
    "sequence.padding": "max_length",
    "activations.offload": "none",
    "activations.reentrant": False,
    "activations.keeps_outputs": False,
    "parallel.tensor": 1,
    "parallel.pipeline": 1,
    "parallel.context": 1,
    "parallel.expert": 1,
    "parallel.offload_params": "none",
    "parallel.offload_optimizer": "none",
    "checkpoint.model_only": False,
    "checkpoint.asynchronous": False,
    "checkpoint.state_dict": "sharded",
}


def _read_fixed(config: Config) -> Iterator[Triple]:
    origin = Origin("default", note=f"olmo {config.release} trains all weights", framework=config.framework)
    for field, value in _FIXED_FIELDS.items():
        yield field, value, origin


# Keys of `model` that determine parameters, tensors and the activations that a layer keeps.
_ARCHITECTURE_KEYS: Final[Mapping[str, Codec]] = {
    "d_model": OMEGACONF.integer,
    "n_heads": OMEGACONF.integer,
    "n_kv_heads": OMEGACONF.integer,
    "n_layers": OMEGACONF.integer,
    "mlp_ratio": OMEGACONF.integer,
    "mlp_hidden_size": OMEGACONF.integer,
    "activation_type": OMEGACONF.string,
    "block_type": OMEGACONF.string,
    "block_group_size": OMEGACONF.integer,
    "alibi": OMEGACONF.boolean,
    "rope": OMEGACONF.boolean,
    "clip_qkv": OMEGACONF.number,
    "multi_query_attention": OMEGACONF.boolean,
    "attention_layer_norm": OMEGACONF.boolean,
    "attention_layer_norm_with_affine": OMEGACONF.boolean,
    "embedding_layer_norm": OMEGACONF.boolean,
    "layer_norm_type": OMEGACONF.string,
    "layer_norm_with_affine": OMEGACONF.boolean,
    "max_sequence_length": OMEGACONF.integer,
    "include_bias": OMEGACONF.boolean,
    "bias_for_layer_norm": OMEGACONF.boolean,
    "vocab_size": OMEGACONF.integer,
    "embedding_size": OMEGACONF.integer,
    "weight_tying": OMEGACONF.boolean,
    "norm_after": OMEGACONF.boolean,
}


def _read_architecture(config: Config) -> Iterator[Triple]:
    dimensions = []
    for name, codec in _ARCHITECTURE_KEYS.items():
        stated = find(config, ("model", name))
        value = stated.value if isinstance(stated, StatedValue) else None
        if stated is NOT_STATED:
            value = resolve_default(config, DEFAULTS["model", name])
        elif not isinstance(stated, StatedValue):
            return
        if value is not None:
            try:
                value = codec.read(value)
            except UnreadableError:
                return
        dimensions.append((name, value))
    origin = config.get_origin("model")._replace(kind="inferred", note="the model section")
    yield "model.architecture", tuple(dimensions), origin


def _list_evaluators(config: Config) -> list[Any]:
    evaluators = config.get("evaluators")
    return evaluators if isinstance(evaluators, list) else []


def _is_task(evaluator: Any) -> bool:
    return isinstance(evaluator, dict) and evaluator.get("type") == "downstream"


def _read_eval_micro(config: Config) -> Iterator[Triple]:
    """Yield the largest evaluation batch: an evaluator's own size, or `device_eval_batch_size`.

    Downstream tasks are skipped, because their samples have their own lengths (eval/downstream.py). If all evaluators
    are tasks, the batch is unknown.
    """
    largest, origin = read_value(config, "device_eval_batch_size", OMEGACONF.integer)
    evaluators = _list_evaluators(config)
    if evaluators and all(map(_is_task, evaluators)):
        yield "batch.eval_micro", None, origin
        return
    for index, evaluator in enumerate(evaluators):
        if _is_task(evaluator):
            continue
        route = ("evaluators", index, "device_eval_batch_size")
        stated = find(config, route) if isinstance(evaluator, dict) else NOT_STATED
        if not isinstance(stated, StatedValue) or stated.value is None:
            continue
        micro = OMEGACONF.integer.read_or_none(stated.value)
        if micro is None:
            continue
        if stated.origin.kind == "inferred":
            # This batch follows another setting, so the largest batch may follow it too.
            origin = origin._replace(kind="inferred")
        if largest is None or micro > largest:
            largest, origin = micro, stated.origin
    yield "batch.eval_micro", largest, origin


def _write_eval_micro(config: Config, changes: Changes) -> list[Change]:
    value, evaluators = changes["batch.eval_micro"], _list_evaluators(config)
    if evaluators and all(map(_is_task, evaluators)):
        raise CannotEdit("all evaluators are tasks, which size their own batches")
    stated_sizes = [
        evaluator.get("device_eval_batch_size")
        for evaluator in evaluators
        if isinstance(evaluator, dict)
        and not _is_task(evaluator)
        and evaluator.get("device_eval_batch_size") is not None
    ]
    if any(not isinstance(micro, int) or micro > value for micro in stated_sizes):
        raise CannotEdit("an evaluator sets its own device_eval_batch_size")
    return write_key(config, "device_eval_batch_size", value, ("device_train_microbatch_size",))


# optim.build_optimizer: AdamW runs torch's own step (foreach) unless one of two options needs a loop in Python.
def _read_optimizer(config: Config) -> Iterator[Triple]:
    name, origin = read_value(config, "optimizer.name", OMEGACONF.string)
    optimizer = name.removeprefix("OptimizerType.") if isinstance(name, str) else name
    yield "optimizer.stated_name", optimizer, origin
    if optimizer in ("lionw", "decoupled_lionw"):
        yield "optimizer.name", "lion", origin
        yield "optimizer.implementation", "custom", origin
    elif optimizer == "adamw":
        options = ("optimizer.record_update_metrics", "optimizer.selective_updates")
        needs_loop = any(read_value(config, option, OMEGACONF.boolean)[0] for option in options)
        yield "optimizer.name", "adamw", origin
        yield "optimizer.implementation", "single" if needs_loop else "foreach", origin
    yield "optimizer.paged", False, origin


def _read_eval(config: Config) -> Iterator[Triple]:
    evaluators = config.get("evaluators")
    has_evaluators = bool(evaluators) if isinstance(evaluators, list) else False
    origin = (
        config.get_origin("evaluators") if config.has("evaluators") else build_default_origin(config, ("evaluators",))
    )
    yield "eval.enabled", has_evaluators, origin
    yield "eval.strategy", "steps" if has_evaluators else "no", origin


def _read_metrics(config: Config) -> Iterator[Triple]:
    """Yield whether optimizer metrics are logged, and the interval (Trainer.should_log_optim_metrics_this_step).

    They are logged only with W&B. The interval is the larger of `optimizer.metrics_log_interval` and
    `wandb.log_interval`.
    """
    wandb = find(config, ("wandb",))
    has_wandb = isinstance(wandb, StatedValue) and wandb.value is not None
    if isinstance(wandb, StatedValue) or wandb is NOT_STATED:
        origin = wandb.origin if isinstance(wandb, StatedValue) else build_default_origin(config, ("wandb",))
        yield "logging.metrics_enabled", has_wandb, origin
    interval, origin = read_value(config, "optimizer.metrics_log_interval", OMEGACONF.integer)
    if interval is None and not is_resolved(config, "optimizer.metrics_log_interval"):
        return
    wandb_interval, wandb_origin = _read_wandb_interval(config) if has_wandb else (1, origin)
    if wandb_interval is not None:
        interval_origin = wandb_origin if wandb_interval > (interval or 1) else origin
        if wandb_origin.kind == "inferred":
            # `wandb.log_interval` follows another setting, so it may become the larger or the smaller interval.
            interval_origin = interval_origin._replace(kind="inferred")
        yield "logging.metrics_interval", max(interval or 1, wandb_interval), interval_origin


def _read_wandb_interval(config: Config) -> tuple[int | None, Origin]:
    """Return `wandb.log_interval` and its origin; the interval is None if it cannot be determined."""
    stated = find(config, ("wandb", "log_interval"))
    if not isinstance(stated, StatedValue):
        return (1 if stated is NOT_STATED else None), build_default_origin(config, ("wandb", "log_interval"))
    return OMEGACONF.integer.read_or_none(stated.value), stated.origin


def _write_metrics(config: Config, changes: Changes) -> list[Change]:
    if set(changes) != {"logging.metrics_interval"}:
        raise CannotEdit("W&B is turned on by its own section")
    value = changes["logging.metrics_interval"]
    current_values = {field: current for field, current, _ in _read_metrics(config)}
    wandb_interval = _read_wandb_interval(config)[0] if current_values.get("logging.metrics_enabled") else 1
    if wandb_interval is None or value < wandb_interval:
        raise CannotEdit("wandb.log_interval is larger, or cannot be determined")
    return write_key(config, "optimizer.metrics_log_interval", value, ("eps", "learning_rate", "name"))


def _read_profiler(config: Config) -> Iterator[Triple]:
    for name in ("torch_profiling", "python_profiling"):
        value, origin = read_value(config, name, OMEGACONF.boolean)
        if value or name == "python_profiling":
            yield "logging.profiler", value, origin
            return


def _parse_device(value: Any) -> str:
    if isinstance(value, str):
        return value.split(":")[0]
    raise UnreadableError


def _refuse_length(config: Config, changes: Changes) -> list[Change]:
    raise CannotEdit("OLMo requires data of length model.max_sequence_length; change both together")


def _parse_number(value: Any) -> int:
    """Convert a number or a string to an integer; strings go through float, because `int` rejects `1e4`."""
    if isinstance(value, str):
        try:
            return int(float(value))
        except (ValueError, OverflowError):
            raise UnreadableError from None
    number: int = OMEGACONF.integer.read(value)
    return number


_NUMBER_CODEC: Final = Codec(_parse_number)


def _read_duration(config: Config) -> Iterator[Triple]:
    """Yield the duration (Trainer.max_steps): steps, or tokens (`2e12T`).

    The steps of an epoch (`1ep`) depend on the data and stay unknown.
    """
    value, origin = read_value(config, "max_duration", Codec(lambda value: value))
    if isinstance(value, str) and value.endswith("T"):
        yield "batch.tokens", _NUMBER_CODEC.read_or_none(value[:-1].strip()), origin
    yield "batch.steps", _NUMBER_CODEC.read_or_none(value), origin


def _read_warmup(config: Config) -> Iterator[Triple]:
    """Yield the warm-up in steps, unless `scheduler.units: tokens` counts it in tokens."""
    units, _ = read_value(config, "scheduler.units", OMEGACONF.string)
    if units == "steps":
        number, origin = read_value(config, "scheduler.t_warmup", OMEGACONF.number)
        is_known_steps = number is not None and math.isfinite(number) and not _is_continuing_warmup(config)
        yield "optimizer.warmup_steps", int(number) if is_known_steps else None, origin


def _is_continuing_warmup(config: Config) -> bool:
    """Return whether an unknown number of steps before the run counts towards the warm-up.

    With `restore_dataloader: false`, releases before 0.6.0 reset the tokens seen but keep the global step of the loaded
    checkpoint (`olmo/train.py`, load_trainer_state_dict).
    """
    has_load_path = config.has("load_path") and config.get("load_path") is not None
    restores_dataloader, _ = read_value(config, "restore_dataloader", OMEGACONF.boolean)
    return (
        has_load_path and restores_dataloader is not True and config.releases.is_at_least("olmo", "0.6.0") is not True
    )


def _write_warmup(config: Config, changes: Changes) -> list[Change]:
    return write_key(config, "scheduler.t_warmup", changes["optimizer.warmup_steps"], ("name", "alpha_f"))


_SCHEDULES: Final = {
    "cosine_with_warmup": "cosine",
    "linear_with_warmup": "linear",
    "inverse_sqrt_with_warmup": "inverse_sqrt",
    "constant": "constant",
}


def _read_schedule(config: Config) -> Iterator[Triple]:
    name = config.get_value("scheduler", "name")
    if isinstance(name, str):
        yield "optimizer.scheduler", _SCHEDULES.get(name), config.get_origin("scheduler", "name")


_LENGTH_LENS: Final = build_key("sequence.length", "model.max_sequence_length", OMEGACONF.integer)

_DEVICE_CODEC: Final = Codec(_parse_device, lambda value: value)


LENSES: Final = (
    Custom(dict.fromkeys(_FIXED_FIELDS, ()), _read_fixed, refuse_write),
    Custom(
        {"model.architecture": tuple(("model", name) for name in _ARCHITECTURE_KEYS)}, _read_architecture, refuse_write
    ),
    build_key(
        "model.init_device", "model.init_device", _DEVICE_CODEC, null="cpu", beside=("pad_token_id", "embedding_size")
    ),
    build_key("precision.compute", "precision", parallel.PRECISION_CODEC),
    build_key("batch.micro", "device_train_microbatch_size", OMEGACONF.integer, beside=("global_train_batch_size",)),
    build_key("batch.global_", "global_train_batch_size", OMEGACONF.integer),
    Custom(
        {"batch.eval_micro": (("device_eval_batch_size",), ("evaluators",))},
        _read_eval_micro,
        _write_eval_micro,
    ),
    Custom(_LENGTH_LENS.keys, _LENGTH_LENS.read, _refuse_length),
    *activations.LENSES,
    Custom(
        {
            "optimizer.name": (("optimizer", "name"),),
            "optimizer.implementation": (
                ("optimizer", "name"),
                ("optimizer", "record_update_metrics"),
                ("optimizer", "selective_updates"),
            ),
            "optimizer.paged": (),
            "optimizer.stated_name": (("optimizer", "name"),),
        },
        _read_optimizer,
        refuse_write,
    ),
    Custom({"optimizer.scheduler": (("scheduler", "name"),)}, _read_schedule, refuse_write),
    Custom({"optimizer.warmup_steps": (("scheduler", "t_warmup"),)}, _read_warmup, _write_warmup),
    build_key("optimizer.clipping", "max_grad_norm", OMEGACONF.number, null=0.0, beside=("precision",)),
    *parallel.LENSES,
    *checkpoints.LENSES,
    build_key("eval.interval", "eval_interval", OMEGACONF.integer),
    Custom(dict.fromkeys(("eval.enabled", "eval.strategy"), (("evaluators",),)), _read_eval, refuse_write),
    Custom(dict.fromkeys(("batch.steps", "batch.tokens"), (("max_duration",),)), _read_duration, refuse_write),
    build_key("logging.interval", "console_log_interval", OMEGACONF.integer, beside=("speed_monitor",)),
    Custom(
        {
            "logging.metrics_interval": (("optimizer", "metrics_log_interval"), ("wandb", "log_interval")),
            "logging.metrics_enabled": (("wandb",),),
        },
        _read_metrics,
        _write_metrics,
    ),
    build_key("logging.cancel_check_interval", "canceled_check_interval", OMEGACONF.integer),
    build_key("logging.gc_interval", "gen1_gc_interval", checkpoints.INTERVAL, null=0),
    Custom({"logging.profiler": (("torch_profiling",), ("python_profiling",))}, _read_profiler, refuse_write),
    build_key("data.workers", "data.num_workers", OMEGACONF.integer, beside=("drop_last",)),
    build_key("data.prefetch", "data.prefetch_factor", OMEGACONF.integer, null=2, beside=("num_workers",)),
    build_key("data.pin_memory", "data.pin_memory", OMEGACONF.boolean, beside=("num_workers",)),
    build_key("data.token_dtype", "data.memmap_dtype", OMEGACONF.string, beside=("persistent_workers", "pin_memory")),
)
