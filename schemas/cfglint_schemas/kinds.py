"""The kinds of values that a JSON Schema fragment allows."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final

_KIND_BY_TYPE: Final = {
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "string": "str",
    "array": "list",
    "object": "dict",
    "null": "null",
}


class ValueKind(Frozen):
    """One kind of value."""

    name: str
    """int, float, bool, str, list, dict, null, enum or any."""
    values: tuple[Any, ...] = ()
    """Allowed values, for enum."""
    items: tuple[ValueKind, ...] = ()
    """Kinds of the items, for list; empty if any item is allowed."""


def is_free(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema accepts any key: a mapping without declared keys, or a value of unknown type."""
    return "$ref" not in schema and "enum" not in schema and can_be(schema, "object")


def can_be(schema: Mapping[str, Any], kind: str) -> bool:
    """Return whether a schema allows a value of a type."""
    types = schema.get("type")
    if types is None:
        return "enum" not in schema and "$ref" not in schema
    return kind in types if isinstance(types, list) else kind == types


def is_suggestion(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema lists values without refusing other texts: a registry that users may extend."""
    parts = schema.get("anyOf", ())
    is_open = any(can_be(part, "string") and not {"pattern", "x-external"} & part.keys() for part in parts)
    return is_open and any("enum" in part for part in parts)


def list_alternatives(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the alternatives of a schema, nested `anyOf` included; a value must match at least one."""
    if "anyOf" in schema:
        return [flat for part in schema["anyOf"] for flat in list_alternatives(part)]
    return [schema]


def list_kinds(schema: Mapping[str, Any]) -> tuple[ValueKind, ...]:
    """Return the kinds of values that a JSON Schema fragment allows."""
    kinds: list[ValueKind] = []
    for part in list_alternatives(schema):
        if "enum" in part:
            values = tuple(value for value in part["enum"] if value is not None)
            kinds.append(ValueKind("enum", values))
            if len(values) < len(part["enum"]):
                kinds.append(ValueKind("null"))
        elif "$ref" in part:
            kinds.append(ValueKind("dict"))
        elif "type" in part:
            types = part["type"] if isinstance(part["type"], list) else [part["type"]]
            items = list_kinds(part["items"]) if part.get("items") else ()
            kinds.extend(ValueKind(_KIND_BY_TYPE[name], (), items if name == "array" else ()) for name in types)
        else:
            kinds.append(ValueKind("any"))
    return tuple(kinds)
