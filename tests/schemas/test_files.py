"""Committed schema files: valid, laid out as the reader expects, and identical to what the generator writes."""

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
from cfglint_schemas.fact import KeyFact
from cfglint_schemas.status import RANKS, Context, split_route
from cfglint_schemas.vocabulary import Vocabulary, load
from cfglint_train.foundation.versions import parse_release

FOLDER = Path(vocabulary.__file__).parent

every_framework = pytest.mark.parametrize("framework", vocabulary.list_vocabularies())


def load_schema(framework: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((FOLDER / f"{framework}.json").read_text(encoding="utf-8"))
    return schema


def test_reader_generator_and_files_speak_of_the_same_frameworks() -> None:
    assert set(vocabulary.list_vocabularies()) == set(FRAMEWORKS) == {path.stem for path in FOLDER.glob("*.json")}


@every_framework
def test_file_is_a_valid_schema(framework: str) -> None:
    schema = load_schema(framework)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema)


@every_framework
def test_generator_without_releases_changes_nothing(framework: str) -> None:
    text = (FOLDER / f"{framework}.json").read_text(encoding="utf-8")
    rewritten = patch.apply_patches(fold(unfold(json.loads(text)), framework), patch.load_patches(framework))
    assert form.format_schema(rewritten) == text


@every_framework
def test_file_has_one_property_per_line_and_no_carriage_returns(framework: str) -> None:
    data = (FOLDER / f"{framework}.json").read_bytes()
    assert b"\r" not in data
    assert data.endswith(b"}\n")
    lines = data.decode().split("\n")
    count = sum(len(definition["properties"]) for definition in load_schema(framework)["$defs"].values())
    assert sum(line.startswith('    "') for line in lines) == count


@every_framework
def test_reader_sees_what_a_json_parser_sees(framework: str) -> None:
    schema = load_schema(framework)
    reader = load(framework)
    assert {package: tuple(releases) for package, releases in schema["x-packages"].items()} == dict(reader.packages)
    assert schema["x-entries"] == reader.entries
    for name, definition in schema["$defs"].items():
        facts = {fact.name: fact for fact in reader.list_facts(name, reader.releases[-1])}
        assert {key: dict(fact._data) for key, fact in facts.items()} == definition["properties"]


@every_framework
def test_references_and_releases_are_known(framework: str) -> None:
    schema = load_schema(framework)
    main = next(iter(schema["x-packages"]))
    for package, releases in schema["x-packages"].items():
        assert releases == sorted(releases, key=parse_release), package
    for spans in schema["x-entries"].values():
        assert all(name in schema["$defs"] for span in spans for name in span["definitions"])
    for place, part in walk(schema["$defs"]):
        if "$ref" in part and isinstance(part["$ref"], str):
            assert part["$ref"].removeprefix("#/$defs/") in schema["$defs"], place
        for span in part.get("x-releases", ()) if isinstance(part.get("x-releases"), list) else ():
            releases_of_package = schema["x-packages"][span.get("package", main)]
            assert "since" in span, place
            if not part.get("x-patched"):
                assert span["since"] in releases_of_package, place
                assert span.get("last", span["since"]) in releases_of_package, place


def walk(part: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    if isinstance(part, dict):
        yield place, part
        for name, child in part.items():
            yield from walk(child, (*place, name))
    elif isinstance(part, list):
        for child in part:
            yield from walk(child, place)


@every_framework
def test_every_property_says_when_it_exists(framework: str) -> None:
    for name, definition in load_schema(framework)["$defs"].items():
        for key, facts in definition["properties"].items():
            assert facts.get("x-releases") or facts.get("x-status"), f"{name}/{key}"


@every_framework
def test_no_prose_of_a_framework_is_in_the_file(framework: str) -> None:
    words = {name for _, part in walk(load_schema(framework)["$defs"]) for name in part if not part.get("properties")}
    assert not words & {"description", "title", "$comment", "examples", "help"} - _list_keys(framework)


def _list_keys(framework: str) -> set[str]:
    return {key for definition in load_schema(framework)["$defs"].values() for key in definition["properties"]}


def yield_contexts(framework_vocabulary: Vocabulary) -> Iterator[tuple[str, Context]]:
    """Yield releases and contexts that cover every entry point and both ends of each other package's history."""
    packages = [package for package in framework_vocabulary.packages if package != framework_vocabulary.package]
    for entry in framework_vocabulary.entries:
        for release in (*framework_vocabulary.releases[::7], framework_vocabulary.releases[-1]):
            if framework_vocabulary.has_entry(entry, release):
                yield release, Context(entry=entry)
                for package in packages:
                    for package_release in (
                        framework_vocabulary.packages[package][0],
                        framework_vocabulary.packages[package][-1],
                    ):
                        yield release, Context(entry=entry, releases={package: package_release})


@every_framework
def test_every_setting_has_a_status_and_every_new_name_exists(framework: str) -> None:
    framework_vocabulary = load(framework)
    kinds = set()
    for release, context in yield_contexts(framework_vocabulary):
        for fact in yield_facts(framework_vocabulary, release, context):
            status = fact.resolve_status()
            kinds.add(status.kind)
            assert status.kind in RANKS
            assert status.effect in (None, *patch.EFFECTS)
            if status.kind == "renamed":
                names = (
                    *status.new_names,
                    *status.required_values,
                    *(name for case in status.cases for name in case.new_values),
                )
                assert names or status.cases
                for name in names:
                    # OLMo-core's new names are fields of classes, wherever the class is used.
                    rename_context = Context(entry="script") if framework == "olmo_core" else context
                    target = framework_vocabulary.find_fact(split_route(name), release, rename_context)
                    assert target is not None, (fact, release, name)
                    assert target.resolve_status().kind in ("present", "ignored", "gated"), (fact, release, name)
    assert "present" in kinds


def yield_facts(framework_vocabulary: Vocabulary, release: str, context: Context) -> Iterator[KeyFact]:
    """Yield every setting, whatever its status, at every place of the tree that exists at the release."""
    for parent in framework_vocabulary.list_mappings(release, context):
        for definition in framework_vocabulary.list_definitions(parent, release, context):
            for fact in framework_vocabulary.list_facts(definition, release, context):
                resolved = framework_vocabulary.find_fact((*parent, fact.name), release, context)
                assert resolved is not None
                yield resolved


def test_reading_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from cfglint_schemas.vocabulary import load\n"
        "assert load('axolotl').find_fact(('micro_batch_size',), '0.21.0') is not None\n"
        "print(' '.join(sys.modules))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"dataclasses", "inspect", "pathlib", "jsonschema", "ruamel", "libcst", "difflib", "importlib.metadata"}
    # Modules that the interpreter itself loads at startup do not count.
    baseline = subprocess.run(
        [sys.executable, "-c", "import sys; print(' '.join(sys.modules))"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not heavy & (set(loaded) - set(baseline))


def test_unknown_framework_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        load("megatron")


def test_another_layout_is_refused_by_name() -> None:
    content = json.loads(Path(vocabulary.find_schema_file("trl")).read_text(encoding="utf-8"))
    with pytest.raises(ValueError, match=r"vocabulary of trl was not written by `python -m tools.schemas`"):
        Vocabulary("trl", json.dumps(content))
