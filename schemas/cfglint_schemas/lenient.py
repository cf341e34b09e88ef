"""Values that a framework converts before it validates them, as JSON Schema.

A declared integer accepts more than integers: pydantic converts text to numbers, OmegaConf resolves `${...}`,
DeepSpeed's host replaces "auto", and some readers check no types at all. A schema for editors must not complain if the
framework does not. Each framework's loader states what it accepts (`cfglint_train.frameworks.loaders`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cfglint_train.foundation.typed import Any, Final, Protocol

Json = dict[str, Any]


class Loader(Protocol):
    """The part of a framework's loader of scalars that a schema needs."""

    @property
    def accepted_schemas(self) -> Mapping[str, Json]:
        """JSON Schemas of the accepted values by declared type; a type that is missing accepts only itself."""

    @property
    def placeholder(self) -> Json | None:
        """JSON Schema of a placeholder for a value of any type, which is resolved later."""

    @property
    def checks_types(self) -> bool:
        """The loader checks values against declared types."""


def build_widener(loader: Loader) -> Callable[[Mapping[str, Any], Json], Json]:
    """Return a function that widens the schema of a declared value to everything that the framework accepts.

    Its arguments are the declaration and the plain schema built from it, in which items and alternatives are already
    widened.
    """
    types, placeholder = loader.accepted_schemas, loader.placeholder

    def widen(declaration: Mapping[str, Any], schema: Json) -> Json:
        if "x-external" in declaration or "x-unchecked" in declaration or not loader.checks_types:
            unchecked = {
                word: value for word, value in schema.items() if word not in ("type", "items", *_BOUND_KEYWORDS)
            }
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
    """Replace each type of a schema with the values that are converted to it."""
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
    """Return the bounds of one kind of value: its own, or else the declared ones."""
    return {
        word: accepted.get(word, schema.get(word)) for word in _BOUND_KEYWORDS if word in schema or word in accepted
    }


def _add_placeholder(schema: Json, placeholder: Json | None) -> Json:
    """Allow a placeholder in place of any value of a schema."""
    if placeholder is None or schema.get("type") == "null":
        return schema
    annotations: Json = {word: schema.pop(word) for word in _ANNOTATION_KEYWORDS if word in schema}
    return {**annotations, "anyOf": [*schema.pop("anyOf", [schema] if schema else []), placeholder]}
