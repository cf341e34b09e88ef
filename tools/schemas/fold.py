"""Fold the tables of many releases into one schema that states the first and last release of every fact.

Folding is lossless: `unfold` restores the tables, so a release can be added or read again without fetching the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from cfglint_schemas.readers.table import Definition, ReleaseTable, TableKey
from cfglint_train.foundation.versions import parse_release

Json = dict[str, Any]

ANNOTATIONS: Final = frozenset(("x-releases", "x-status", "x-also"))
"""Keywords of a key that are not part of its JSON Schema at the newest release."""

Tables = dict[str, dict[str, ReleaseTable]]
"""Package -> release -> table. The first package is the framework itself."""


def is_equal(left: Any, right: Any) -> bool:
    """Return whether two facts have the same JSON text, so that 1, 1.0 and true differ."""
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


def fold(tables: Tables, title: str) -> Json:
    """Return one schema for all releases; `title` is the framework."""
    main = next(iter(tables))
    releases = {package: sorted(by_release, key=parse_release) for package, by_release in tables.items()}
    names = sorted(
        {name for by_release in tables.values() for table in by_release.values() for name in table.definitions}
    )
    entries: dict[str, None] = {}
    for release in reversed(releases[main]):
        entries.update(dict.fromkeys(tables[main][release].entries))
    spans = {entry: _fold_entry_point(entry, tables[main], releases[main]) for entry in entries}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "x-packages": releases,
        "x-entries": spans,
        "anyOf": [
            {"allOf": [{"$ref": f"#/$defs/{name}"} for name in by_release[-1]["definitions"]]}
            for by_release in spans.values()
        ],
        "$defs": {name: _fold_definition(name, tables, releases) for name in names},
    }


def _fold_entry_point(entry: str, tables: Mapping[str, ReleaseTable], releases: list[str]) -> list[Json]:
    facts = {
        release: {"definitions": list(tables[release].entries[entry])}
        for release in releases
        if entry in tables[release].entries
    }
    return _build_spans(facts, releases)


def _fold_definition(name: str, tables: Tables, releases: Mapping[str, list[str]]) -> Json:
    effects: list[Json] = []
    keys: dict[str, list[Json]] = {}
    for package, by_release in tables.items():
        definitions = {
            release: table.definitions[name] for release, table in by_release.items() if name in table.definitions
        }
        spans = _build_spans(
            {release: {"effect": definitions[release].unknown} for release in definitions}, releases[package]
        )
        effects += _add_package(spans, package, tables)
        for key in {key for definition in definitions.values() for key in definition.keys}:
            facts = {
                release: _build_facts(definition.keys[key])
                for release, definition in definitions.items()
                if key in definition.keys
            }
            keys.setdefault(key, []).extend(_add_package(_build_spans(facts, releases[package]), package, tables))
    return {
        "type": "object",
        "x-unknown": effects,
        "properties": {key: _fold_key(keys[key]) for key in sorted(keys)},
    }


def _build_facts(key: TableKey) -> Json:
    facts: Json = {"schema": key.schema}
    if key.aliases:
        facts["aliases"] = list(key.aliases)
    if key.gate:
        facts["gate"] = key.gate
    return facts


def _build_spans(facts: Mapping[str, Json], releases: list[str]) -> list[Json]:
    """Return the spans of consecutive releases with equal facts; a span up to the newest release has no `last`."""
    spans: list[Json] = []
    previous: str | None = None
    for release in releases:
        fact = facts.get(release)
        if fact is not None:
            if previous is not None and spans and previous in facts and is_equal(facts[previous], fact):
                spans[-1]["last"] = release
            else:
                spans.append({"since": release, "last": release, **fact})
        previous = release
    if spans and spans[-1]["last"] == releases[-1]:
        del spans[-1]["last"]
    return spans


def _add_package(spans: list[Json], package: str, tables: Tables) -> list[Json]:
    """Return spans with their package, which is left out for the framework's own package."""
    return spans if package == next(iter(tables)) else [{"package": package, **span} for span in spans]


def _fold_key(spans: list[Json]) -> Json:
    """Return a key with the schema of its newest span; in `x-releases`, spans state a schema only if it differs.

    Spans of the framework itself take precedence over those of other packages.
    """
    main_spans = [span for span in spans if "package" not in span]
    newest = (main_spans or spans)[-1]["schema"]
    return {
        **newest,
        "x-releases": [
            {name: value for name, value in span.items() if name != "schema" or not is_equal(value, newest)}
            for span in spans
        ],
    }


def unfold(schema: Json) -> Tables:
    """Return the tables that a schema was folded from, without keys and statuses that patches added."""
    releases: dict[str, list[str]] = schema["x-packages"]
    main = next(iter(releases))
    definitions: dict[str, dict[str, dict[str, tuple[dict[str, TableKey], str]]]] = {
        package: {release: {} for release in package_releases} for package, package_releases in releases.items()
    }
    for name, definition in schema["$defs"].items():
        for span in definition["x-unknown"]:
            package = span.get("package", main)
            for release in _list_covered(span, releases[package]):
                definitions[package][release][name] = ({}, span["effect"])
        for key, facts in definition["properties"].items():
            if facts.get("x-patched"):
                continue
            newest = {word: value for word, value in facts.items() if word not in ANNOTATIONS}
            for span in facts["x-releases"]:
                package = span.get("package", main)
                key_facts = TableKey(span.get("schema", newest), tuple(span.get("aliases", ())), span.get("gate"))
                for release in _list_covered(span, releases[package]):
                    definitions[package][release][name][0][key] = key_facts
    entries: dict[str, dict[str, tuple[str, ...]]] = {release: {} for release in releases[main]}
    for entry, spans in schema["x-entries"].items():
        for span in spans:
            for release in _list_covered(span, releases[main]):
                entries[release][entry] = tuple(span["definitions"])
    return {
        package: {
            release: ReleaseTable(
                {name: Definition(*parts) for name, parts in definitions[package][release].items()},
                entries[release] if package == main else {},
            )
            for release in package_releases
        }
        for package, package_releases in releases.items()
    }


def _list_covered(span: Json, releases: list[str]) -> Iterable[str]:
    start = releases.index(span["since"])
    return releases[start : releases.index(span["last"]) + 1 if "last" in span else None]
