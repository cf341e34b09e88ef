"""Documentation of plan fields, read from the docstrings in the source of `plan.fields` and `plan.choices`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache

from cfglint_train.plan import fields


def list_assignments(body: list[ast.stmt]) -> Iterator[tuple[str, str, str]]:
    """Yield the assignments in a body, as (name, annotation or value, docstring)."""
    for index, statement in enumerate(body):
        if isinstance(statement, ast.AnnAssign):
            target: ast.expr = statement.target
            kind = statement.annotation
        elif isinstance(statement, ast.Assign):
            target, kind = statement.targets[0], statement.value
        else:
            continue
        if not isinstance(target, ast.Name):
            continue
        words = ""
        following = body[index + 1] if index + 1 < len(body) else None
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            words = " ".join(str(following.value.value).split())
        yield target.id, ast.unparse(kind).removesuffix(" | None"), words


def parse_module(path: str) -> ast.Module:
    """Parse a module of the plan."""
    with open(path, encoding="utf-8") as file:
        return ast.parse(file.read())


@cache
def load_meanings() -> Mapping[str, str]:
    """Return the docstring of each field by its dotted name; fields whose names say everything have none."""
    records = {node.name: node for node in parse_module(fields.__file__).body if isinstance(node, ast.ClassDef)}
    return {
        f"{group}.{name}".removesuffix("_"): words
        for group, kind, _ in list_assignments(records["Plan"].body)
        for name, _, words in list_assignments(records[kind].body)
        if words
    }
