"""When and how OLMo-core saves and loads checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.versions import Since
from cfglint_train.frameworks.codec import Codec, member_name
from cfglint_train.frameworks.lens import Config, Triple, granted
from cfglint_train.frameworks.lens_types import NOT_STATED, UNRESOLVED, Custom, Key, Stated, read_only
from cfglint_train.frameworks.loaders import PLAIN
from cfglint_train.frameworks.olmo_core.settings import (
    CHECKPOINTER,
    KEEP,
    NEVER,
    below,
    find,
    first,
    is_known,
    setting,
)
from cfglint_train.plan.names import Field


def _read_strategy(config: Config) -> Iterator[Triple]:
    off = first(config, "trainer.no_checkpoints")
    if off is not None and off[0] is True:
        yield "checkpoint.strategy", "no", off[1]
        return
    route = CHECKPOINTER(config)
    if route is None:
        return
    enabled = find(config, (*route, "enabled"))
    if isinstance(enabled, Stated) and enabled.value is False:
        yield "checkpoint.strategy", "no", enabled.origin
    elif isinstance(enabled, Stated) or config.document.node((*config.root, *route)) is None or enabled is NOT_STATED:
        yield "checkpoint.strategy", "steps", granted(config, (*route, "enabled"))


def _interval(config: Config, key: str, default: int) -> int:
    """An interval of the checkpointer as it is; 0 where there is none, or where it cannot be determined."""
    route = CHECKPOINTER(config)
    found = find(config, (*route, key)) if route is not None else UNRESOLVED
    if isinstance(found, Stated):
        return found.value if type(found.value) is int else 0
    return default if found is NOT_STATED else 0


def _refuses_interval(config: Config, value: Any) -> str:
    ephemeral = _interval(config, "ephemeral_save_interval", 0)
    return "ephemeral_save_interval has to be smaller" if value and ephemeral and ephemeral >= value else ""


def _refuses_ephemeral(config: Config, value: Any) -> str:
    permanent = _interval(config, "save_interval", 250)
    return "save_interval has to be larger" if value and permanent and value >= permanent else ""


def _read_load(config: Config) -> Iterator[Triple]:
    path = first(config, "trainer.load_path")
    if path is not None and isinstance(path[0], str):
        yield "checkpoint.load_path", *path
    optimizer = first(config, "trainer.load_optim_state")
    if optimizer is not None and isinstance(optimizer[0], bool):
        yield "checkpoint.load_optimizer", *optimizer
    strategy = first(config, "trainer.load_strategy")
    if strategy is not None and isinstance(strategy[0], str):
        yield "checkpoint.resume_latest", member_name(strategy[0]) != "never", strategy[1]
    elif is_known(config, "trainer.load_strategy"):
        yield "checkpoint.resume_latest", True, granted(config, ("trainer", "load_strategy"))


def _kept(
    field: Field,
    key: str,
    codec: Codec,
    default: Any,
    null: Any,
    refuses: Callable[[Config, Any], str] = lambda _, __: "",
) -> Key:
    """A key of the checkpointer's callback."""
    names = (("trainer", "callbacks", "checkpointer", key),)
    return Key(field, names, codec, default, null, access=below(CHECKPOINTER, refuses))


LENSES: Final = (
    Custom({"checkpoint.strategy": (("trainer", "no_checkpoints"),)}, _read_strategy, read_only),
    _kept("checkpoint.interval", "save_interval", NEVER, 250, 0, _refuses_interval),
    _kept("checkpoint.interval_ephemeral", "ephemeral_save_interval", NEVER, 0, 0, _refuses_ephemeral),
    _kept("checkpoint.keep", "max_checkpoints", KEEP, Since((("", "all"), ("2.6.0", 3))), "all"),
    # null: wherever there is a backend for the CPU, and `prepare_training_environment` sets one up.
    _kept("checkpoint.asynchronous", "save_async", PLAIN.boolean, Since((("", False), ("1.6.1", True))), True),
    _kept("checkpoint.at_start", "pre_train_checkpoint", PLAIN.boolean, True, True),
    setting("checkpoint.overwrite", "trainer.save_overwrite", PLAIN.boolean, default=False, beside=("save_folder",)),
    setting("checkpoint.path", "trainer.save_folder", PLAIN.string),
    Custom(
        {
            "checkpoint.load_path": (("trainer", "load_path"),),
            "checkpoint.load_optimizer": (("trainer", "load_optim_state"),),
            "checkpoint.resume_latest": (("trainer", "load_strategy"),),
        },
        _read_load,
        read_only,
    ),
)
