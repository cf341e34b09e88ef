"""Messages about what was not checked name settings, or use plain words: a field of the plan is none of a user's."""

from __future__ import annotations

import ast
from pathlib import Path

from cfglint_train.plan.fields import FIELDS
from cfglint_train.runs.not_estimated import _CLUSTER, THINGS

MEMORY = Path(__file__).parents[2] / "lint/cfglint_train/memory"
ASKS = ("need", "count")


def needed() -> set[str]:
    """The fields without which there is no estimate."""
    trees = [ast.parse(path.read_text()) for path in MEMORY.rglob("*.py")]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    asked = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in ASKS and call.args]
    return {call.args[0].value for call in asked if isinstance(call.args[0], ast.Constant)} & {*FIELDS}


def test_every_field_that_an_estimate_needs_has_words():
    assert {"batch.micro", "sequence.length"} <= needed()
    assert needed() <= THINGS.keys() | _CLUSTER.keys()


def test_words_are_no_names_of_the_plan():
    things = [*THINGS.values(), *(thing for thing, _ in _CLUSTER.values())]
    assert not [thing for thing in things if any(field in thing for field in FIELDS) or "_" in thing]
