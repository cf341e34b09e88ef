"""Completeness of the documentation: it lists every key that a lens reads, and no other."""

from __future__ import annotations

import re
import sys
from importlib import import_module

import pytest

from cfglint_train.documents.document import Route
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import format_route
from tests.support import laws
from tests.support.corpus import REPOSITORY

SECTIONS = [
    ("axolotl", "axolotl.md", "## Keys", "## Left out"),
    ("llamafactory", "llamafactory.md", "## Keys", "## Left out"),
    ("llamafactory_v1", "llamafactory.md", "## v1", None),
    ("deepspeed", "deepspeed.md", "## Keys", "## Left out"),
    ("accelerate", "accelerate.md", "## Keys", "## Left out"),
    ("trl", "trl.md", "## Keys", "## Left out"),
    ("verl", "verl.md", "## Keys", None),
    ("easyr1", "easyr1.md", "## Keys", None),
]


def list_keys(document: str, heading: str) -> set[str]:
    """Return the keys in the first column of the tables below a heading."""
    text = (REPOSITORY / "docs" / "frameworks" / document).read_text()
    part = text.split(f"{heading}\n", 1)[1].split("\n##", 1)[0]
    cells = [line.strip("|").split("|")[0] for line in part.split("\n") if line.startswith("| `")]
    return {key for cell in cells for key in re.findall(r"`([^`]+)`", cell)}


def list_prefixes(route: Route) -> list[str]:
    """Return a key and its sections; the documentation may list any of them for the key."""
    return [format_route(route[:length]) for length in range(len(route), 0, -1)]


@pytest.mark.parametrize(("name", "document", "heading", "left_out"), SECTIONS, ids=str)
def test_listed_keys_are_read(name, document, heading, left_out):
    routes = {route for lens in frameworks.load(name).lenses for route in laws.list_routes(lens)}
    read_keys = {key for route in routes for key in list_prefixes(route)}
    listed = list_keys(document, heading)
    assert listed
    assert listed <= read_keys
    if left_out is not None:
        omitted = list_keys(document, left_out)
        assert omitted
        assert not {format_route(route) for route in routes} & omitted


def test_the_site_lists_every_key_with_its_fields(monkeypatch):
    monkeypatch.syspath_prepend(str(REPOSITORY / "docs" / "build"))
    try:
        pages = import_module("framework_pages")
        for name, document, _, _ in SECTIONS:
            text = pages.build_sections(f"frameworks/{document}")
            for lens in frameworks.load(name).lenses:
                for field in lens.fields:
                    keys = ", ".join(f"`{format_route(route)}`" for route in lens.keys[field])
                    assert f"| `{field}` | {keys} |" in text
    finally:
        for module in ("framework_pages", "markdown_text"):
            sys.modules.pop(module, None)
