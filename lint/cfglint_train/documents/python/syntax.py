"""What the syntax tree of any Python file says: what it calls, imports and declares. Nothing of it is run."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from cfglint_train.foundation.python_grammar import parsed


def tree_of(text: str) -> ast.Module:
    """The tree of a text; one without statements where it is no Python, or nested too deeply."""
    try:
        return parsed(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def callee(call: ast.Call) -> str:
    """The last name of what is called; empty where it has none."""
    return last_name(call.func)


def last_name(node: ast.AST) -> str:
    """`c` of `a.b.c`; empty where an expression is no name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def imported(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """The names that a file imports, each with what it is in full: with dots in front where the import is relative."""
    found = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            found.update({one.asname or one.name: f"{module}.{one.name}" for one in node.names})
        elif isinstance(node, ast.Import):
            for one in node.names:
                first = one.name.partition(".")[0]
                found[one.asname or first] = one.name if one.asname else first
    return found


def dotted(node: ast.expr, names: Mapping[str, str]) -> str:
    """A dotted expression in full; empty where it begins with none of the names that are imported."""
    behind = ""
    while isinstance(node, ast.Attribute):
        behind = f".{node.attr}{behind}"
        node = node.value
    return f"{names[node.id]}{behind}" if isinstance(node, ast.Name) and node.id in names else ""


def declared(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The settings that a file declares: the fields of its classes, each with the name of its class, and the options of
    its parsers, each with nothing.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            fields = (one.target for one in node.body if isinstance(one, ast.AnnAssign))
            yield from ((field.id, node.name) for field in fields if isinstance(field, ast.Name))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            texts = (one.value for one in node.args if isinstance(one, ast.Constant))
            yield from ((text.lstrip("-"), "") for text in texts if isinstance(text, str))
