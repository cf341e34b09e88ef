"""Folding of releases into one schema, which loses nothing whatever the releases contain."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
from hypothesis import given
from hypothesis import strategies as st
from tools.schemas.fold import Tables, fold, unfold

from cfglint_schemas import form
from cfglint_schemas.readers.table import Definition, ReleaseTable, TableKey
from cfglint_schemas.status import Context
from cfglint_schemas.vocabulary import Vocabulary

KEYS = ["alpha", "beta", "gamma_x", "--flag.a"]
SCHEMAS: list[dict[str, Any]] = [
    {"type": "integer", "default": 1},
    {"type": "integer", "default": 1.0},
    {"type": "boolean", "default": True},
    {"type": ["string", "null"], "default": None},
    {"enum": ["a", "b"], "x-required": True},
    {"$ref": "#/$defs/Inner"},
    {},
]

keys = st.builds(
    TableKey,
    st.sampled_from(SCHEMAS),
    st.sampled_from([(), ("other",), ("other", "third")]),
    st.sampled_from([None, {"plugins": ["a.B"]}]),
)
definitions = st.builds(
    Definition, st.dictionaries(st.sampled_from(KEYS), keys), st.sampled_from(["error", "dropped", "kept"])
)


@st.composite
def draw_tables(draw: st.DrawFn) -> Tables:
    tables_by_package: Tables = {}
    for package in ["main", "other"][: draw(st.integers(1, 2))]:
        tables = {}
        releases = draw(
            st.lists(st.sampled_from(["0.9", "0.10.0", "1.0", "1.0.post1", "2.0"]), unique=True, min_size=1)
        )
        for release in releases:
            definitions_by_name = draw(st.dictionaries(st.sampled_from(["Root", "Inner", "Third"]), definitions))
            definitions_by_name.setdefault("Root", draw(definitions))
            definitions_by_name.setdefault("Inner", Definition({}))
            entries = {"train": ("Root",)} if package == "main" else {}
            if package == "main" and draw(st.booleans()):
                entries["more"] = ("Root", "Inner")
            tables[release] = ReleaseTable(definitions_by_name, entries)
        tables_by_package[package] = tables
    return tables_by_package


def serialize_tables(tables: Tables) -> Any:
    """Return the tables as JSON text, in which 1, 1.0 and true differ."""
    return json.dumps(
        {
            package: {
                release: {
                    "entries": table.entries,
                    "definitions": {
                        name: [definition.unknown, {key: list(value) for key, value in definition.keys.items()}]
                        for name, definition in table.definitions.items()
                    },
                }
                for release, table in releases.items()
            }
            for package, releases in tables.items()
        },
        sort_keys=True,
    )


@given(draw_tables())
def test_unfold_gives_back_what_was_folded(original: Tables) -> None:
    folded = json.loads(form.format_schema(fold(original, "sample")))
    assert serialize_tables(unfold(folded)) == serialize_tables(original)


@given(draw_tables())
def test_folding_again_writes_the_same_bytes(original: Tables) -> None:
    text = form.format_schema(fold(original, "sample"))
    assert form.format_schema(fold(unfold(json.loads(text)), "sample")) == text


@given(draw_tables())
def test_folded_schema_is_a_schema(original: Tables) -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(form.format_schema(fold(original, "sample"))))


@given(draw_tables())
def test_reader_finds_each_key_in_exactly_the_releases_that_have_it(original: Tables) -> None:
    reader = Vocabulary("sample", form.format_schema(fold(original, "sample")))
    other_releases = {"other": next(iter(original["other"]))} if "other" in original else {}
    for release, table in original["main"].items():
        expected = set(table.definitions["Root"].keys)
        for package, package_release in other_releases.items():
            expected |= set(original[package][package_release].definitions["Root"].keys)
        context = Context(entry="train", releases=other_releases)
        names = {
            fact.name for fact in reader.list_facts("Root", release, context) if fact.resolve_status().kind == "present"
        }
        assert names == expected


def test_runs_end_where_a_release_lacks_the_key() -> None:
    key = TableKey({"type": "integer", "default": 1})
    table_by_release = {
        release: ReleaseTable({"Root": Definition({"a": key} if present else {})}, {"train": ("Root",)})
        for release, present in (("1.0", True), ("1.1", True), ("1.2", False), ("2.0", True))
    }
    folded = fold({"main": table_by_release}, "sample")
    assert folded["$defs"]["Root"]["properties"]["a"]["x-releases"] == [
        {"since": "1.0", "last": "1.1"},
        {"since": "2.0"},
    ]


def test_a_changed_default_starts_a_new_run() -> None:
    table_by_release = {
        release: ReleaseTable(
            {"Root": Definition({"a": TableKey({"type": "integer", "default": default})})}, {"train": ("Root",)}
        )
        for release, default in (("1.0", 1), ("1.1", 2))
    }
    facts = fold({"main": table_by_release}, "sample")["$defs"]["Root"]["properties"]["a"]
    assert facts["default"] == 2
    assert facts["x-releases"] == [
        {"since": "1.0", "last": "1.0", "schema": {"type": "integer", "default": 1}},
        {"since": "1.1"},
    ]
