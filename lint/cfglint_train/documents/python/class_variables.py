"""Calls of a class through a variable: `cls = DPOTrainer if pairs else SFTTrainer`, then `cls(model)`."""

from __future__ import annotations

import ast
from collections.abc import Collection

from cfglint_train.documents.python.script import PythonScript
from cfglint_train.documents.python.syntax import get_last_name


def find_calls_by_variable(script: PythonScript, classes: Collection[str]) -> list[ast.Call]:
    """Return the calls of variables (or their items) that may hold one of `classes`, in source order."""
    assigned = [
        (target.id, node)
        for node in script.list_nodes(ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    variables: set[str] = set()
    for name, node in sorted(assigned, key=lambda item: item[1].lineno):
        if _can_be_class(node.value, classes) or _can_be_class(node.value, variables):
            variables.add(name)
    calls = script.find_calls(*variables, "") if variables else []
    return [call for call in calls if get_last_name(_strip_item(call.func)) in variables]


def _can_be_class(value: ast.expr, names: Collection[str]) -> bool:
    """Return whether a value refers to one of `names` without calling it."""
    callees = {id(node.func) for node in ast.walk(value) if isinstance(node, ast.Call)}
    return any(get_last_name(node) in names and id(node) not in callees for node in ast.walk(value))


def _strip_item(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Subscript) else node
