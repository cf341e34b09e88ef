"""Settings in accelerate's file that other settings depend on."""

from __future__ import annotations

from cfglint_train.frameworks.lens import Config


def get_distributed_type(config: Config) -> str:
    """Return the distributed type, or an empty string; `NO` for a bare `no`, which YAML reads as false."""
    value = config.get("distributed_type")
    return value if isinstance(value, str) else "NO" if value is False else ""


def build_deepspeed_route(key: str) -> tuple[str, str]:
    """Return the route of a key in the `deepspeed_config` section."""
    return "deepspeed_config", key


def has_deepspeed_file(config: Config) -> bool:
    """Return whether a separate file holds the DeepSpeed settings, so that accelerate rejects others in the section."""
    stated = config.get(*build_deepspeed_route("deepspeed_config_file"))
    return isinstance(stated, str) and stated != "none"
