"""Vocabularies of vendored copies: upstream's vocabulary, overlaid with the definitions of a copy.

A copy accepts the keys that it declares, regardless of upstream, and lacks all others; for these, upstream's renames
still name the replacements. Keys of another package (transformers' training arguments) keep upstream's facts. So do
keys that no release declares because code reads them from a plain mapping.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, Protocol

from cfglint_schemas import form
from cfglint_schemas.kinds import can_be, is_suggestion, list_alternatives
from cfglint_schemas.readers.table import Definition, ReleaseTable, TableKey
from cfglint_schemas.vocabulary import Vocabulary
from cfglint_train.foundation.versions import is_final

Json = dict[str, Any]

_KEYS_PER_DIFFERENCE: Final = 4
"""Minimum declared keys per differing key of a copy that resembles a release; other copies may be incomplete."""

# Kinds of status that come from upstream's code, not its declarations; a copy's code probably behaves the same.
_CODE_STATUSES: Final = frozenset(("ignored", "requires", "deprecated"))


class CopyCode(Protocol):
    """Lookups in the code of a vendored copy: the conditions and calls that use keys."""

    def has_condition(self, words: Collection[str], stops: bool, calls: bool = False) -> bool:
        """Return whether a condition contains all `words`; with `stops`, only conditions that end the program count."""

    def can_read(self, name: str) -> bool:
        """Return whether code of the copy, or of a package beside it, may read a key added to a configuration."""

    def has_word_beside(self, name: str, module: str) -> bool:
        """Return whether code beside the copy has a name: the folder of a program, or a package that it imports."""

    def has_text(self, word: str) -> bool:
        """Return whether code of the copy, or of a package beside it, has a word as a string."""

    def find_passed_values(self, function: str, callee_name: str, argument: str) -> frozenset[object] | None:
        """Return the values that calls of `callee_name` in a function pass as a keyword argument.

        Returns None if the function does not call that name. A value is None if it is not a constant or if a call does
        not pass the argument.
        """


class VendoredVocabulary(Vocabulary):
    """The vocabulary of a vendored copy, over the releases that upstream's vocabulary covers."""

    __slots__ = ("code", "folder")

    def __init__(self, framework: str, text: str, folder: str, code: CopyCode) -> None:
        """Index the overlaid schema of a copy in `folder`."""
        super().__init__(framework, text)
        self.folder = folder
        """Folder of the copy, as messages show it."""
        self.code = code

    def find_similar_releases(self, upstream: Vocabulary) -> tuple[str, ...]:
        """Return upstream's final releases whose keys differ least from the copy's; none if even these differ too much.

        Only definitions that the copy declares are compared, without keys of other packages and keys that no release
        has.
        """
        declared, releases = 0, list(filter(is_final, upstream.releases))
        differences = dict.fromkeys(releases, 0)
        for definition in self.lines.keys() & upstream.lines.keys():
            for name in upstream.lines[definition] if self.parse_head(definition).get("x-declared") else ():
                spans = _list_own_spans(upstream, definition, name)
                is_declared = name in self.lines[definition] and bool(_list_own_spans(self, definition, name))
                declared += is_declared
                for release in releases if spans else ():
                    differences[release] += is_declared != any(
                        upstream.is_within(item, upstream.package, release) for item in spans
                    )
        fewest = min(differences.values())
        return (
            tuple(item for item in releases if differences[item] == fewest)
            if fewest * _KEYS_PER_DIFFERENCE <= declared
            else ()
        )


def _list_own_spans(vocabulary: Vocabulary, definition: str, name: str) -> list[Mapping[str, Any]]:
    """Return the spans of releases in which the framework itself has a key."""
    return [span for span in vocabulary.parse_key(definition, name)["x-releases"] if "package" not in span]


def build_overlay(upstream: Json, table: ReleaseTable) -> str:
    """Return the text of a schema file: upstream's schema overlaid with the table of a copy."""
    first_release = next(iter(upstream["x-packages"].values()))[0]
    definitions: Json = dict(upstream["$defs"])
    for name, definition in table.definitions.items():
        definitions[name] = _overlay_definition(
            definition, definitions.get(name, {"type": "object", "properties": {}}), first_release
        )
    entries = {
        name: [{"since": first_release, "definitions": list(definition)}] for name, definition in table.entries.items()
    }
    head = {word: upstream[word] for word in ("$schema", "title", "x-packages")}
    return form.format_schema({**head, "x-entries": entries, "$defs": definitions})


def _overlay_definition(definition: Definition, upstream: Json, first_release: str) -> Json:
    effects = [span for span in upstream.get("x-unknown", ()) if "package" in span]
    properties = {
        name: remainder
        for name, facts in upstream["properties"].items()
        if name not in definition.keys and (remainder := _keep_foreign(facts)) is not None
    }
    for name, key in definition.keys.items():
        properties[name] = _overlay_key(key, upstream["properties"].get(name, {}), first_release)
    head = {word: value for word, value in upstream.items() if word not in ("properties", "x-unknown")}
    return {
        **head,
        "x-declared": True,
        "x-unknown": [{"since": first_release, "effect": definition.unknown}, *effects],
        "properties": dict(sorted(properties.items())),
    }


def _overlay_key(key: TableKey, upstream: Json, first_release: str) -> Json:
    """Return the facts about a key that the copy declares, with the statuses that upstream's code gives it."""
    span: Json = {"since": first_release}
    if key.aliases:
        span["aliases"] = list(key.aliases)
    if key.gate:
        span["gate"] = key.gate
    statuses = [status for status in upstream.get("x-status", ()) if status["kind"] in _CODE_STATUSES]
    schema = dict(key.schema)
    for overlay in upstream.get("x-also", ()):
        schema.update(_find_wider_schema(schema, overlay["schema"]))
    return {**schema, "x-releases": [span], **({"x-status": statuses} if statuses else {})}


def _find_wider_schema(declared: Json, upstream: Json) -> Json:
    """Return schema keywords for the values that upstream's code accepts beyond the declared type.

    These are additional words, the words of another package's enumeration, or additional types such as null. Words that
    are suggestions are kept, too.
    """
    if "enum" in declared and "enum" in upstream:
        return {"enum": [*declared["enum"], *(word for word in upstream["enum"] if word not in declared["enum"])]}
    if (
        is_suggestion(upstream)
        and "enum" not in declared
        and any(can_be(part, "string") for part in list_alternatives(declared))
    ):
        return upstream
    kinds = upstream.get("type")
    wider = isinstance(kinds, list) and declared.get("type") in kinds
    return upstream if wider or "x-external" in declared else {}


def _keep_foreign(upstream: Mapping[str, Any]) -> Json | None:
    """Return the facts to keep about a key that the copy does not declare, or None to drop it."""
    foreign = [span for span in upstream["x-releases"] if "package" in span]
    if foreign:
        return {**upstream, "x-releases": foreign}
    if upstream.get("x-patched"):
        return dict(upstream)
    if "x-status" in upstream:
        return {"x-releases": [], "x-patched": True, "x-status": upstream["x-status"]}
    return None
