"""Plan fields that are enumerations, and their values."""

from __future__ import annotations

from cfglint_train.foundation.typed import Any, list_members
from cfglint_train.plan import choices as aliases
from cfglint_train.plan.fields import Plan
from cfglint_train.plan.names import Field


def list_choices(field: Field) -> tuple[str, ...] | None:
    """Return the possible values of a field, or None if it is not an enumeration."""
    group, name = field.split(".")
    record: Any = Plan._field_defaults[group]
    alias = getattr(aliases, type(record).__annotations__[name].removesuffix(" | None"), None)
    return None if alias is None else list_members(alias)
