"""The vocabulary of one release as a plain JSON Schema, for editors and other validators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from cfglint_schemas.fact import KeyFact
from cfglint_schemas.lenient import Loader, build_widener
from cfglint_schemas.status import UNKNOWN, Context, Status
from cfglint_schemas.vocabulary import Vocabulary
from cfglint_train.foundation.typed import Any, Final

Json = dict[str, Any]

Describe = Callable[[KeyFact], Mapping[str, str]]
"""Function that returns the annotations of a key's schema, such as `description`."""

# Names that users give to remarks, because JSON has no comments. Editors must not report them.
_REMARKS: Final = "^(_|//|#|x-)"

_ACCEPTING_EFFECTS: Final = frozenset(("mapped", "warning", "nothing"))
"""Effects with which a framework still accepts a key that is renamed, removed or gated."""


def build_plain_schema(
    vocabulary: Vocabulary,
    release: str,
    context: Context = UNKNOWN,
    loader: Loader | None = None,
    remarks: bool = False,
    describe: Describe | None = None,
) -> Json:
    """Return a JSON Schema (draft 2020-12) of the keys that one entry point accepts at one release.

    The schema rejects unknown names unless the framework accepts every name there. It accepts the values that `loader`
    accepts and converts; without a loader, only values of the declared types. Set `remarks` to allow names that serve
    as comments, for files that cannot have comments. `describe` annotates each key. Raises ValueError if `release` is
    not a valid release.
    """
    definitions: dict[str, Json] = {}
    builder = _SchemaBuilder(vocabulary, release, context, definitions, loader, remarks, describe)
    root = builder.build_reference(vocabulary.list_definitions((), release, context))
    for name in () if loader is None else loader.reserved_keys:
        definitions[root["$ref"].rpartition("/")[2]]["properties"].setdefault(name, {})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{vocabulary.framework} {release}",
        **root,
        "$defs": dict(sorted(definitions.items())),
    }


def is_accepted(status: Status) -> bool:
    """Return whether a framework accepts a key with this status instead of rejecting or dropping it."""
    return status.kind in ("present", "ignored") or (
        status.kind in ("renamed", "removed", "gated") and status.effect in _ACCEPTING_EFFECTS
    )


def _keep_schema(_: Mapping[str, Any], schema: Json) -> Json:
    return schema


class _SchemaBuilder:
    """A builder for the definitions of a plain schema; each is built when it is first referenced."""

    __slots__ = ("_context", "_definitions", "_describe", "_release", "_remarks", "_vocabulary", "_widen")

    def __init__(
        self,
        vocabulary: Vocabulary,
        release: str,
        context: Context,
        definitions: dict[str, Json],
        loader: Loader | None,
        remarks: bool,
        describe: Describe | None,
    ) -> None:
        """Store the options of the whole schema; built definitions are added to `definitions`."""
        self._vocabulary = vocabulary
        self._release = release
        self._context = context
        self._definitions = definitions
        self._remarks = remarks
        self._describe = describe
        self._widen = _keep_schema if loader is None else build_widener(loader)

    def build_reference(self, names: Iterable[str], free: Mapping[str, Any] | None = None) -> Json:
        """Return a reference to a definition; several names give a merged definition that has the keys of all.

        If the place may also be a free-form mapping, `free` is the schema of the values of all other keys.
        """
        names = list(dict.fromkeys(names))
        free_names = () if free is None else (str(free.get("$ref", "*")).rpartition("/")[2],)
        title = "+".join((*names, *free_names))
        if title not in self._definitions:
            self._definitions[title] = {}
            self._definitions[title] = self._build_definition(names)
            if free is not None:
                self._definitions[title]["additionalProperties"] = self._convert(free)
        return {"$ref": f"#/$defs/{title}"}

    def _build_definition(self, names: list[str]) -> Json:
        facts_by_name: dict[str, list[KeyFact]] = {}
        for name in names:
            for fact in self._vocabulary.list_facts(name, self._release, self._context):
                if is_accepted(fact.resolve_status()):
                    for spelling in (fact.name, *fact.list_spellings()):
                        facts_by_name.setdefault(spelling, []).append(fact)
        properties = {name: self._build_schema(facts) for name, facts in sorted(facts_by_name.items())}
        definition: Json = {"type": "object", "properties": properties}
        effects = {self._vocabulary.get_effect(name, self._release) for name in names}
        if "kept" not in effects:
            definition["additionalProperties"] = False
            if self._remarks:
                definition["patternProperties"] = {_REMARKS: {}}
        return definition

    def _build_schema(self, facts: list[KeyFact]) -> Json:
        """Return the schema of a key; if several definitions have the key, allow the values of any of them."""
        schemas = [fact.get_schema() for fact in facts]
        if all(schema == schemas[0] for schema in schemas):
            schema = self._convert(schemas[0])
        else:
            schema = self._convert({"anyOf": [part for item in schemas for part in item.get("anyOf", [item])]})
        is_deprecated = all(fact.is_deprecated or fact.resolve_status().kind != "present" for fact in facts)
        if schema.get("default", "") is None:
            # yaml-language-server 1.25.0 stops a completion at a text whose default is null.
            schema = {word: value for word, value in schema.items() if word != "default"}
        if is_deprecated:
            schema = {**schema, "deprecated": True}
        return schema if self._describe is None else {**self._describe(facts[0]), **schema}

    def _convert(self, schema: Mapping[str, Any]) -> Json:
        result = {word: value for word, value in schema.items() if not word.startswith("x-")}
        if "enum" in result and result.get("type") == "array":
            # The words are those of the items; frameworks make a list of a single word.
            words = {"enum": result.pop("enum")}
            result = {**result, "type": ["array", "string"], "anyOf": [words, {"type": "array", "items": words}]}
            result.pop("items", None)
        if "$ref" in result:
            result.update(self.build_reference([result["$ref"][len("#/$defs/") :]]))
        if "items" in result:
            result["items"] = self._convert(result["items"])
        if isinstance(result.get("additionalProperties"), dict):
            result["additionalProperties"] = self._convert(result["additionalProperties"])
        if "anyOf" in result:
            parts = [part for part in result["anyOf"] if "$ref" not in part]
            names = [part["$ref"][len("#/$defs/") :] for part in result["anyOf"] if "$ref" in part]
            maps = [part for part in parts if part.get("type") == "object" and part.get("additionalProperties")]
            if names and maps:
                # As in the framework's reader, names that the model declares follow it; all others are free.
                parts = [part for part in parts if part is not maps[0]]
                result["anyOf"] = [
                    *map(self._convert, parts),
                    self.build_reference(names, maps[0]["additionalProperties"]),
                ]
            else:
                result["anyOf"] = [*map(self._convert, parts), *([self.build_reference(names)] if names else [])]
        return self._widen(schema, result)
