"""Number formats and parallelism of an OLMo-core run."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import CannotEdit, Change, Route
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.codec import at_least, enumeration, member_name
from cfglint_train.frameworks.lens import Changes, Config, Triple, granted
from cfglint_train.frameworks.lens_types import NOT_STATED, UNRESOLVED, Custom, Found, Stated, read_only
from cfglint_train.frameworks.lens_types import PLAIN as PLAIN_KEYS
from cfglint_train.frameworks.loaders import PLAIN
from cfglint_train.frameworks.olmo_core.recognise import TRAIN_MODULE_PATH
from cfglint_train.frameworks.olmo_core.settings import (
    DTYPES,
    dotted,
    dtype_of,
    find,
    first,
    has_train_module,
    is_known,
    set_member,
    setting,
)
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin


def _read_precision(config: Config) -> Iterator[Triple]:
    """The format that FSDP casts to (fp32 without one), or 8-bit products on top of it."""
    parallel = _parallelism(config)
    if parallel is UNRESOLVED:
        return
    stated = first(config, "train_module.dp_config.param_dtype", "model.dp_config.param_dtype")
    weights = dtype_of(first(config, "model.dtype")) or "fp32"
    autocast = first(config, "train_module.autocast_precision", "trainer.autocast_precision")
    eight_bit = _eight_bit(config)
    if eight_bit is not None:
        yield "precision.compute", "fp8", eight_bit
    elif autocast is not None and autocast[0] is not None:
        yield "precision.compute", dtype_of(autocast), autocast[1]
    elif stated is not None and stated[0] is not None:
        yield "precision.compute", dtype_of(stated), stated[1]
    elif is_known(config, "train_module.dp_config.param_dtype"):
        yield "precision.compute", weights, granted(config, dotted("train_module.dp_config.param_dtype"))
    on = autocast is not None and autocast[0] is not None
    if not on and not is_known(config, "train_module.autocast_precision"):
        return
    origin = autocast[1] if on and autocast else granted(config, dotted("train_module.autocast_precision"))
    yield "precision.autocast", on, origin


def _eight_bit(config: Config) -> Origin | None:
    """The origin of 8-bit matrix products, None where they are off."""
    for route in (("train_module", "float8_config"), ("model", "float8_config")):
        section = find(config, route)
        if isinstance(section, Stated) and isinstance(section.value, dict):
            enabled = section.value.get("enabled", True)
            if enabled is True:
                return section.origin
    return None


def _parallelism(config: Config) -> Any:
    """The data-parallel section: its route, None where there is none, UNRESOLVED where that cannot be determined."""
    for route in (("train_module", "dp_config"), ("model", "dp_config")):
        found = find(config, route)
        if isinstance(found, Stated):
            return route if isinstance(found.value, dict) else None
    return UNRESOLVED if find(config, ("train_module", "dp_config")) is UNRESOLVED else None


_KINDS: Final = {"fsdp": ("fsdp2", "full_shard"), "hsdp": ("fsdp2", "hybrid_shard"), "ddp": ("ddp", None)}

_WRAPPING: Final = {"full": "block_and_size", "blocks": "block", "fine_grained": "block_and_size"}


def _read_parallel(config: Config) -> Iterator[Triple]:
    route = _parallelism(config)
    if route is UNRESOLVED:
        return
    if route is None:
        found = find(config, ("train_module", "dp_config"))
        origin = found.origin if isinstance(found, Stated) else granted(config, ("train_module", "dp_config"))
        yield "parallel.strategy", "none", origin
        return
    name = find(config, (*route, "name"))
    if not isinstance(name, Stated):
        return
    kind = _KINDS.get(member_name(name.value)) if isinstance(name.value, str) else None
    yield "parallel.strategy", kind[0] if kind else None, name.origin
    if kind is None or kind[1] is None:
        return
    yield "parallel.sharding", kind[1], name.origin
    wrapping = find(config, (*route, "wrapping_strategy"))
    if isinstance(wrapping, Stated):
        meaning = _WRAPPING.get(member_name(wrapping.value)) if isinstance(wrapping.value, str) else None
        yield "parallel.wrapping", meaning, wrapping.origin
    elif wrapping is NOT_STATED:
        yield "parallel.wrapping", "block_and_size", granted(config, (*route, "wrapping_strategy"))
    pipeline = find(config, ("train_module", "pp_config"))
    if pipeline is not UNRESOLVED:
        split = isinstance(pipeline, Stated) and pipeline.value is not None
        # apply_fsdp: stages of a pipeline keep their weights gathered between micro batches.
        yield "parallel.reshard_after_forward", not split, name.origin
        if split:
            yield "parallel.defers_reduction", True, name.origin


def _write_parallel(config: Config, changes: Changes) -> list[Change]:
    route = _parallelism(config)
    if set(changes) != {"parallel.wrapping"} or not isinstance(route, tuple):
        raise CannotEdit("dp_config settles it together with other settings")
    value = {"block_and_size": "full", "block": "blocks"}.get(changes["parallel.wrapping"])
    if value is None:
        raise CannotEdit(f"OLMo-core has no wrapping {changes['parallel.wrapping']!r}")
    return set_member(
        config,
        (*route, "wrapping_strategy"),
        ("TransformerDataParallelWrappingStrategy", value, TRAIN_MODULE_PATH),
        ("reduce_dtype", "param_dtype", "name"),
    )


# PipelineScheduleType; the custom ones run in the order of those that they are named after.
_SCHEDULES: Final = {
    "single_1f1b": "1f1b", "custom_1f1b": "1f1b", "gpipe": "gpipe", "looped_bfs": "looped_bfs",
    "interleaved_1f1b": "interleaved_1f1b", "custom_interleaved_1f1b": "interleaved_1f1b",
    "interleaved_zero_bubble": "zero_bubble", "zbv_zero_bubble": "zbv", "custom_1f1b_v": "zbv",
    "1f1b": "1f1b", "interleaved1f1b": "interleaved_1f1b", "loopedbfs": "looped_bfs",
    "interleavedzerobubble": "zero_bubble", "zbvzerobubble": "zbv", "custom1f1b": "1f1b",
    "custominterleaved1f1b": "interleaved_1f1b", "custom1f1bv": "zbv",
}  # fmt: skip


def _read_schedule(config: Config) -> Iterator[Triple]:
    """The order of a pipeline's stages, and how many each rank has: one or two, unless split points say otherwise."""
    section = find(config, ("train_module", "pp_config"))
    if not isinstance(section, Stated) or section.value is None:
        return
    route = ("train_module", "pp_config", "schedule")
    stated = find(config, route)
    if stated is UNRESOLVED:
        return
    if isinstance(stated, Stated):
        known = _SCHEDULES.get(member_name(stated.value).lower()) if isinstance(stated.value, str) else None
        origin = stated.origin
    else:
        known, origin = "interleaved_1f1b", granted(config, route)
    yield "parallel.schedule", known, origin
    if find(config, ("train_module", "pp_config", "split_points")) is NOT_STATED and known is not None:
        yield "parallel.stages", 1 if known in ("1f1b", "gpipe") else 2, origin._replace(kind="inferred")


