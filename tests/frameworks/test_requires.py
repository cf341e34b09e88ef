"""Requirements of framework releases on other packages: the tables, their reader and their generator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from tools import requires as generator

from cfglint_schemas.vocabulary import load
from cfglint_train.foundation.versions import Constraint, ValueByRelease, parse_release
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.registry import list_frameworks, list_packages
from cfglint_train.frameworks.requires import load_requirements

TABLES = [path for one in list_frameworks().values() if (path := Path(one.folder, "requires.json")).exists()]


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.parent.name)
def test_tables_are_what_the_generator_writes(path):
    stored = path.read_text(encoding="utf-8")
    table = json.loads(stored)
    rows, newest = table["rows"], table.get("newest", ())
    generated = generator.format_table(
        [(release, (needed, extras)) for release, needed, extras in rows], rows[0][0], newest, table.get("earlier")
    )
    assert generated == stored
    for _, needed, extras in rows:
        assert {*needed, *extras} <= list_packages().keys()
        assert not needed.keys() & extras.keys()
        for text in (*needed.values(), *extras.values(), *table.get("earlier", {}).values()):
            assert str(Constraint.parse(text)) == text
            SpecifierSet(text)


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.parent.name)
def test_every_release_has_a_row(path):
    framework = list_frameworks()[path.parent.name]
    first = json.loads(path.read_text(encoding="utf-8"))["rows"][0][0]
    assert parse_release(first) <= parse_release(load(framework.vocabulary).releases[0])


def test_a_row_holds_until_the_next():
    assert load_requirements("llamafactory", "0.8.1") == load_requirements("llamafactory", "0.8.0")
    assert load_requirements("llamafactory", "0.9.5").can_install("transformers", "5.6.0")
    assert not load_requirements("llamafactory", "0.9.5").can_install("transformers", "4.45.2")
    assert load_requirements("llamafactory", "0.9.5").can_install("numpy", "1.0")
    assert not load_requirements("axolotl", "0.8.1").can_install("deepspeed", "0.19.8"), "an extra"
    assert load_requirements("openrlhf", "0.2.0").required == {}
    assert load_requirements("deepspeed", "0.17.0").required == {}


def test_requirements_become_a_row():
    lines = ["transformers==4.57.3  # newest", "deepspeed>=0.13", "ray[default]==2.4", "trl<1;python_version<'3.10'"]
    needed, extras = generator.build_row(
        lines, ["vllm==0.10.0", "transformers==4.51.1", "deepspeed==0.15.4"], ["deepspeed"]
    )
    assert needed == {"transformers": "==4.57.3"}
    assert extras == {"deepspeed": "==0.15.4", "vllm": "==0.10.0"}


def test_a_constraint_is_read_from_its_own_text():
    assert Constraint.parse(">=4.45,<4.53").is_satisfied_by("4.50")
    with pytest.raises(ValueError, match="not a version specifier"):
        Constraint.parse("4.45")


@pytest.mark.parametrize("name", [name for name, one in list_frameworks().items() if one.vocabulary])
def test_what_a_release_installs_is_what_its_table_states(name):
    """Compare every known release with `requires.json`, the only source."""
    framework = frameworks.load(name)
    assert not any(type(stated_requirements) is ValueByRelease for stated_requirements in framework), (
        "a table of releases beside requires.json"
    )
    for release in load(list_frameworks()[name].vocabulary).releases:
        requirements, installed = load_requirements(name, release), framework.list_installed(release)
        stated_requirements = {**requirements.extras, **requirements.required}
        assert (
            {package for package, requirement in stated_requirements.items() if requirement.exact_release}
            <= installed.keys()
            <= {*stated_requirements, *requirements.newest}
        )
        assert all(requirements.can_install(package, requirement) for package, requirement in installed.items())
        assert all(
            installed[package] == requirement.exact_release
            for package, requirement in stated_requirements.items()
            if requirement.exact_release
        )
