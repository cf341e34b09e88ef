"""Resolved plans: values and origins of plan fields while lenses, companions and inference collect them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.plan.fields import FIELDS, FULL_MODEL_TUNING, Plan
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import FieldValue, Origin


class ResolvedPlan:
    """Values and origins of plan fields during collection; later values replace earlier ones."""

    __slots__ = ("values",)

    def __init__(self, values: Mapping[Field, FieldValue] | None = None) -> None:
        """Copy the values."""
        self.values: dict[Field, FieldValue] = dict(values or {})

    def put(self, field: Field, value: Any, origin: Origin) -> None:
        """Set a field, or raise `KeyError` for an unknown field."""
        if field not in _INDICES:
            raise KeyError(field)
        self.values[field] = FieldValue(value, origin)

    def infer(self, field: Field, value: Any, note: str, assumption: str = "") -> None:
        """Set a field that follows from other fields, unless it is stated or has a known default.

        A stated value that cannot be determined stays unknown, and a `value` of None changes nothing. `assumption`
        names an unstated fact that the inference uses.
        """
        present = self.values.get(field)
        kind = "inferred" if present is None else present.origin.kind
        if value is not None and (
            kind in ("inferred", "assumed") or (kind == "default" and present is not None and present.value is None)
        ):
            self.put(field, value, Origin("inferred", note=note, assumption=assumption))

    def get(self, field: Field) -> Any:
        """Return the value of a field, or None if it is unknown."""
        present = self.values.get(field)
        return None if present is None else present.value

    def get_origin(self, field: Field) -> Origin | None:
        """Return the origin of a field's value, or None if the field was never set."""
        present = self.values.get(field)
        return None if present is None else present.origin

    def is_stated(self, field: Field) -> bool:
        """Return whether the configuration or the user states the field."""
        origin = self.get_origin(field)
        return origin is not None and origin.kind in ("explicit", "user")

    @property
    def unreadable_fields(self) -> frozenset[Field]:
        """Fields that are stated, but whose value cannot be determined."""
        stated_kinds = ("explicit", "user")
        return frozenset(
            field for field, value in self.values.items() if value.value is None and value.origin.kind in stated_kinds
        )

    def update(self, other: ResolvedPlan) -> None:
        """Copy every field of another plan."""
        self.values.update(other.values)

    def __iter__(self) -> Iterator[tuple[Field, FieldValue]]:
        """Iterate over the fields and their values."""
        return iter(self.values.items())

    @property
    def world_size(self) -> int | None:
        """`Plan.world_size` of the unfinished plan."""
        nodes, gpus = self.get("launch.nodes"), self.get("launch.gpus_per_node")
        return nodes * gpus if nodes and gpus else None

    @property
    def data_parallel(self) -> int | None:
        """`Plan.data_parallel` of the unfinished plan."""
        world = self.world_size
        axes: tuple[Field, ...] = ("parallel.tensor", "parallel.pipeline", "parallel.context")
        others = 1
        for axis in axes:
            others *= self.get(axis) or 1
        return None if world is None else max(1, world // others)

    @property
    def trains_adapter(self) -> bool:
        """`Plan.trains_adapter` of the unfinished plan."""
        return self.get("method.tuning") not in FULL_MODEL_TUNING

    def build_plan(self) -> Plan:
        """Build the plan; fields that were never set are None."""
        # Iterate over the known fields, which are about a third of all fields.
        groups: list[list[Any]] = [[None] * len(record._fields) for record in _GROUPS]
        for field, value in self.values.items():
            group, place = _INDICES[field]
            groups[group][place] = value.value
        return Plan._make(record._make(fields) for record, fields in zip(_GROUPS, groups))


_GROUPS: Final[tuple[Any, ...]] = tuple(map(type, Plan._field_defaults.values()))

# Full name of a field -> the index of its group, and its index in the group.
_INDICES: Final[Mapping[Field, tuple[int, int]]] = dict(
    zip(FIELDS, [(group, place) for group, record in enumerate(_GROUPS) for place in range(len(record._fields))])
)


def merge_plans(readings: Sequence[ResolvedPlan]) -> tuple[ResolvedPlan, dict[Field, tuple[Any, ...]]]:
    """Return the common fields of several plans of one run, and the values of the fields in which they differ.

    A field that differs is unknown in the result, regardless of the order of the plans. A field that only some plans
    have counts as different.
    """
    first, *others = readings
    if not others:
        return first, {}
    result = ResolvedPlan()
    differing: dict[Field, tuple[Any, ...]] = {}
    for field in sorted({field for reading in readings for field, _ in reading}):
        values = [reading.values.get(field) for reading in readings]
        present = [value for value in values if value is not None]
        if len(present) == len(values) and all(is_equal(candidate.value, present[0].value) for candidate in present):
            result.values[field] = present[0]
            continue
        place = next((candidate.origin.place for candidate in present if candidate.origin.place is not None), None)
        names = dict.fromkeys(
            candidate.origin.place.document.path for candidate in present if candidate.origin.place is not None
        )
        note = f"{' and '.join(names)} differ" if len(names) > 1 else "the launches differ"
        result.put(field, None, Origin("user", place, note, present[0].origin.key))
        differing[field] = tuple(None if candidate is None else candidate.value for candidate in values)
    return result, differing


# Fields that hold a setting as the file spells it; they change whenever the setting changes.
SPELLINGS: Final = frozenset(("optimizer.stated_name",))


def find_changed_fields(
    before: ResolvedPlan, after: ResolvedPlan, kinds: Iterable[str] = ("explicit", "default", "user")
) -> dict[Field, Any]:
    """Return the fields whose values differ, with the new values.

    A field counts if its origin in either plan is of one of `kinds`; by default, inferred and assumed values do not.
    """
    fields = {field for reading in (before, after) for field, value in reading if value.origin.kind in kinds}
    return {
        field: after.get(field) for field in fields - SPELLINGS if not is_equal(before.get(field), after.get(field))
    }


def is_equal(left: Any, right: Any) -> bool:
    """Return whether two values are equal; NaN equals NaN."""
    return bool(left == right or (left != left and right != right))
