"""JSON Schemas widened to the values that a framework converts before it validates them.

A key declared as an integer accepts more than integers: pydantic converts text to numbers, OmegaConf resolves `${...}`,
DeepSpeed's host framework replaces "auto", and some readers do not check types at all. A schema for editors must not
report values that the framework accepts. Each framework's loader states the values that it accepts
(`cfglint_train.frameworks.loaders`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cfglint_schemas.kinds import is_suggestion
from cfglint_train.foundation.typed import Any, Final, Protocol

Json = dict[str, Any]


class Loader(Protocol):
    """The attributes of a framework's scalar loader that a schema needs."""

    @property
    def accepted_schemas(self) -> Mapping[str, Json]:
        """Declared type -> JSON Schema of the accepted values; a missing type only accepts values of that type."""

    @property
    def placeholder(self) -> Json | None:
        """JSON Schema of placeholders that stand for a value of any type and are resolved later, or None."""

    @property
    def checks_types(self) -> bool:
        """True if the loader checks values against declared types."""

    @property
    def reserved_keys(self) -> tuple[str, ...]:
        """Keys at the top of a file that are for the loader itself."""


def build_widener(loader: Loader) -> Callable[[Mapping[str, Any], Json], Json]:
    """Return a function that widens the schema of a declared value to everything that the framework accepts.

    Its arguments are the declaration and the plain schema built from it; items and alternatives in that schema are
    already widened. The function may modify the schema.
    """
    types, placeholder = loader.accepted_schemas, loader.placeholder

    def widen(declaration: Mapping[str, Any], schema: Json) -> Json:
        if "x-checked-if" in declaration:
            # Other settings decide whether anything refuses another value: the listed ones are suggestions.
            listed = [{"enum": schema["enum"]}] if "enum" in schema else schema.get("anyOf", [])
            plain = {word: schema[word] for word in schema if word not in ("type", "items", "enum", "anyOf")}
            return {**plain, "anyOf": [*listed, {}]} if listed else plain
        if "x-external" in declaration or "x-unchecked" in declaration or not loader.checks_types:
            unchecked = {
                word: value for word, value in schema.items() if word not in ("type", "items", *_BOUND_KEYWORDS)
            }
            if "anyOf" in unchecked and is_suggestion(declaration):
                # Nothing refuses other values: the listed ones are suggestions.
                unchecked["anyOf"] = [*(part for part in declaration["anyOf"] if "enum" in part), {}]
            return _add_placeholder(unchecked, placeholder) if "enum" in unchecked else unchecked
        if "enum" not in schema and "type" in schema and "$ref" not in schema:
            schema = _widen_types(schema, types)
        return (
            _add_placeholder(schema, placeholder)
            if "enum" in schema or "type" in schema or "anyOf" in schema
            else schema
        )

    return widen


_BOUND_KEYWORDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems")
_ANNOTATION_KEYWORDS: Final = ("default", "deprecated")


def _widen_types(schema: Json, types: Mapping[str, Json]) -> Json:
    """Return a schema with each type replaced by the schema of the values that are converted to it."""
    declared = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(name in types for name in declared):
        return schema
    others = {word: value for word, value in schema.items() if word != "type"}
    if len(declared) == 1:
        return {**others, **types[declared[0]], **_merge_bounds(schema, types[declared[0]])}
    annotations: Json = {word: others.pop(word) for word in _ANNOTATION_KEYWORDS if word in others}
    parts = []
    for name in declared:
        accepted = types.get(name, {"type": name})
        parts.append({**others, **accepted, **_merge_bounds(schema, accepted)})
    return {**annotations, "anyOf": parts}


def _merge_bounds(schema: Json, accepted: Json) -> Json:
    """Return the bounds of one type: the bounds of the accepted values, or else the declared bounds."""
    return {
        word: accepted.get(word, schema.get(word)) for word in _BOUND_KEYWORDS if word in schema or word in accepted
    }


def _add_placeholder(schema: Json, placeholder: Json | None) -> Json:
    """Return a schema that also accepts a placeholder; `schema` is modified."""
    if placeholder is None or schema.get("type") == "null":
        return schema
    annotations: Json = {word: schema.pop(word) for word in _ANNOTATION_KEYWORDS if word in schema}
    return {**annotations, "anyOf": [*schema.pop("anyOf", [schema] if schema else []), placeholder]}
