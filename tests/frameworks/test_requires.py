"""What releases of frameworks require of other packages: the tables, their reader and their generator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from tools import requires as generator

from cfglint_schemas.vocabulary import load
from cfglint_train.foundation.versions import Constraint, Since, release_key
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.registry import listed, packages
from cfglint_train.frameworks.requires import requires

TABLES = [path for one in listed().values() if (path := Path(one.folder, "requires.json")).exists()]


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.parent.name)
def test_tables_are_what_the_generator_writes(path):
    stored = path.read_text(encoding="utf-8")
    table = json.loads(stored)
    rows, newest = table["rows"], table.get("newest", ())
    made = generator.table([(release, (needed, extras)) for release, needed, extras in rows], rows[0][0], newest)
    assert made == stored
    for _, needed, extras in rows:
        assert {*needed, *extras} <= packages().keys()
        assert not needed.keys() & extras.keys()
        for text in (*needed.values(), *extras.values()):
            assert str(Constraint.of(text)) == text
            SpecifierSet(text)


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.parent.name)
def test_every_release_has_a_row(path):
    framework = listed()[path.parent.name]
    first = json.loads(path.read_text(encoding="utf-8"))["rows"][0][0]
    assert release_key(first) <= release_key(load(framework.vocabulary).releases[0])


def test_a_row_holds_until_the_next():
    assert requires("llamafactory", "0.8.1") == requires("llamafactory", "0.8.0")
    assert requires("llamafactory", "0.9.5").allows("transformers", "5.6.0")
    assert not requires("llamafactory", "0.9.5").allows("transformers", "4.45.2")
    assert requires("llamafactory", "0.9.5").allows("numpy", "1.0")
    assert not requires("axolotl", "0.8.1").allows("deepspeed", "0.19.8"), "an extra"
    assert requires("openrlhf", "0.2.0").needed == {}
    assert requires("deepspeed", "0.17.0").needed == {}


def test_requirements_become_a_row():
    lines = ["transformers==4.57.3  # newest", "deepspeed>=0.13", "ray[default]==2.4", "trl<1;python_version<'3.10'"]
    needed, extras = generator.row(lines, ["vllm==0.10.0", "transformers==4.51.1", "deepspeed==0.15.4"], ["deepspeed"])
    assert needed == {"transformers": "==4.57.3"}
    assert extras == {"deepspeed": "==0.15.4", "vllm": "==0.10.0"}


def test_a_constraint_is_read_from_its_own_text():
    assert Constraint.of(">=4.45,<4.53").allows("4.50")
    with pytest.raises(ValueError, match="not a comparison"):
        Constraint.of("4.45")


@pytest.mark.parametrize("name", [name for name, one in listed().items() if one.vocabulary])
def test_what_a_release_installs_is_what_its_table_states(name):
    """Nothing but `requires.json` says it, at every known release."""
    framework = frameworks.load(name)
    assert not any(type(stated) is Since for stated in framework), "a table of releases beside requires.json"
    for release in load(listed()[name].vocabulary).releases:
        asked, installed = requires(name, release), framework.installed(release)
        stated = {**asked.extras, **asked.needed}
        assert {package for package, one in stated.items() if one.exact} <= installed.keys() <= {*stated, *asked.newest}
        assert all(asked.allows(package, one) for package, one in installed.items())
        assert all(installed[package] == one.exact for package, one in stated.items() if one.exact)
