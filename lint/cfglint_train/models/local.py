"""Local models: folders with a `config.json`, the catalogue, and the Hugging Face cache.

cfglint only reads files here; it imports and fetches nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from cfglint_train.foundation import filesystem, regular_files
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.models import lookup
from cfglint_train.models.architecture import Architecture
from cfglint_train.models.names import is_folder

MAX_BYTES: Final = 4 << 20
"""Size limit of a model configuration in bytes; a real `config.json` has a few KiB."""

CONFIG: Final = "config.json"
ADAPTER: Final = "adapter_config.json"


class UnreadableModelError(Exception):
    """An error in a model configuration; the message names the file or the model and, if there is one, the remedy."""


def find_local_model(
    name: str,
    folder: str = ".",
    revision: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    allowed_folders: tuple[str, ...] | None = None,
) -> Architecture | None:
    """Return the architecture of a model by Hub id or path, or None if it is unknown.

    The sources, in this order, are a local folder, the catalogue and the Hugging Face cache. A relative path is tried
    against `folder` (the configuration's folder) and then the working directory; a folder's own configuration takes
    precedence over its name. Local folders are read only if they lie inside `allowed_folders` after symlinks are
    resolved; None allows all. `overrides` are keys of the model's own configuration that the run changes
    (`model.overrides` of the plan).

    Raise `UnreadableModelError` for a folder with a broken `config.json`.
    """
    changes = overrides or {}
    for base in dict.fromkeys((folder, ".")):
        path = os.path.join(base, regular_files.expand_home(name))
        if any(_can_read(os.path.join(path, file), allowed_folders) for file in (CONFIG, ADAPTER)):
            return read_folder(path, changes, allowed_folders)
    entry = lookup.match_name(name)
    if entry is not None:
        architecture = entry.architecture
        if entry.kind == "name" and is_folder(name):
            architecture = architecture._replace(folder=name, context=None)  # which owners of a copy often raise
        return _override(architecture, changes)
    return find_cached_model(name, revision, changes, environment)


def _can_read(path: str, allowed_folders: tuple[str, ...] | None) -> bool:
    """Return whether the file exists inside one of the allowed folders."""
    return filesystem.is_file(path) and _is_allowed(path, allowed_folders)


def _is_allowed(path: str, allowed_folders: tuple[str, ...] | None) -> bool:
    return allowed_folders is None or any(regular_files.is_below(path, folder) for folder in allowed_folders)


def read_folder(
    folder: str, overrides: Mapping[str, Any] | None = None, allowed_folders: tuple[str, ...] | None = None
) -> Architecture | None:
    """Return the architecture of a model folder, or None if it has no configuration or the family is unknown.

    A LoRA folder (`adapter_config.json`) yields its base model if the catalogue has it. Only files inside
    `allowed_folders` are read; None allows all. Raise `UnreadableModelError` for a broken file.
    """
    config = _load_json(os.path.join(folder, CONFIG), allowed_folders)
    if config is None:
        base = read_adapter_base(folder, allowed_folders)
        architecture = lookup.find_entry(base) if base is not None else None
        return architecture and _override(architecture, overrides)
    return resolve_config(config, folder, overrides)


def resolve_config(
    config: Mapping[str, Any], name: str, overrides: Mapping[str, Any] | None = None
) -> Architecture | None:
    """Return the architecture that a parsed `config.json` describes, or None if cfglint cannot count its parameters."""
    from cfglint_train.models.hf_config import parse_config
    from cfglint_train.models.overrides import merge_overrides

    config = merge_overrides(config, overrides or {})
    return parse_config(config, name) or _find_namesake(config, name)


def read_adapter_base(folder: str, allowed_folders: tuple[str, ...] | None = None) -> str | None:
    """Return the base model that a LoRA folder names, or None if it names none.

    Raise `UnreadableModelError` for a broken file.
    """
    adapter = _load_json(os.path.join(folder, ADAPTER), allowed_folders)
    base = adapter.get("base_model_name_or_path") if adapter else None
    return base if isinstance(base, str) else None


def load_config(path: str) -> dict[str, Any]:
    """Return the parsed `config.json` at `path`, which is the file or its folder.

    Raise `UnreadableModelError` if the file is missing or broken, or if cfglint cannot count the model's parameters.
    """
    file = os.path.join(path, CONFIG) if filesystem.is_folder(path) else path
    config = _load_json(file)
    if config is None:
        raise UnreadableModelError(f"{file}: there is no such file")
    if resolve_config(config, file) is None:
        family = config.get("model_type")
        raise UnreadableModelError(f"{file}: cannot compute the size of a model of family {family} with these sizes")
    return config


def find_cached_model(
    name: str,
    revision: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Architecture | None:
    """Return the architecture of a Hub id from the Hugging Face cache, or None if it is unknown or not cached.

    Raise `UnreadableModelError` for a snapshot with a broken `config.json`.
    """
    if name.count("/") != 1:
        return None
    model = os.path.join(get_hub_cache(environment), "models--" + name.replace("/", "--"))
    snapshot = _find_snapshot(model, revision or "main")
    architecture = read_folder(snapshot, overrides) if snapshot else None
    return architecture._replace(id=name) if architecture else None


def get_hub_cache(environment: Mapping[str, str] | None = None) -> str:
    """Return the cache folder that huggingface_hub uses."""
    settings = os.environ if environment is None else environment
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if settings.get(variable):
            return filesystem.expand_home(settings[variable])
    home = settings.get("HF_HOME") or os.path.join(settings.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return os.path.join(filesystem.expand_home(home), "hub")


def _override(architecture: Architecture, overrides: Mapping[str, Any] | None) -> Architecture | None:
    if not overrides:
        return architecture
    from cfglint_train.models.overrides import apply_overrides

    return apply_overrides(architecture, overrides)


def _find_snapshot(model: str, revision: str) -> str | None:
    """Return the snapshot folder of a revision (a commit, branch or tag), or None if it is not cached.

    For `main` without a matching snapshot, the result is the only existing snapshot, if there is exactly one.
    """
    requested = revision
    if os.pardir in revision.split("/"):
        return None
    snapshots = os.path.join(model, "snapshots")
    reference = os.path.join(model, "refs", *revision.split("/"))
    if filesystem.is_file(reference):
        from contextlib import suppress  # imported here because it is needed for downloaded models only

        with suppress(OSError):
            revision = regular_files.read_anywhere(reference)[:100].decode("utf-8", "replace").strip()
    path = os.path.join(snapshots, revision)
    if regular_files.is_below(path, snapshots) and filesystem.is_folder(path):
        return path
    snapshot_names = (
        sorted(filesystem.list_names(snapshots)) if requested == "main" and filesystem.is_folder(snapshots) else []
    )
    return os.path.join(snapshots, snapshot_names[0]) if len(snapshot_names) == 1 else None


def _find_namesake(config: Mapping[str, Any], folder: str) -> Architecture | None:
    """Return the catalogue's entry with the same name and sizes, for a family without a formula, or None.

    The name is the configuration's `_name_or_path` or else the folder's.
    """
    inner = config.get("text_config")
    sizes = {**config, **(inner if isinstance(inner, Mapping) else {})}
    for name in (config.get("_name_or_path"), folder):
        architecture = lookup.find_entry(name) if isinstance(name, str) and name else None
        if architecture and (architecture.hidden, architecture.layers, architecture.vocab) == tuple(
            sizes.get(key) for key in ("hidden_size", "num_hidden_layers", "vocab_size")
        ):
            return architecture._replace(id=folder)
    return None


def _load_json(path: str, allowed_folders: tuple[str, ...] | None = None) -> dict[str, Any] | None:
    """Return the JSON object in a file, or None if the file is missing or not allowed.

    Raise `UnreadableModelError` if the file is unreadable, too large or not a JSON object.
    """
    if not _is_allowed(path, allowed_folders):
        return None
    try:
        if filesystem.get_size(path) > MAX_BYTES:
            raise UnreadableModelError(
                f"{path}: larger than {MAX_BYTES >> 20} MiB, too large for a model configuration"
            )
        data = json.loads(regular_files.read_anywhere(path).decode("utf-8-sig"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableModelError(f"{path}: {error}; restore the file, or use the Hub id of the model") from None
    if not isinstance(data, dict):
        raise UnreadableModelError(f"{path}: not a JSON object; restore the file, or use the Hub id of the model")
    return data
