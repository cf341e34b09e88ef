"""The vocabulary of a copy of a framework: upstream's, with the copy's own definitions in place of upstream's.

What the copy declares, it takes, whatever upstream did with it. What it does not declare it lacks; upstream's renames
still say where to. Settings of another package (the training arguments of transformers) stay as they are, and so do
those that no release declares, as code reads them from a plain mapping.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, Protocol

from cfglint_schemas import form
from cfglint_schemas.readers.table import Definition, Key, Table
from cfglint_schemas.vocabulary import Vocabulary
from cfglint_train.foundation.versions import is_final

Json = dict[str, Any]

_ALIKE: Final = 4
"""A copy is like a release where at most one setting in so many differs: another one may be a part of a copy."""

# What upstream's code makes of a setting that is declared: the copy's probably does the same.
_BEHAVIOUR: Final = frozenset(("ignored", "requires", "deprecated"))


class Code(Protocol):
    """What the code of a copy does with its settings."""

    def asks(self, words: Collection[str], stops: bool) -> bool:
        """Whether a condition has all of some words; `stops`: one that ends the program."""

    def passes(self, function: str, called: str, argument: str) -> frozenset[object] | None:
        """What the calls of a name in a function give for an argument by keyword (None: no constant, or nothing); None
        where there is no such call.
        """


class VendoredVocabulary(Vocabulary):
    """The vocabulary of a copy, for the releases that upstream's behaviour is known of."""

    __slots__ = ("code", "folder")

    def __init__(self, framework: str, text: str, folder: str, code: Code) -> None:
        super().__init__(framework, text)
        self.folder = folder
        """Where the copy lies, as messages name it."""
        self.code = code

    def like(self, upstream: Vocabulary) -> tuple[str, ...]:
        """The final releases of upstream whose settings differ least from the copy's; none where all differ much.

        Definitions that the copy does not declare are left out, and so are the settings of other packages and those
        that no release has.
        """
        declared, known = 0, list(filter(is_final, upstream.releases))
        differences = dict.fromkeys(known, 0)
        for definition in self.lines.keys() & upstream.lines.keys():
            for name in upstream.lines[definition] if self.head(definition).get("x-declared") else ():
                spans = _own(upstream, definition, name)
                has = name in self.lines[definition] and bool(_own(self, definition, name))
                declared += has
                for release in known if spans else ():
                    differences[release] += has != any(upstream.within(one, upstream.package, release) for one in spans)
        least = min(differences.values())
        return tuple(one for one in known if differences[one] == least) if least * _ALIKE <= declared else ()


def _own(vocabulary: Vocabulary, definition: str, name: str) -> list[Mapping[str, Any]]:
    """The stretches of releases in which the framework itself has a setting."""
    return [span for span in vocabulary.setting(definition, name)["x-releases"] if "package" not in span]


def overlaid(upstream: Json, table: Table) -> str:
    """The text of a schema file: upstream's schema with a copy's table laid over it."""
    first = next(iter(upstream["x-packages"].values()))[0]
    definitions: Json = dict(upstream["$defs"])
    for name, of in table.definitions.items():
        definitions[name] = _definition(of, definitions.get(name, {"type": "object", "properties": {}}), first)
    entries = {name: [{"since": first, "definitions": list(of)}] for name, of in table.entries.items()}
    kept = {word: upstream[word] for word in ("$schema", "title", "x-packages")}
    return form.text({**kept, "x-entries": entries, "$defs": definitions})


def _definition(of: Definition, upstream: Json, first: str) -> Json:
    effects = [span for span in upstream.get("x-unknown", ()) if "package" in span]
    properties = {
        name: kept
        for name, facts in upstream["properties"].items()
        if name not in of.keys and (kept := _lacking(facts)) is not None
    }
    for name, key in of.keys.items():
        properties[name] = _declared(key, upstream["properties"].get(name, {}), first)
    head = {word: value for word, value in upstream.items() if word not in ("properties", "x-unknown")}
    return {
        **head,
        "x-declared": True,
        "x-unknown": [{"since": first, "effect": of.unknown}, *effects],
        "properties": dict(sorted(properties.items())),
    }


def _declared(key: Key, upstream: Json, first: str) -> Json:
    """A setting that the copy declares."""
    span: Json = {"since": first}
    if key.aliases:
        span["aliases"] = list(key.aliases)
    if key.gate:
        span["gate"] = key.gate
    statuses = [status for status in upstream.get("x-status", ()) if status["kind"] in _BEHAVIOUR]
    schema = dict(key.schema)
    for also in upstream.get("x-also", ()):
        schema.update(_also(schema, also["schema"]))
    return {**schema, "x-releases": [span], **({"x-status": statuses} if statuses else {})}


def _also(declared: Json, upstream: Json) -> Json:
    """What upstream takes beside the declared type: further words, those of another package's enumeration, null."""
    if "enum" in declared and "enum" in upstream:
        return {"enum": [*declared["enum"], *(word for word in upstream["enum"] if word not in declared["enum"])]}
    kinds = upstream.get("type")
    wider = isinstance(kinds, list) and declared.get("type") in kinds
    return upstream if wider or "x-external" in declared else {}


def _lacking(upstream: Mapping[str, Any]) -> Json | None:
    """What is left of a setting that the copy does not declare; None for nothing."""
    foreign = [span for span in upstream["x-releases"] if "package" in span]
    if foreign:
        return {**upstream, "x-releases": foreign}
    if upstream.get("x-patched"):
        return dict(upstream)
    if "x-status" in upstream:
        return {"x-releases": [], "x-patched": True, "x-status": upstream["x-status"]}
    return None
