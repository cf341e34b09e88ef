"""How sections of LLaMA-Factory v1 name their plugin."""

from __future__ import annotations

from cfglint_train.frameworks.lens import Config


def get_plugin_name(config: Config, section: str) -> str | None:
    """The name of a plugin; None where the section is absent or names none."""
    name = config.get(section, "name")
    return name if isinstance(name, str) else None
