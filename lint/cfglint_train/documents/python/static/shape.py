"""Classes of a script: their declared fields and members, and the attributes that their methods set."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cfglint_train.foundation.frozen import Frozen

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Member = ast.expr | ast.FunctionDef | ast.AsyncFunctionDef | None


class Shape(Frozen):
    """Declarations of a class of the script: its fields, its members, and the attributes its methods set on `self`.

    A member that cannot be determined is None.
    """

    fields: tuple[str, ...]
    members: dict[str, Member]
    self_attributes: tuple[str, ...]
    stored_keys: frozenset[str]
    """Keys that the class's methods set on objects other than `self`."""
    setters: dict[str, frozenset[str]]
    """Attributes of `self` that each method sets, by the method's name."""


def parse_shape(node: ast.ClassDef) -> Shape:
    """Return the declarations of a class of the script."""
    members: dict[str, Member] = {}
    fields = []
    for statement in node.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            members[statement.name] = statement
        elif (
            isinstance(statement, ast.Assign)
            and len(statement.targets) == 1
            and isinstance(statement.targets[0], ast.Name)
        ):
            members[statement.targets[0].id] = statement.value
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            fields.append(statement.target.id)
            if statement.value is not None:
                members[statement.target.id] = statement.value
        else:
            for inner in ast.walk(statement):
                if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                    members[inner.id] = None
    setters = {
        name: _find_self_attributes(member) for name, member in members.items() if isinstance(member, _FUNCTIONS)
    }
    self_attributes = tuple(sorted(_find_self_attributes(node)))
    return Shape(tuple(fields), members, self_attributes, frozenset(_find_stored_keys(node)), setters)


def _find_self_attributes(node: ast.stmt) -> frozenset[str]:
    """Return the attributes of `self` that a class or a method sets."""
    return frozenset(
        inner.attr
        for inner in ast.walk(node)
        if isinstance(inner, ast.Attribute)
        and isinstance(inner.ctx, ast.Store)
        and isinstance(inner.value, ast.Name)
        and inner.value.id == "self"
    )


def _find_stored_keys(node: ast.ClassDef) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, (ast.Attribute, ast.Subscript)) and isinstance(inner.ctx, ast.Store):
            key = inner.attr if isinstance(inner, ast.Attribute) else getattr(inner.slice, "value", None)
            if isinstance(key, str) and not (isinstance(inner.value, ast.Name) and inner.value.id == "self"):
                yield key
