"""Checkpoint lenses of OLMo-core: saving and loading."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.versions import ValueByRelease
from cfglint_train.frameworks.codec import Codec, parse_member_name
from cfglint_train.frameworks.lens import Config, Triple, build_default_origin
from cfglint_train.frameworks.lens_types import NOT_STATED, UNRESOLVED, Custom, Key, StatedValue, refuse_write
from cfglint_train.frameworks.loaders import PLAIN
from cfglint_train.frameworks.olmo_core.settings import (
    CHECKPOINTER,
    INTERVAL,
    KEEP_COUNT,
    build_key,
    build_section_access,
    find,
    find_first,
    is_resolved,
)
from cfglint_train.plan.names import Field


def _read_strategy(config: Config) -> Iterator[Triple]:
    no_checkpoints = find_first(config, "trainer.no_checkpoints")
    if no_checkpoints is not None and no_checkpoints[0] is True:
        yield "checkpoint.strategy", "no", no_checkpoints[1]
        return
    route = CHECKPOINTER(config)
    if route is None:
        return
    enabled = find(config, (*route, "enabled"))
    if isinstance(enabled, StatedValue) and enabled.value is False:
        yield "checkpoint.strategy", "no", enabled.origin
    elif (
        isinstance(enabled, StatedValue)
        or config.document.find_node((*config.root, *route)) is None
        or enabled is NOT_STATED
    ):
        yield "checkpoint.strategy", "steps", build_default_origin(config, (*route, "enabled"))


def _read_interval(config: Config, key: str, default: int) -> int:
    """Return an interval of the checkpointer, `default` if it is absent, or 0 if it is null or cannot be determined."""
    route = CHECKPOINTER(config)
    interval = find(config, (*route, key)) if route is not None else UNRESOLVED
    if isinstance(interval, StatedValue):
        return interval.value if type(interval.value) is int else 0
    return default if interval is NOT_STATED else 0


def _check_interval(config: Config, value: Any) -> str:
    ephemeral = _read_interval(config, "ephemeral_save_interval", 0)
    return "ephemeral_save_interval must be smaller" if value and ephemeral and ephemeral >= value else ""


def _check_ephemeral_interval(config: Config, value: Any) -> str:
    permanent = _read_interval(config, "save_interval", 250)
    return "save_interval must be larger" if value and permanent and value >= permanent else ""


def _read_load(config: Config) -> Iterator[Triple]:
    path = find_first(config, "trainer.load_path")
    if path is not None and isinstance(path[0], str):
        yield "checkpoint.load_path", *path
    optimizer = find_first(config, "trainer.load_optim_state")
    if optimizer is not None and isinstance(optimizer[0], bool):
        yield "checkpoint.load_optimizer", *optimizer
    strategy = find_first(config, "trainer.load_strategy")
    if strategy is not None and isinstance(strategy[0], str):
        yield "checkpoint.resume_latest", parse_member_name(strategy[0]) != "never", strategy[1]
    elif is_resolved(config, "trainer.load_strategy"):
        yield "checkpoint.resume_latest", True, build_default_origin(config, ("trainer", "load_strategy"))


def _build_checkpointer_key(
    field: Field,
    key: str,
    codec: Codec,
    default: Any,
    null: Any,
    explain_refusal: Callable[[Config, Any], str] = lambda _, __: "",
) -> Key:
    """Return the lens of a key of the checkpointer callback."""
    names = (("trainer", "callbacks", "checkpointer", key),)
    return Key(field, names, codec, default, null, access=build_section_access(CHECKPOINTER, explain_refusal))


LENSES: Final = (
    Custom({"checkpoint.strategy": (("trainer", "no_checkpoints"),)}, _read_strategy, refuse_write),
    _build_checkpointer_key("checkpoint.interval", "save_interval", INTERVAL, 250, 0, _check_interval),
    _build_checkpointer_key(
        "checkpoint.interval_ephemeral", "ephemeral_save_interval", INTERVAL, 0, 0, _check_ephemeral_interval
    ),
    _build_checkpointer_key(
        "checkpoint.keep", "max_checkpoints", KEEP_COUNT, ValueByRelease((("", "all"), ("2.6.0", 3))), "all"
    ),
    # null turns asynchronous saving on if there is a CPU backend, which `prepare_training_environment` sets up.
    _build_checkpointer_key(
        "checkpoint.asynchronous", "save_async", PLAIN.boolean, ValueByRelease((("", False), ("1.6.1", True))), True
    ),
    _build_checkpointer_key("checkpoint.at_start", "pre_train_checkpoint", PLAIN.boolean, True, True),
    build_key("checkpoint.overwrite", "trainer.save_overwrite", PLAIN.boolean, default=False, beside=("save_folder",)),
    build_key("checkpoint.path", "trainer.save_folder", PLAIN.string),
    Custom(
        {
            "checkpoint.load_path": (("trainer", "load_path"),),
            "checkpoint.load_optimizer": (("trainer", "load_optim_state"),),
            "checkpoint.resume_latest": (("trainer", "load_strategy"),),
        },
        _read_load,
        refuse_write,
    ),
)
