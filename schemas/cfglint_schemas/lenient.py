"""What a framework makes of a value before it checks it, in the words of JSON Schema.

A declared integer takes more than integers: pydantic makes numbers of text, OmegaConf fills in `${...}`, DeepSpeed's
host replaces "auto", and some readers look at no type at all. A schema for editors must not complain
where the framework does not. What each takes is said by its loader (`cfglint_train.frameworks.loaders`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cfglint_train.foundation.typed import Any, Final, Protocol

Json = dict[str, Any]


class Loader(Protocol):
    """How a framework loads scalars, as far as a schema asks."""

    @property
    def accepted_schemas(self) -> Mapping[str, Json]:
        """Declared type -> JSON Schema of what is taken for it; a type without a row takes nothing else."""

    @property
    def placeholder(self) -> Json | None:
        """JSON Schema of what stands for a value of any type until something fills it in."""

    @property
    def checks_types(self) -> bool:
        """Whether values are checked against declared types at all."""


def build_widener(loader: Loader) -> Callable[[Mapping[str, Any], Json], Json]:
    """The function that turns what a framework declares of one value into what it takes.

    It gets the declaration and the plain schema that was made of it, in which items and alternatives are done.
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
    """A schema with types, each as it is converted."""
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
    """The bounds that count for one kind of value: its own, then the declared ones."""
    return {
        word: accepted.get(word, schema.get(word)) for word in _BOUND_KEYWORDS if word in schema or word in accepted
    }


def _add_placeholder(schema: Json, placeholder: Json | None) -> Json:
    """A schema, or something that stands for any value."""
    if placeholder is None or schema.get("type") == "null":
        return schema
    annotations: Json = {word: schema.pop(word) for word in _ANNOTATION_KEYWORDS if word in schema}
    return {**annotations, "anyOf": [*schema.pop("anyOf", [schema] if schema else []), placeholder]}
