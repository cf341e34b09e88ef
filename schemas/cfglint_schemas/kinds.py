"""What a fragment of JSON Schema lets a value be."""

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
    """One thing that a value may be."""

    name: str
    """int, float, bool, str, list, dict, null, enum, any."""
    values: tuple[Any, ...] = ()
    """For enum."""
    items: tuple[ValueKind, ...] = ()
    """For list: what an item may be; empty is anything."""


def is_free(schema: Mapping[str, Any]) -> bool:
    """Whether a schema lets every name in: a mapping without names of its own, or a type of unknown values."""
    return "$ref" not in schema and "enum" not in schema and can_be(schema, "object")


def can_be(schema: Mapping[str, Any], kind: str) -> bool:
    """Whether a schema lets a value be of a type."""
    types = schema.get("type")
    if types is None:
        return "enum" not in schema and "$ref" not in schema
    return kind in types if isinstance(types, list) else kind == types


def list_alternatives(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The schemas of which a value has to fit one."""
    if "anyOf" in schema:
        return [flat for part in schema["anyOf"] for flat in list_alternatives(part)]
    return [schema]


def list_kinds(schema: Mapping[str, Any]) -> tuple[ValueKind, ...]:
    """The things that a JSON Schema fragment lets a value be."""
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
