"""Architectures in evidence rows: read and write their dimensions as JSON objects."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.models.architecture import Architecture, Attention, Experts, Latent, Linear, Recurrent, Tower

_RECORDS: Final = {"experts": Experts, "latent": Latent, "tower": Tower, "recurrent": Recurrent}
_NAMES: Final = ("source", "folder", "whole_type", "remote_code")
"""Fields that say where an architecture is from. No number depends on them."""


def parse_architecture(row: Mapping[str, Any]) -> Architecture:
    """Return the architecture that an object describes. Raise TypeError for missing or unknown fields."""
    fields = dict(row)
    for name, record in _RECORDS.items():
        if fields.get(name) is not None:
            fields[name] = record(**fields[name])
    if fields.get("attention") is not None:
        fields["attention"] = Attention(*fields["attention"])
    fields["linears"] = tuple(Linear(*linear) for linear in fields.get("linears", ()))
    return Architecture(**fields)


def format_architecture(architecture: Architecture) -> dict[str, Any]:
    """Return the object that describes an architecture, without its names and without fields at their defaults."""
    nameless = architecture._replace(id="", **{name: type(architecture)._field_defaults[name] for name in _NAMES})
    defaults = Architecture._field_defaults
    fields = {
        name: value for name, value in nameless._asdict().items() if name not in defaults or value != defaults[name]
    }
    for name in _RECORDS:
        if name in fields:
            fields[name] = fields[name]._asdict()
    for name in ("attention", "linears"):
        if name in fields:
            fields[name] = [list(item) for item in fields[name]] if name == "linears" else list(fields[name])
    return fields
