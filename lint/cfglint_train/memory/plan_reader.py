"""A reader of plan fields that records which were read, which are missing and which were assumed."""

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
"""Missing besides plan fields: the shape of the model, or a formula for its layers."""

_FETCH: Final[dict[Field, Callable[[Plan], Any]]] = {field: attrgetter(field) for field in FIELDS}


class Reader:
    """A reader of the fields of one plan. A value is None if the plan does not state it.

    `unreadable`: fields that are set to a value that cannot be determined. No default replaces them.
    """

    __slots__ = ("assumed", "fields", "get", "missing", "plan", "unreadable")

    def __init__(self, plan: Plan, unreadable: frozenset[Field] = frozenset()) -> None:
        """Start reading a plan."""
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
        """Reader of one field, which returns None if it is unknown. A closure, because an estimate reads seventy
        fields.
        """

    @property
    def undetermined(self) -> list[Field]:
        """Fields that were read although their value cannot be determined."""
        return [field for field in dict.fromkeys(self.fields) if field in self.unreadable] if self.unreadable else []

    def include(self, other: Reader) -> None:
        """Add the records of another reader, which read the same values before."""
        self.fields += other.fields
        self.missing += other.missing
        self.assumed += other.assumed

    def get_flag(self, field: Field) -> bool:
        """Return whether a field is switched on; False if unknown."""
        return bool(self.get(field))

    def get_number(self, field: Field) -> Any:
        """Return a number, 0 if unknown."""
        return self.get(field) or 0

    def is_offloaded(self, field: Field) -> bool:
        """Return whether a field names a place outside the GPU; False if unknown."""
        return (self.get(field) or "none") != "none"

    def require(self, field: Field) -> Any:
        """Return the value, and record it as missing if unknown: there is no estimate without it."""
        value = self.get(field)
        if value is None:
            self.missing.append(field)
        return value

    def require_count(self, field: Field) -> Any:
        """Return a number of at least 1, and record the field as missing otherwise."""
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
