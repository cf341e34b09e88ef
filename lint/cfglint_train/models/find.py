"""Find the architecture of a model by the name that a configuration gives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.models import local
from cfglint_train.models.architecture import Architecture
from cfglint_train.plan.names import Field

PRESET: Final = "olmo_core:"
"""Prefix of OLMo-core presets in `model.id`."""


def find_plan_model(
    get: Callable[[Field], Any],
    folder: str,
    allowed_folders: tuple[str, ...] | None,
    config: Mapping[str, Any] | None = None,
    online: bool = False,
) -> Architecture | None:
    """Return the architecture of a plan's model: from the object of a `config.json` given for it, the dimensions
    that it states, or its name. `get` gives the value of a plan field; the rest is as in `architecture_of`.
    """
    name, changes = get("model.id"), dict(get("model.overrides") or ())
    if config is not None:
        return local.resolve_config(config, name if isinstance(name, str) else "", changes)
    dimensions = get("model.architecture")
    if dimensions:
        from cfglint_train.models.olmo import build_olmo  # as below: only where it is needed

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
    """Return the architecture of a preset, or of a model by hub id or path: a folder here, the catalogue, the Hugging
    Face cache or (`online`) the Hub.

    Arguments are those of `local.known`. None where the model is unknown. Raises UnreadableModelError for a folder
    whose `config.json` is broken, and where the Hub does not give what is asked for.
    """
    changes = overrides or {}
    if name.startswith(PRESET):
        from cfglint_train.models.olmo_core import build_preset  # as below: only where it is needed

        return build_preset(name.removeprefix(PRESET), changes)
    if not name:
        return None
    architecture = local.find_local_model(name, folder, revision, changes, environment, allowed_folders)
    if architecture is None and online:
        from cfglint_train.models import online as hub

        return hub.fetch_architecture(name, revision, changes, allowed_folders) if hub.is_hub_id(name) else None
    return architecture
