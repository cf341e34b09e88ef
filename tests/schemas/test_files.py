"""The schema files as they are: valid, laid out as the reader expects, and what the generator would write again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tools.schemas import patch
from tools.schemas.__main__ import FRAMEWORKS
from tools.schemas.fold import fold, unfold

from cfglint_schemas import form, vocabulary
from cfglint_schemas.fact import Fact
from cfglint_schemas.status import RANKS, Context, parts_of
from cfglint_schemas.vocabulary import Vocabulary, load
from cfglint_train.foundation.versions import release_key

FOLDER = Path(vocabulary.__file__).parent

every_framework = pytest.mark.parametrize("framework", vocabulary.vocabularies())


def schema_of(framework: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((FOLDER / f"{framework}.json").read_text(encoding="utf-8"))
    return schema


def test_reader_generator_and_files_speak_of_the_same_frameworks() -> None:
    assert set(vocabulary.vocabularies()) == set(FRAMEWORKS) == {path.stem for path in FOLDER.glob("*.json")}


@every_framework
def test_file_is_a_valid_schema(framework: str) -> None:
    schema = schema_of(framework)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema)


@every_framework
def test_generator_without_releases_changes_nothing(framework: str) -> None:
    text = (FOLDER / f"{framework}.json").read_text(encoding="utf-8")
    again = patch.apply(fold(unfold(json.loads(text)), framework), patch.load(framework))
    assert form.text(again) == text


@every_framework
def test_file_has_one_property_per_line_and_no_carriage_returns(framework: str) -> None:
    data = (FOLDER / f"{framework}.json").read_bytes()
    assert b"\r" not in data
    assert data.endswith(b"}\n")
    lines = data.decode().split("\n")
    count = sum(len(definition["properties"]) for definition in schema_of(framework)["$defs"].values())
    assert sum(line.startswith('    "') for line in lines) == count


@every_framework
def test_reader_sees_what_a_json_parser_sees(framework: str) -> None:
    schema = schema_of(framework)
    read = load(framework)
    assert {package: tuple(of) for package, of in schema["x-packages"].items()} == dict(read.packages)
    assert schema["x-entries"] == read.entries
    for name, definition in schema["$defs"].items():
        facts = {fact.name: fact for fact in read.facts_of(name, read.releases[-1])}
        assert {key: dict(fact._data) for key, fact in facts.items()} == definition["properties"]


@every_framework
def test_references_and_releases_are_known(framework: str) -> None:
    schema = schema_of(framework)
    main = next(iter(schema["x-packages"]))
    for package, releases in schema["x-packages"].items():
        assert releases == sorted(releases, key=release_key), package
    for spans in schema["x-entries"].values():
        assert all(name in schema["$defs"] for span in spans for name in span["definitions"])
    for where, part in walk(schema["$defs"]):
        if "$ref" in part and isinstance(part["$ref"], str):
            assert part["$ref"].removeprefix("#/$defs/") in schema["$defs"], where
        for span in part.get("x-releases", ()) if isinstance(part.get("x-releases"), list) else ():
            known = schema["x-packages"][span.get("package", main)]
            assert "since" in span, where
            if not part.get("x-patched"):
                assert span["since"] in known, where
                assert span.get("last", span["since"]) in known, where


def walk(part: Any, where: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    if isinstance(part, dict):
        yield where, part
        for name, child in part.items():
            yield from walk(child, (*where, name))
    elif isinstance(part, list):
        for child in part:
            yield from walk(child, where)


@every_framework
def test_every_property_says_when_it_exists(framework: str) -> None:
    for name, definition in schema_of(framework)["$defs"].items():
        for key, facts in definition["properties"].items():
            assert facts.get("x-releases") or facts.get("x-status"), f"{name}/{key}"


@every_framework
def test_no_prose_of_a_framework_is_in_the_file(framework: str) -> None:
    words = {name for _, part in walk(schema_of(framework)["$defs"]) for name in part if not part.get("properties")}
    assert not words & {"description", "title", "$comment", "examples", "help"} - _keys(framework)


def _keys(framework: str) -> set[str]:
    return {key for definition in schema_of(framework)["$defs"].values() for key in definition["properties"]}


def contexts(of: Vocabulary) -> Iterator[tuple[str, Context]]:
    """Releases and contexts that see every entry point, and both sides of each later package's history."""
    others = [package for package in of.packages if package != of.package]
    for entry in of.entries:
        for release in (*of.releases[::7], of.releases[-1]):
            if of.has_entry(entry, release):
                yield release, Context(entry=entry)
                for package in others:
                    for other in (of.packages[package][0], of.packages[package][-1]):
                        yield release, Context(entry=entry, releases={package: other})


@every_framework
def test_every_setting_has_a_status_and_every_new_name_exists(framework: str) -> None:
    of = load(framework)
    seen = set()
    for release, context in contexts(of):
        for fact in facts(of, release, context):
            status = fact.status()
            seen.add(status.kind)
            assert status.kind in RANKS
            assert status.effect in (None, *patch.EFFECTS)
            if status.kind == "renamed":
                names = (*status.to, *status.also, *(name for case in status.cases for name in case.set))
                assert names or status.cases
                for name in names:
                    # OLMo-core's new names are fields of classes, wherever the class is used.
                    where = Context(entry="script") if framework == "olmo_core" else context
                    target = of.fact(parts_of(name), release, where)
                    assert target is not None, (fact, release, name)
                    assert target.status().kind in ("present", "ignored", "gated"), (fact, release, name)
    assert "present" in seen


def facts(of: Vocabulary, release: str, context: Context) -> Iterator[Fact]:
    """Every setting, whatever its status, at every place of the tree that exists at the release."""
    for parent in of.mappings(release, context):
        for definition in of.definitions(parent, release, context):
            for fact in of.facts_of(definition, release, context):
                found = of.fact((*parent, fact.name), release, context)
                assert found is not None
                yield found


def test_reading_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from cfglint_schemas.vocabulary import load\n"
        "assert load('axolotl').fact(('micro_batch_size',), '0.21.0') is not None\n"
        "print(' '.join(sys.modules))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"dataclasses", "inspect", "pathlib", "jsonschema", "ruamel", "libcst", "difflib", "importlib.metadata"}
    # What the interpreter itself has loaded before the first line runs does not count.
    bare = subprocess.run(
        [sys.executable, "-c", "import sys; print(' '.join(sys.modules))"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not heavy & (set(loaded) - set(bare))


def test_unknown_framework_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        load("megatron")


def test_another_layout_is_refused_by_name() -> None:
    content = json.loads(Path(vocabulary.path_of("trl")).read_text(encoding="utf-8"))
    with pytest.raises(
        ValueError, match=r"vocabulary of trl is not in the layout that `python -m tools.schemas` writes"
    ):
        Vocabulary("trl", json.dumps(content))
