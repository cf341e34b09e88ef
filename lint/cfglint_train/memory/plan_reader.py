"""Takes fields out of a plan, and remembers which were read, which are missing and which were assumed."""

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
"""Missing, beside plan fields: the shape of the model, or a formula for its layers."""

_FETCH: Final[dict[Field, Callable[[Plan], Any]]] = {field: attrgetter(field) for field in FIELDS}


class Reader:
    """The fields of one plan. A value is None if the plan does not state it.

    `unreadable` are those that are stated, with a value that cannot be determined: no usual value replaces them.
    """

    __slots__ = ("assumed", "fields", "get", "missing", "plan", "unreadable")

    def __init__(self, plan: Plan, unreadable: frozenset[Field] = frozenset()) -> None:
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
        """The value of a field, None where it is unknown. A closure: an estimate asks seventy times."""

    @property
    def undetermined(self) -> list[Field]:
        """The fields that were read although their value cannot be determined."""
        return [field for field in dict.fromkeys(self.fields) if field in self.unreadable] if self.unreadable else []

    def include(self, other: Reader) -> None:
        """Remember what another reader remembers: what was read before of a plan that is alike in it."""
        self.fields += other.fields
        self.missing += other.missing
        self.assumed += other.assumed

    def get_flag(self, field: Field) -> bool:
        """Whether a field is switched on; off if unknown."""
        return bool(self.get(field))

    def get_number(self, field: Field) -> Any:
        """A number, 0 if unknown."""
        return self.get(field) or 0

    def is_offloaded(self, field: Field) -> bool:
        """Whether a field names a place outside the GPU; no if unknown."""
        return (self.get(field) or "none") != "none"

    def require(self, field: Field) -> Any:
        """The value; without it there is no estimate."""
        value = self.get(field)
        if value is None:
            self.missing.append(field)
        return value

    def require_count(self, field: Field) -> Any:
        """A number from 1 on; there is no estimate of a batch of nothing either."""
        value = self.get(field)
        if value is None or value <= 0:
            self.missing.append(field)
            return None
        return value

    def assume(self, field: Field, default: Any) -> Any:
        """The value, or the usual one if unknown."""
        value = self.get(field)
        if value is None:
            self.assumed.append(field)
            return default
        return value
