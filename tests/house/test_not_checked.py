"""Messages about unchecked runs name settings or use plain words: users do not know the plan's fields."""

from __future__ import annotations

import ast
from pathlib import Path

from cfglint_train.plan.fields import FIELDS
from cfglint_train.runs.not_estimated import _CLUSTER_FIELDS, FIELD_DESCRIPTIONS

MEMORY = Path(__file__).parents[2] / "lint/cfglint_train/memory"
FIELD_READERS = ("require", "require_count")


def find_needed_fields() -> set[str]:
    """Return the fields that an estimate requires."""
    trees = [ast.parse(path.read_text()) for path in MEMORY.rglob("*.py")]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    reads = [
        call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in FIELD_READERS and call.args
    ]
    return {call.args[0].value for call in reads if isinstance(call.args[0], ast.Constant)} & {*FIELDS}


def test_every_field_that_an_estimate_needs_has_words():
    assert {"batch.micro", "sequence.length"} <= find_needed_fields()
    assert find_needed_fields() <= FIELD_DESCRIPTIONS.keys() | _CLUSTER_FIELDS.keys()


def test_words_are_no_names_of_the_plan():
    things = [*FIELD_DESCRIPTIONS.values(), *(thing for thing, _ in _CLUSTER_FIELDS.values())]
    assert not [thing for thing in things if any(field in thing for field in FIELDS) or "_" in thing]
