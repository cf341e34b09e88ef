"""Schemas on the site: valid, addressed, ready for SchemaStore, and without false problems in files of upstream."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest
import yaml

from cfglint_rules import registry
from tests.support.corpus import CORPUS, REPOSITORY, list_corpus_files, needs_corpus


@pytest.fixture(scope="module")
def build() -> Iterator[ModuleType]:
    sys.path.insert(0, str(REPOSITORY / "docs" / "build"))
    try:
        yield importlib.import_module("schema_files")
    finally:
        sys.path.remove(str(REPOSITORY / "docs" / "build"))
        for name in ("schema_files", "run"):
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def files(build: ModuleType) -> dict[str, Any]:
    return {path: json.loads(text) for path, text in build.build_files().items()}


def test_the_catalogue_follows_the_rules_of_schemastore(build: ModuleType, files: dict[str, Any]) -> None:
    """The rules are those of `schema-catalog.json` and of the checks in `cli.js` (SchemaStore/schemastore)."""
    entries = files["schemas/catalog.json"]
    patterns = [pattern for entry in entries for pattern in entry["fileMatch"]]
    assert len(patterns) == len(set(patterns))
    assert len({entry["name"] for entry in entries}) == len(entries) == len(build.ENTRIES)
    for entry in entries:
        assert entry.keys() == {"name", "description", "fileMatch", "url"}
        for text in (entry["name"], entry["description"]):
            assert not re.search(r"[,. \t-]$|\n|schema", text, re.IGNORECASE)
        assert entry["url"].startswith("https://")
        assert files[entry["url"].removeprefix(build.read_address())]["$id"] == entry["url"]
        for pattern in entry["fileMatch"]:
            assert "/" not in pattern or pattern.startswith("**/")
            assert "{" not in pattern
            specific = Path(pattern).name if "/" not in pattern else pattern
            assert re.search(
                r"cfglint|axolotl|llamafactory|olmo|deepspeed|ds_config|accelerate", specific, re.IGNORECASE
            )


def test_the_schemas_are_valid_and_link_to_rules(build: ModuleType, files: dict[str, Any]) -> None:
    for name in build.ENTRIES:
        schema = files[f"schemas/{name}.json"]
        jsonschema.validators.validator_for(schema).check_schema(schema)
        codes = re.findall(rf"\({re.escape(build.read_address())}rules/(\w+)/\)", json.dumps(schema))
        assert set(codes) <= registry.RULES.keys()
        assert codes or name == "cfglint"


@needs_corpus
def test_files_of_upstream_with_these_names_have_no_problems(build: ModuleType, files: dict[str, Any]) -> None:
    checked = 0
    for name, entry in build.ENTRIES.items():
        schema = files[f"schemas/{name}.json"]
        validator = jsonschema.validators.validator_for(schema)(schema)
        for path in list_corpus_files(".yaml", ".yml", ".json"):
            place = f"/{path.relative_to(CORPUS).as_posix()}".replace("/olmo/", "/OLMo/")
            if any(fnmatch(place, f"*/{pattern.removeprefix('**/')}") for pattern in entry.patterns):
                parse = json.loads if path.suffix == ".json" else yaml.safe_load
                problems = validator.iter_errors(parse(path.read_text(encoding="utf-8")))
                assert [f"{problem.json_path}: {problem.message}" for problem in problems] == [], path
                checked += 1
    assert checked > 40


def test_the_page_lists_them(build: ModuleType) -> None:
    assert build.TABLE in (REPOSITORY / "docs" / "editors.md").read_text(encoding="utf-8")
    assert "`ds_config.json`" in build.build_rows()
