"""What the syntax tree of any Python file says: what it calls, imports and declares. Nothing of it is run."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from cfglint_train.foundation.python_grammar import parse_python


def parse_tree(text: str) -> ast.Module:
    """The tree of a text; one without statements where it is no Python, or nested too deeply."""
    try:
        return parse_python(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def get_callee_name(call: ast.Call) -> str:
    """The last name of what is called; empty where it has none."""
    return get_last_name(call.func)


def get_last_name(node: ast.AST) -> str:
    """`c` of `a.b.c`; empty where an expression is no name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def map_imports(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """The names that a file imports, each with what it is in full: with dots in front where the import is relative."""
    full_names = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            full_names.update({alias.asname or alias.name: f"{module}.{alias.name}" for alias in node.names})
        elif isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                full_names[alias.asname or first] = alias.name if alias.asname else first
    return full_names


def resolve_dotted_name(node: ast.expr, names: Mapping[str, str]) -> str:
    """A dotted expression in full; empty where it begins with none of the names that are imported."""
    suffix = ""
    while isinstance(node, ast.Attribute):
        suffix = f".{node.attr}{suffix}"
        node = node.value
    return f"{names[node.id]}{suffix}" if isinstance(node, ast.Name) and node.id in names else ""


def find_declared_settings(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The settings that a file declares: the fields of its classes, each with the name of its class, and the options of
    its parsers, each with nothing.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            fields = (item.target for item in node.body if isinstance(item, ast.AnnAssign))
            yield from ((field.id, node.name) for field in fields if isinstance(field, ast.Name))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            texts = (item.value for item in node.args if isinstance(item, ast.Constant))
            yield from ((text.lstrip("-"), "") for text in texts if isinstance(text, str))
