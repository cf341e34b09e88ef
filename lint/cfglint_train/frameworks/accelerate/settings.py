"""Settings of accelerate's file on which others depend."""

from __future__ import annotations

from cfglint_train.frameworks.lens import Config


def get_distributed_type(config: Config) -> str:
    """Return the distributed type; NO for `no`, which YAML reads as a boolean."""
    value = config.get("distributed_type")
    return value if isinstance(value, str) else "NO" if value is False else ""


def build_deepspeed_route(key: str) -> tuple[str, str]:
    """Return the route of a key of the inline DeepSpeed section."""
    return "deepspeed_config", key


def has_deepspeed_file(config: Config) -> bool:
    """Return whether DeepSpeed's settings are in a separate file, next to which accelerate allows no others."""
    stated = config.get(*build_deepspeed_route("deepspeed_config_file"))
    return isinstance(stated, str) and stated != "none"
