"""The documentation lists every key that a lens reads, with its fields, and leaves out none that is read."""

from __future__ import annotations

import re

import pytest

from cfglint_train.documents.document import Route
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import spelled
from tests.support import laws
from tests.support.corpus import REPOSITORY

SECTIONS = [
    ("axolotl", "axolotl.md", "## Keys", "## Left out"),
    ("llamafactory", "llamafactory.md", "## Keys", "## Left out"),
    ("llamafactory_v1", "llamafactory.md", "## v1", None),
    ("deepspeed", "deepspeed.md", "## Keys", "## Left out"),
    ("accelerate", "accelerate.md", "## Keys", "## Left out"),
    ("trl", "trl.md", "## Keys", "## Left out"),
]


def rows(document: str, heading: str) -> dict[str, set[str]]:
    """Key -> plan fields (or words) of the tables below a heading: first column, second column."""
    text = (REPOSITORY / "docs" / "frameworks" / document).read_text()
    part = text.split(f"{heading}\n", 1)[1].split("\n## ", 1)[0]
    found: dict[str, set[str]] = {}
    for line in part.split("\n"):
        cells = line.strip("|").split("|")
        if line.startswith("| `") and len(cells) >= 2:
            for key in re.findall(r"`([^`]+)`", cells[0]):
                found.setdefault(key, set()).update(re.findall(r"`([^`]+)`", cells[1]))
    return found


def around(route: Route) -> list[str]:
    """A key, and the sections around it, for which it may be listed."""
    return [spelled(route[:length]) for length in range(len(route), 0, -1)]


@pytest.mark.parametrize(("name", "document", "heading", "left_out"), SECTIONS, ids=str)
def test_keys_are_documented(name, document, heading, left_out):
    listed = rows(document, heading)
    read: set[str] = set()
    for lens in frameworks.load(name).lenses:
        routes = laws.routes_of(lens)
        described = set().union(*(listed.get(key, set()) for route in routes for key in around(route)))
        assert set(lens.fields) <= described, (routes, set(lens.fields) - described)
        for route in routes:
            if re.fullmatch(r"_[A-Z_]+_", str(route[-1])):
                continue  # what a script states elsewhere than under a key of the recipe
            assert any(key in listed for key in around(route)), spelled(route)
            read.add(spelled(route))
    if left_out is not None:
        omitted = rows(document, left_out)
        assert omitted
        assert not read & omitted.keys()
