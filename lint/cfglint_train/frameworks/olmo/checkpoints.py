"""Checkpoint lenses of OLMo: saving and loading."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import Change
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.codec import Codec, build_enumeration, write_zero_as_null
from cfglint_train.frameworks.lens import Changes, Config, Triple, build_default_origin
from cfglint_train.frameworks.lens_types import NOT_STATED, Custom, StatedValue, refuse_write
from cfglint_train.frameworks.loaders import OMEGACONF
from cfglint_train.frameworks.olmo.settings import build_key, find, is_resolved, read_value, write_key
from cfglint_train.plan.origin import Origin

_CHECKPOINTERS: Final = ("torch_legacy", "torch_new", "local", "olmo_core")

_CHECKPOINTER_CODEC: Final = build_enumeration({name: name for name in _CHECKPOINTERS}, "ShardedCheckpointerType")


def _read_checkpointer(config: Config) -> Iterator[Triple]:
    saver, origin = read_value(config, "sharded_checkpointer", _CHECKPOINTER_CODEC)
    yield "checkpoint.checkpointer", saver, origin
    loader, origin = read_value(config, "load_path_sharded_checkpointer", _CHECKPOINTER_CODEC)
    if config.get("load_path_sharded_checkpointer") is not None:
        yield "checkpoint.load_checkpointer", loader, origin
    else:
        note = "load_path_sharded_checkpointer follows sharded_checkpointer"
        yield "checkpoint.load_checkpointer", saver, Origin("inferred", note=note)


def _write_checkpointer(config: Config, changes: Changes) -> list[Change]:
    current = {field: value for field, value, _ in _read_checkpointer(config)}
    edits: list[Change] = []
    loader = changes.get("checkpoint.load_checkpointer", current["checkpoint.load_checkpointer"])
    saver = changes.get("checkpoint.checkpointer", current["checkpoint.checkpointer"])
    if saver != current["checkpoint.checkpointer"]:
        edits += write_key(config, "sharded_checkpointer", _CHECKPOINTER_CODEC.write(saver), ("save_interval",))
    is_following = config.get("load_path_sharded_checkpointer") is None
    # A checkpoint must be read by the class that wrote it, so the old class must still load `load_path`.
    must_state_loader = (
        is_following and loader != saver and ("checkpoint.load_checkpointer" in changes or _is_loading_shards(config))
    )
    if must_state_loader or (not is_following and loader != current["checkpoint.load_checkpointer"]):
        name = _CHECKPOINTER_CODEC.write(loader)
        edits += write_key(
            config, "load_path_sharded_checkpointer", name, ("load_path", "sharded_checkpointer", "save_interval")
        )
    return edits


def _is_loading_shards(config: Config) -> bool:
    """Return whether `load_path` is, or may be, a sharded checkpoint."""
    load_path = find(config, ("load_path",))
    if not isinstance(load_path, StatedValue):
        return config.has("load_path")
    return isinstance(load_path.value, str) and not load_path.value.rstrip("/").endswith("-unsharded")


def _read_saving(config: Config) -> Iterator[Triple]:
    sharded_interval, origin = read_value(config, "save_interval", OMEGACONF.integer)
    keep, _ = read_value(config, "save_num_checkpoints_to_keep", OMEGACONF.integer)
    unsharded_interval, unsharded_origin = read_value(config, "save_interval_unsharded", OMEGACONF.integer)
    unsharded_keep, _ = read_value(config, "save_num_unsharded_checkpoints_to_keep", OMEGACONF.integer)
    ephemeral, ephemeral_origin = read_value(config, "save_interval_ephemeral", OMEGACONF.integer)
    names = ("save_interval", "save_interval_unsharded", "save_interval_ephemeral", "save_num_checkpoints_to_keep")
    if not all(is_resolved(config, name) for name in names):
        return
    # The strategy follows from the intervals, which have separate fields.
    schedules = [
        (sharded_interval, keep, origin),
        (unsharded_interval, unsharded_keep, unsharded_origin),
        (ephemeral, -1, ephemeral_origin),
    ]
    first_origin = next(
        (saving_origin for value, limit, saving_origin in schedules if value is not None and limit != 0), None
    )
    saving_origin = (first_origin or origin)._replace(kind="inferred", note="it follows from the intervals")
    yield "checkpoint.strategy", "no" if first_origin is None else "steps", saving_origin
    # Trainer.fit ends with an unsharded checkpoint if any are saved, and with a sharded checkpoint otherwise.
    yield "checkpoint.final", unsharded_interval is not None or keep != 0, saving_origin


INTERVAL: Final = write_zero_as_null(OMEGACONF.integer)


def _parse_limit(value: Any) -> Any:
    number = OMEGACONF.integer.read(value)
    return "all" if number < 0 else number


_KEEP_COUNT: Final = Codec(_parse_limit, lambda value: -1 if value == "all" else value)


def _read_start(config: Config) -> Iterator[Triple]:
    """Yield whether `scripts/train.py` saves and reloads a checkpoint before the first step.

    The script skips this checkpoint if `load_path` is set.
    """
    skips_checkpoint, origin = read_value(config, "no_pre_train_checkpoint", OMEGACONF.boolean)
    path, path_origin = read_value(config, "load_path", OMEGACONF.string)
    if path is not None or (config.get("load_path") is not None and not is_resolved(config, "load_path")):
        yield "checkpoint.at_start", False, path_origin
    elif skips_checkpoint is not None:
        yield "checkpoint.at_start", not skips_checkpoint, origin


def _read_remote(config: Config) -> Iterator[Triple]:
    remote_folder = find(config, ("remote_save_folder",))
    if isinstance(remote_folder, StatedValue):
        yield "checkpoint.remote", remote_folder.value is not None, remote_folder.origin
    elif remote_folder is NOT_STATED:
        yield "checkpoint.remote", False, build_default_origin(config, ("remote_save_folder",))
    else:
        yield "checkpoint.remote", True, config.get_origin("remote_save_folder")


LENSES: Final = (
    Custom(
        {
            "checkpoint.checkpointer": (("sharded_checkpointer",),),
            "checkpoint.load_checkpointer": (("load_path_sharded_checkpointer",),),
        },
        _read_checkpointer,
        _write_checkpointer,
    ),
    Custom({"checkpoint.strategy": (), "checkpoint.final": ()}, _read_saving, refuse_write),
    build_key("checkpoint.interval", "save_interval", INTERVAL, null=0, beside=("save_folder",)),
    build_key("checkpoint.interval_ephemeral", "save_interval_ephemeral", INTERVAL, null=0, beside=("save_interval",)),
    build_key("checkpoint.interval_unsharded", "save_interval_unsharded", INTERVAL, null=0, beside=("save_interval",)),
    build_key("checkpoint.keep", "save_num_checkpoints_to_keep", _KEEP_COUNT, beside=("save_interval",)),
    build_key(
        "checkpoint.keep_unsharded",
        "save_num_unsharded_checkpoints_to_keep",
        _KEEP_COUNT,
        beside=("save_interval_unsharded",),
    ),
    build_key("checkpoint.overwrite", "save_overwrite", OMEGACONF.boolean, beside=("save_folder",)),
    build_key("checkpoint.path", "save_folder", OMEGACONF.string),
    build_key("checkpoint.load_path", "load_path", OMEGACONF.string),
    build_key("checkpoint.resume_latest", "try_load_latest_save", OMEGACONF.boolean),
    Custom({"checkpoint.at_start": (("no_pre_train_checkpoint",), ("load_path",))}, _read_start, refuse_write),
    Custom({"checkpoint.remote": (("remote_save_folder",),)}, _read_remote, refuse_write),
    build_key(
        "checkpoint.load_optimizer",
        "reset_optimizer_state",
        Codec(lambda value: not OMEGACONF.boolean.read(value), lambda value: not value),
    ),
)
