"""When and how OLMo saves and loads checkpoints."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import Change
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.codec import Codec, enumeration, or_zero
from cfglint_train.frameworks.lens import Changes, Config, Triple, granted
from cfglint_train.frameworks.lens_types import NOT_STATED, Custom, Stated, read_only
from cfglint_train.frameworks.loaders import OMEGACONF
from cfglint_train.frameworks.olmo.settings import find, is_known, setting, value_of, write_one
from cfglint_train.plan.origin import Origin

_CHECKPOINTERS: Final = ("torch_legacy", "torch_new", "local", "olmo_core")

_CHECKPOINTER_CODEC: Final = enumeration({name: name for name in _CHECKPOINTERS}, "ShardedCheckpointerType")


def _read_checkpointer(config: Config) -> Iterator[Triple]:
    saves, origin = value_of(config, "sharded_checkpointer", _CHECKPOINTER_CODEC)
    yield "checkpoint.checkpointer", saves, origin
    loads, origin = value_of(config, "load_path_sharded_checkpointer", _CHECKPOINTER_CODEC)
    if config.get("load_path_sharded_checkpointer") is not None:
        yield "checkpoint.load_checkpointer", loads, origin
    else:
        note = "load_path_sharded_checkpointer follows sharded_checkpointer"
        yield "checkpoint.load_checkpointer", saves, Origin("inferred", note=note)


def _write_checkpointer(config: Config, changes: Changes) -> list[Change]:
    present = {field: value for field, value, _ in _read_checkpointer(config)}
    written: list[Change] = []
    loads = changes.get("checkpoint.load_checkpointer", present["checkpoint.load_checkpointer"])
    saves = changes.get("checkpoint.checkpointer", present["checkpoint.checkpointer"])
    if saves != present["checkpoint.checkpointer"]:
        written += write_one(config, "sharded_checkpointer", _CHECKPOINTER_CODEC.write(saves), ("save_interval",))
    follows = config.get("load_path_sharded_checkpointer") is None
    # A checkpoint is read by the class that wrote it: the old one stays responsible for `load_path`.
    needed = follows and loads != saves and ("checkpoint.load_checkpointer" in changes or _loads_shards(config))
    if needed or (not follows and loads != present["checkpoint.load_checkpointer"]):
        name = _CHECKPOINTER_CODEC.write(loads)
        written += write_one(
            config, "load_path_sharded_checkpointer", name, ("load_path", "sharded_checkpointer", "save_interval")
        )
    return written


def _loads_shards(config: Config) -> bool:
    """Whether `load_path` names (or may name) a sharded checkpoint."""
    found = find(config, ("load_path",))
    if not isinstance(found, Stated):
        return config.has("load_path")
    return isinstance(found.value, str) and not found.value.rstrip("/").endswith("-unsharded")


def _read_saving(config: Config) -> Iterator[Triple]:
    sharded, origin = value_of(config, "save_interval", OMEGACONF.integer)
    keep, _ = value_of(config, "save_num_checkpoints_to_keep", OMEGACONF.integer)
    whole, whole_origin = value_of(config, "save_interval_unsharded", OMEGACONF.integer)
    whole_keep, _ = value_of(config, "save_num_unsharded_checkpoints_to_keep", OMEGACONF.integer)
    ephemeral, ephemeral_origin = value_of(config, "save_interval_ephemeral", OMEGACONF.integer)
    names = ("save_interval", "save_interval_unsharded", "save_interval_ephemeral", "save_num_checkpoints_to_keep")
    if not all(is_known(config, name) for name in names):
        return
    # The strategy follows from the intervals, which have fields of their own.
    saving = [(sharded, keep, origin), (whole, whole_keep, whole_origin), (ephemeral, -1, ephemeral_origin)]
    first = next((place for value, switch, place in saving if value is not None and switch != 0), None)
    place = (first or origin)._replace(kind="inferred", note="follows from the intervals")
    yield "checkpoint.strategy", "no" if first is None else "steps", place
    # Trainer.fit ends with an unsharded checkpoint where those are saved at all, else with a sharded one.
    yield "checkpoint.final", whole is not None or keep != 0, place


NEVER: Final = or_zero(OMEGACONF.integer)


def _read_limit(value: Any) -> Any:
    number = OMEGACONF.integer.read(value)
    return "all" if number < 0 else number


_KEEP: Final = Codec(_read_limit, lambda value: -1 if value == "all" else value)


def _read_start(config: Config) -> Iterator[Triple]:
    """`scripts/train.py` saves and loads a checkpoint before the first step, unless one is loaded anyway."""
    skips, origin = value_of(config, "no_pre_train_checkpoint", OMEGACONF.boolean)
    path, path_origin = value_of(config, "load_path", OMEGACONF.string)
    if path is not None or (config.get("load_path") is not None and not is_known(config, "load_path")):
        yield "checkpoint.at_start", False, path_origin
    elif skips is not None:
        yield "checkpoint.at_start", not skips, origin


def _read_remote(config: Config) -> Iterator[Triple]:
    found = find(config, ("remote_save_folder",))
    if isinstance(found, Stated):
        yield "checkpoint.remote", found.value is not None, found.origin
    elif found is NOT_STATED:
        yield "checkpoint.remote", False, granted(config, ("remote_save_folder",))
    else:
        yield "checkpoint.remote", True, config.origin("remote_save_folder")


LENSES: Final = (
    Custom(
        {
            "checkpoint.checkpointer": (("sharded_checkpointer",),),
            "checkpoint.load_checkpointer": (("load_path_sharded_checkpointer",),),
        },
        _read_checkpointer,
        _write_checkpointer,
    ),
    Custom({"checkpoint.strategy": (), "checkpoint.final": ()}, _read_saving, read_only),
    setting("checkpoint.interval", "save_interval", NEVER, null=0, beside=("save_folder",)),
    setting("checkpoint.interval_ephemeral", "save_interval_ephemeral", NEVER, null=0, beside=("save_interval",)),
    setting("checkpoint.interval_unsharded", "save_interval_unsharded", NEVER, null=0, beside=("save_interval",)),
    setting("checkpoint.keep", "save_num_checkpoints_to_keep", _KEEP, beside=("save_interval",)),
    setting(
        "checkpoint.keep_unsharded",
        "save_num_unsharded_checkpoints_to_keep",
        _KEEP,
        beside=("save_interval_unsharded",),
    ),
    setting("checkpoint.overwrite", "save_overwrite", OMEGACONF.boolean, beside=("save_folder",)),
    setting("checkpoint.path", "save_folder", OMEGACONF.string),
    setting("checkpoint.load_path", "load_path", OMEGACONF.string),
    setting("checkpoint.resume_latest", "try_load_latest_save", OMEGACONF.boolean),
    Custom({"checkpoint.at_start": (("no_pre_train_checkpoint",), ("load_path",))}, _read_start, read_only),
    Custom({"checkpoint.remote": (("remote_save_folder",),)}, _read_remote, read_only),
    setting(
        "checkpoint.load_optimizer",
        "reset_optimizer_state",
        Codec(lambda value: not OMEGACONF.boolean.read(value), lambda value: not value),
    ),
)
