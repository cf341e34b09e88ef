"""Model lookup: find the architecture of the model that a configuration names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.models import local
from cfglint_train.models.architecture import Architecture
from cfglint_train.plan.names import Field

PRESET_PREFIX: Final = "olmo_core:"
"""Prefix of OLMo-core presets in `model.id`."""


def find_plan_model(
    get: Callable[[Field], Any],
    folder: str,
    allowed_folders: tuple[str, ...] | None,
    config: Mapping[str, Any] | None = None,
    online: bool = False,
) -> Architecture | None:
    """Return the architecture of a plan's model.

    It comes from `config` (the object of a `config.json`), from the dimensions that the plan states, or from the
    model's name. `get` returns the value of a plan field; the other arguments are those of `find_architecture`.
    """
    name, changes = get("model.id"), dict(get("model.overrides") or ())
    if config is not None:
        return local.resolve_config(config, name if isinstance(name, str) else "", changes)
    dimensions = get("model.architecture")
    if dimensions:
        from cfglint_train.models.olmo import build_olmo  # imported here because few runs need it

        return build_olmo(dict(dimensions))
    if not isinstance(name, str):
        return None
    return find_architecture(
        name, folder, get("model.revision"), changes, online=online, allowed_folders=allowed_folders
    )


def find_architecture(
    name: str,
    folder: str = ".",
    revision: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    online: bool = False,
    allowed_folders: tuple[str, ...] | None = None,
) -> Architecture | None:
    """Return the architecture of a preset, Hub id or model path, or None if it is unknown.

    The sources are a local folder, the catalogue, the Hugging Face cache and (with `online`) the Hub. The arguments are
    those of `local.find_local_model`. Raise `UnreadableModelError` if a folder's `config.json` is broken or the Hub
    does not return the model.
    """
    changes = overrides or {}
    if name.startswith(PRESET_PREFIX):
        from cfglint_train.models.olmo_core import build_preset  # imported here because few runs need it

        return build_preset(name.removeprefix(PRESET_PREFIX), changes)
    if not name:
        return None
    architecture = local.find_local_model(name, folder, revision, changes, environment, allowed_folders)
    if architecture is None and online:
        from cfglint_train.models import online as hub

        return hub.fetch_architecture(name, revision, changes, allowed_folders) if hub.is_hub_id(name) else None
    return architecture
