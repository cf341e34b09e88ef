"""A reader of plan fields that records the fields that were read, missing or assumed."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.plan.fields import FIELDS, Plan

if TYPE_CHECKING:
    from typing import Literal

    from cfglint_train.plan.names import Field

    Missing = Field | Literal["model"]

MODEL: Final = "model"
"""Missing input that is not a plan field: the shape of the model, or a formula for its layers."""

_FETCH: Final[dict[Field, Callable[[Plan], Any]]] = {field: attrgetter(field) for field in FIELDS}


class Reader:
    """A reader of the fields of one plan; the value of an unstated field is None.

    `unreadable`: fields that are set but undetermined. No default may replace them.
    """

    __slots__ = ("assumed", "fields", "get", "missing", "plan", "unreadable")

    def __init__(self, plan: Plan, unreadable: frozenset[Field] = frozenset()) -> None:
        """Start with no field read, missing or assumed."""
        self.plan = plan
        self.unreadable = unreadable
        self.fields: list[Field] = []
        self.missing: list[Missing] = []
        self.assumed: list[Field] = []
        remember, fetch = self.fields.append, _FETCH

        def get(field: Field) -> Any:
            remember(field)
            return fetch[field](plan)

        self.get: Callable[[Field], Any] = get
        """Function that returns the value of a field, or None if it is unknown. It is a closure for speed, because an
        estimate reads seventy fields.
        """

    @property
    def undetermined(self) -> list[Field]:
        """Fields that were read although their value is undetermined."""
        return [field for field in dict.fromkeys(self.fields) if field in self.unreadable] if self.unreadable else []

    def include(self, other: Reader) -> None:
        """Add the records of another reader that has read the same values before."""
        self.fields += other.fields
        self.missing += other.missing
        self.assumed += other.assumed

    def get_flag(self, field: Field) -> bool:
        """Return whether a field is on, or False if it is unknown."""
        return bool(self.get(field))

    def get_number(self, field: Field) -> Any:
        """Return the number in a field, or 0 if it is unknown."""
        return self.get(field) or 0

    def is_offloaded(self, field: Field) -> bool:
        """Return whether a field names a place outside the GPU, or False if it is unknown."""
        return (self.get(field) or "none") != "none"

    def require(self, field: Field) -> Any:
        """Return the value of a field that every estimate needs, and record the field as missing if it is unknown."""
        value = self.get(field)
        if value is None:
            self.missing.append(field)
        return value

    def require_count(self, field: Field) -> Any:
        """Return a positive number; otherwise return None and record the field as missing."""
        value = self.get(field)
        if value is None or value <= 0:
            self.missing.append(field)
            return None
        return value

    def assume(self, field: Field, default: Any) -> Any:
        """Return the value, or `default` if unknown; the field is then recorded as assumed."""
        value = self.get(field)
        if value is None:
            self.assumed.append(field)
            return default
        return value
