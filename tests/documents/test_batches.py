"""Several changes at once, in YAML and JSON: the text then reads like a plain tree after the same changes.

`json` and PyYAML write the texts and read them back; lines of settings that no change affects stay the same.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cfglint_train.documents.document import Append, CannotEdit, Change, Delete, Rename, Set, apply_edits
from cfglint_train.documents.json import JsonDocument
from cfglint_train.documents.writer import is_identical
from cfglint_train.documents.yaml.document import YamlDocument

REFUSALS = {
    "all other keys of its section are removed",
    "it is the only key of a list item",
    "the list item would become empty",
}
NAMES = st.sampled_from(["a", "b", "c", "d", "e", "long_name", "é"])
LEAVES = st.sampled_from([1, 0.5, True, None, "x", "two words", "# no comment", "a: b", "1e5", ""])
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
TREES = st.dictionaries(NAMES, VALUES, min_size=1, max_size=5)


def _list_routes(tree: Any, route: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the routes of all keys and items."""
    steps = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [nested for step, value in steps for nested in ((*route, step), *_list_routes(value, (*route, step)))]


def _get_item(tree: Any, route: tuple[Any, ...]) -> Any:
    for step in route:
        tree = tree[step]
    return tree


@st.composite
def draw_batch(draw: st.DrawFn) -> tuple[dict[str, Any], list[Change], dict[str, Any]]:
    """Draw a tree, changes of some of its top settings, at most one each, and the tree after them."""
    before = draw(TREES)
    after = copy.deepcopy(before)
    changes: list[Change] = []
    for name in draw(st.lists(st.sampled_from(sorted(before)), unique=True, max_size=4)):
        route = draw(st.sampled_from([(name,), *_list_routes(before[name], (name,))]))
        value = _get_item(before, route)
        kind = draw(st.sampled_from(["set", "insert", "append", "delete", "rename"]))
        parent = _get_item(after, route[:-1])
        if kind == "set":
            new = draw(VALUES)
            changes.append(Set(route, new))
            parent[route[-1]] = new
        elif kind == "insert" and isinstance(value, dict) and value:
            new = draw(VALUES)
            changes.append(Set((*route, "new"), new, tuple(draw(st.permutations(sorted(value))))))
            parent[route[-1]]["new"] = new
        elif kind == "append" and isinstance(value, list):
            new = draw(LEAVES)
            changes.append(Append(route, new))
            parent[route[-1]].append(new)
        elif kind == "delete":
            changes.append(Delete(route))
            del parent[route[-1]]
        elif kind == "rename" and isinstance(parent, dict):
            changes.append(Rename(route, "renamed_" + name))
            parent["renamed_" + name] = parent.pop(route[-1])
    return before, changes, after


def _dump_json(tree: Any, layout: Any) -> str:
    return json.dumps(tree, indent=layout, ensure_ascii=False)


def _dump_yaml(tree: Any, layout: Any) -> str:
    return yaml.safe_dump(tree, default_flow_style=layout, sort_keys=False, allow_unicode=True, width=1 << 20)


@pytest.mark.parametrize(
    ("document", "write", "read", "layout"),
    [
        (JsonDocument, _dump_json, json.loads, None),
        (JsonDocument, _dump_json, json.loads, 2),
        (JsonDocument, _dump_json, json.loads, "\t"),
        (YamlDocument, _dump_yaml, yaml.safe_load, False),
        (YamlDocument, _dump_yaml, yaml.safe_load, None),
        (YamlDocument, _dump_yaml, yaml.safe_load, True),
    ],
)
@settings(max_examples=40, deadline=None)
@given(batch=draw_batch(), ending=st.sampled_from(["\n", "\r\n"]))
def test_changes_at_once_are_those_of_a_plain_tree(document, write, read, layout, batch, ending):
    before, changes, after = batch
    source = write(before, layout).replace("\n", ending).encode()
    problem = None
    try:
        new = apply_edits(source, document("x", source).build_edits(changes))
    except CannotEdit as refusal:
        problem = str(refusal)
    if problem is not None:
        assert problem in REFUSALS
        return
    # A YAML file without its last key is empty, and only then.
    assert is_identical({} if not new else read(new), after)
    touched = {change.route[0] for change in changes}
    untouched = {key: value for key, value in before.items() if key not in touched}
    if untouched and layout in (False, 2):
        lines = {line.rstrip(",") for line in new.decode().split(ending)}
        assert {line.rstrip(",") for line in write(untouched, layout).rstrip("\n").split("\n")} <= lines
