"""Lookup and conversion of axolotl's settings."""

from __future__ import annotations

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.loaders import PYDANTIC

LIGER_PLUGIN: Final = "axolotl.integrations.liger.LigerPlugin"

CCE_PLUGIN: Final = "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"


def read_bool(config: Config, *route: str) -> bool | None:
    """Return a setting as the boolean that pydantic reads, or None if it is absent, null or invalid."""
    value = config.get(*route)
    return None if value is None else PYDANTIC.boolean.read_or_none(value)


def read_integer(config: Config, *route: str) -> int | None:
    """Return a setting as the integer that pydantic reads, or None if it is absent, null or invalid."""
    value = config.get(*route)
    return None if value is None else PYDANTIC.integer.read_or_none(value)


def list_plugins(config: Config) -> list[str]:
    """Return the plugins that the config loads; axolotl accepts only a list."""
    stated_plugins = config.get("plugins")
    return [name for name in stated_plugins if isinstance(name, str)] if isinstance(stated_plugins, list) else []


def has_plugin(config: Config, module: str) -> bool:
    """Return whether the config loads a plugin from `axolotl.integrations.<module>`."""
    return any(name.startswith(f"axolotl.integrations.{module}") for name in list_plugins(config))


def is_sharegpt(dataset: Any) -> bool:
    """Return whether a data set has the type sharegpt, with or without a suffix."""
    kind = dataset.get("type") if isinstance(dataset, dict) else None
    return isinstance(kind, str) and kind.startswith("sharegpt")


def get_fsdp_setting(config: Config, key: str) -> Any:
    """Return a key of `fsdp_config`, with or without the old `fsdp_` prefix, or None.

    Values that pydantic reads as booleans become booleans, except strings other than "true" and "false".
    """
    for route in (("fsdp_config", key), ("fsdp_config", f"fsdp_{key}")):
        value = config.get(*route)
        if value is not None:
            truth = PYDANTIC.boolean.read_or_none(value)
            return (
                value if truth is None or (isinstance(value, str) and value.lower() not in ("true", "false")) else truth
            )
    return None