_DEGREE: Final = at_least(1, PLAIN.integer)


def _degree(field: Field, key: str, null: int = 1) -> Custom:
    """The degree of one kind of model parallelism; 1 where its section is absent."""

    def read(config: Config) -> Iterator[Triple]:
        section = find(config, ("train_module", key))
        if section is UNRESOLVED:
            return
        if not isinstance(section, Stated) or section.value is None:
            origin = section.origin if isinstance(section, Stated) else granted(config, ("train_module", key))
            if has_train_module(config) or section is not NOT_STATED:
                yield field, null, origin
            return
        degree = find(config, ("train_module", key, "degree"))
        if isinstance(degree, Stated):
            yield field, _DEGREE.readable(degree.value), degree.origin

    return Custom({field: (("train_module", key, "degree"),)}, read, read_only)


def _find_parallel(config: Config, names: tuple[Route, ...]) -> tuple[Route, Found]:
    """The spelling in the data-parallel section that there is."""
    section = _parallelism(config)
    own = next((name for name in names if name[:2] == section), names[0])
    return own, find(config, own)


LENSES: Final = (
    Custom(
        {
            "precision.compute": (("train_module", "dp_config", "param_dtype"), ("train_module", "float8_config")),
            "precision.autocast": (("train_module", "autocast_precision"),),
        },
        _read_precision,
        read_only,
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
        PLAIN_KEYS._replace(find=_find_parallel),
    ),
    setting(
        "parallel.communication",
        "train_module.dp_config.reduce_dtype model.dp_config.reduce_dtype",
        enumeration(DTYPES),
    ),
    setting("parallel.replicas", "train_module.dp_config.num_replicas model.dp_config.num_replicas", PLAIN.integer),
    setting("parallel.shard_size", "train_module.dp_config.shard_degree model.dp_config.shard_degree", PLAIN.integer),
    _degree("parallel.tensor", "tp_config"),
    _degree("parallel.context", "cp_config"),
    _degree("parallel.pipeline", "pp_config"),
    Custom(
        {
            "parallel.schedule": (("train_module", "pp_config", "schedule"),),
            "parallel.stages": (("train_module", "pp_config", "split_points"),),
        },
        _read_schedule,
        read_only,
    ),
    _degree("parallel.expert", "ep_config"),
)
