"""Plugin names of LLaMA-Factory v1's sections."""

from __future__ import annotations

from cfglint_train.frameworks.lens import Config


def get_plugin_name(config: Config, section: str) -> str | None:
    """Return the name of a section's plugin, or None if the section is absent or does not name a plugin."""
    name = config.get(section, "name")
    return name if isinstance(name, str) else None
