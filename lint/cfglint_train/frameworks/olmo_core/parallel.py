"""Lenses for number formats and parallelism of OLMo-core."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import CannotEdit, Change, Route
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.codec import bound_below, build_enumeration, parse_member_name
from cfglint_train.frameworks.lens import Changes, Config, Triple, build_default_origin
from cfglint_train.frameworks.lens_types import NOT_STATED, UNRESOLVED, Custom, LookupResult, StatedValue, refuse_write
from cfglint_train.frameworks.lens_types import PLAIN as PLAIN_KEYS
from cfglint_train.frameworks.loaders import PLAIN
from cfglint_train.frameworks.olmo_core.recognise import TRAIN_MODULE_PATH
from cfglint_train.frameworks.olmo_core.settings import (
    DTYPES,
    build_key,
    find,
    find_first,
    has_train_module,
    is_resolved,
    parse_dtype,
    set_member,
    split_route,
)
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin


def _read_precision(config: Config) -> Iterator[Triple]:
    """Yield the compute format, and whether autocast is on.

    The first of these that is set decides: FP8 matmuls, autocast, `param_dtype` of the data-parallel section, the dtype
    of the model.
    """
    section = _find_data_parallel(config)
    if section is UNRESOLVED:
        return
    param_dtype = find_first(config, "train_module.dp_config.param_dtype", "model.dp_config.param_dtype")
    weights = parse_dtype(find_first(config, "model.dtype")) or "fp32"
    autocast = find_first(config, "train_module.autocast_precision", "trainer.autocast_precision")
    eight_bit = _find_float8(config)
    if eight_bit is not None:
        yield "precision.compute", "fp8", eight_bit
    elif autocast is not None and autocast[0] is not None:
        yield "precision.compute", parse_dtype(autocast), autocast[1]
    elif param_dtype is not None and param_dtype[0] is not None:
        yield "precision.compute", parse_dtype(param_dtype), param_dtype[1]
    elif is_resolved(config, "train_module.dp_config.param_dtype"):
        yield (
            "precision.compute",
            weights,
            build_default_origin(config, split_route("train_module.dp_config.param_dtype")),
        )
    has_autocast = autocast is not None and autocast[0] is not None
    if not has_autocast and not is_resolved(config, "train_module.autocast_precision"):
        return
    origin = (
        autocast[1]
        if has_autocast and autocast
        else build_default_origin(config, split_route("train_module.autocast_precision"))
    )
    yield "precision.autocast", has_autocast, origin


def _find_float8(config: Config) -> Origin | None:
    """Return the origin of the section that turns on FP8 matmuls, or None if they are off."""
    for route in (("train_module", "float8_config"), ("model", "float8_config")):
        section = find(config, route)
        if isinstance(section, StatedValue) and isinstance(section.value, dict):
            enabled = section.value.get("enabled", True)
            if enabled is True:
                return section.origin
    return None


def _find_data_parallel(config: Config) -> Any:
    """Return the route of the data-parallel section, None if there is none, UNRESOLVED if it cannot be determined."""
    for route in (("train_module", "dp_config"), ("model", "dp_config")):
        section = find(config, route)
        if isinstance(section, StatedValue):
            return route if isinstance(section.value, dict) else None
    return UNRESOLVED if find(config, ("train_module", "dp_config")) is UNRESOLVED else None


_KINDS: Final = {"fsdp": ("fsdp2", "full_shard"), "hsdp": ("fsdp2", "hybrid_shard"), "ddp": ("ddp", None)}

_WRAPPING: Final = {"full": "block_and_size", "blocks": "block", "fine_grained": "block_and_size"}


def _read_parallel(config: Config) -> Iterator[Triple]:
    route = _find_data_parallel(config)
    if route is UNRESOLVED:
        return
    if route is None:
        dp_config = find(config, ("train_module", "dp_config"))
        origin = (
            dp_config.origin
            if isinstance(dp_config, StatedValue)
            else build_default_origin(config, ("train_module", "dp_config"))
        )
        yield "parallel.strategy", "none", origin
        return
    name = find(config, (*route, "name"))
    if not isinstance(name, StatedValue):
        return
    kind = _KINDS.get(parse_member_name(name.value)) if isinstance(name.value, str) else None
    yield "parallel.strategy", kind[0] if kind else None, name.origin
    if kind is None or kind[1] is None:
        return
    yield "parallel.sharding", kind[1], name.origin
    wrapping = find(config, (*route, "wrapping_strategy"))
    if isinstance(wrapping, StatedValue):
        meaning = _WRAPPING.get(parse_member_name(wrapping.value)) if isinstance(wrapping.value, str) else None
        yield "parallel.wrapping", meaning, wrapping.origin
    elif wrapping is NOT_STATED:
        yield "parallel.wrapping", "block_and_size", build_default_origin(config, (*route, "wrapping_strategy"))
    pipeline = find(config, ("train_module", "pp_config"))
    if pipeline is not UNRESOLVED:
        is_pipelined = isinstance(pipeline, StatedValue) and pipeline.value is not None
        # apply_fsdp: pipeline stages keep their weights gathered between micro batches.
        yield "parallel.reshard_after_forward", not is_pipelined, name.origin
        if is_pipelined:
            yield "parallel.defers_reduction", True, name.origin


def _write_parallel(config: Config, changes: Changes) -> list[Change]:
    route = _find_data_parallel(config)
    if set(changes) != {"parallel.wrapping"} or not isinstance(route, tuple):
        raise CannotEdit("dp_config sets it together with other settings")
    value = {"block_and_size": "full", "block": "blocks"}.get(changes["parallel.wrapping"])
    if value is None:
        raise CannotEdit(f"OLMo-core has no wrapping {changes['parallel.wrapping']!r}")
    return set_member(
        config,
        (*route, "wrapping_strategy"),
        ("TransformerDataParallelWrappingStrategy", value, TRAIN_MODULE_PATH),
        ("reduce_dtype", "param_dtype", "name"),
    )


# PipelineScheduleType -> schedule; a custom schedule runs in the order of the schedule that it is named after.
_SCHEDULES: Final = {
    "single_1f1b": "1f1b", "custom_1f1b": "1f1b", "gpipe": "gpipe", "looped_bfs": "looped_bfs",
    "interleaved_1f1b": "interleaved_1f1b", "custom_interleaved_1f1b": "interleaved_1f1b",
    "interleaved_zero_bubble": "zero_bubble", "zbv_zero_bubble": "zbv", "custom_1f1b_v": "zbv",
    "1f1b": "1f1b", "interleaved1f1b": "interleaved_1f1b", "loopedbfs": "looped_bfs",
    "interleavedzerobubble": "zero_bubble", "zbvzerobubble": "zbv", "custom1f1b": "1f1b",
    "custominterleaved1f1b": "interleaved_1f1b", "custom1f1bv": "zbv",
}  # fmt: skip


def _read_schedule(config: Config) -> Iterator[Triple]:
    """Yield the pipeline schedule and the stages per rank: one or two, unless split points are stated."""
    section = find(config, ("train_module", "pp_config"))
    if not isinstance(section, StatedValue) or section.value is None:
        return
    route = ("train_module", "pp_config", "schedule")
    stated = find(config, route)
    if stated is UNRESOLVED:
        return
    if isinstance(stated, StatedValue):
        schedule = _SCHEDULES.get(parse_member_name(stated.value).lower()) if isinstance(stated.value, str) else None
        origin = stated.origin
    else:
        schedule, origin = "interleaved_1f1b", build_default_origin(config, route)
    yield "parallel.schedule", schedule, origin
    if find(config, ("train_module", "pp_config", "split_points")) is NOT_STATED and schedule is not None:
        yield "parallel.stages", 1 if schedule in ("1f1b", "gpipe") else 2, origin._replace(kind="inferred")


_DEGREE: Final = bound_below(1, PLAIN.integer)


def _build_degree_lens(field: Field, key: str, null: int = 1) -> Custom:
    """Return the lens of a model-parallel degree; `null` is the degree if its section is absent or null."""

    def read(config: Config) -> Iterator[Triple]:
        section = find(config, ("train_module", key))
        if section is UNRESOLVED:
            return
        if not isinstance(section, StatedValue) or section.value is None:
            origin = (
                section.origin
                if isinstance(section, StatedValue)
                else build_default_origin(config, ("train_module", key))
            )
            if has_train_module(config) or section is not NOT_STATED:
                yield field, null, origin
            return
        degree = find(config, ("train_module", key, "degree"))
        if isinstance(degree, StatedValue):
            yield field, _DEGREE.read_or_none(degree.value), degree.origin

    return Custom({field: (("train_module", key, "degree"),)}, read, refuse_write)


def _find_data_parallel_key(config: Config, names: tuple[Route, ...]) -> tuple[Route, LookupResult]:
    """Return the spelling in the data-parallel section that exists, and its value."""
    section = _find_data_parallel(config)
    key_route = next((name for name in names if name[:2] == section), names[0])
    return key_route, find(config, key_route)


LENSES: Final = (
    Custom(
        {
            "precision.compute": (("train_module", "dp_config", "param_dtype"), ("train_module", "float8_config")),
            "precision.autocast": (("train_module", "autocast_precision"),),
        },
        _read_precision,
        refuse_write,
    ),
    Custom(
        {
            **dict.fromkeys(
                (
                    "parallel.strategy",
                    "parallel.sharding",
                    "parallel.reshard_after_forward",
                    "parallel.defers_reduction",
                ),
                (("train_module", "dp_config"), ("model", "dp_config")),
            ),
            "parallel.wrapping": tuple(
                (section, "dp_config", "wrapping_strategy") for section in ("train_module", "model")
            ),
        },
        _read_parallel,
        _write_parallel,
        PLAIN_KEYS._replace(find=_find_data_parallel_key),
    ),
    build_key(
        "parallel.communication",
        "train_module.dp_config.reduce_dtype model.dp_config.reduce_dtype",
        build_enumeration(DTYPES),
    ),
    build_key("parallel.replicas", "train_module.dp_config.num_replicas model.dp_config.num_replicas", PLAIN.integer),
    build_key("parallel.shard_size", "train_module.dp_config.shard_degree model.dp_config.shard_degree", PLAIN.integer),
    _build_degree_lens("parallel.tensor", "tp_config"),
    _build_degree_lens("parallel.context", "cp_config"),
    _build_degree_lens("parallel.pipeline", "pp_config"),
    Custom(
        {
            "parallel.schedule": (("train_module", "pp_config", "schedule"),),
            "parallel.stages": (("train_module", "pp_config", "split_points"),),
        },
        _read_schedule,
        refuse_write,
    ),
    _build_degree_lens("parallel.expert", "ep_config"),
)
