"""Syntax trees of Python files: their calls, imports and declarations. Nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from cfglint_train.foundation.python_grammar import parse_python
from cfglint_train.foundation.typed import Final

_WORD_FIELDS: Final = ("id", "attr", "arg", "name", "value")
"""Fields of syntax nodes that contain an identifier or, for a constant, its value."""


def parse_tree(text: str) -> ast.Module:
    """Return the syntax tree of a text; empty if the text is not Python or is nested too deeply."""
    try:
        return parse_python(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def has_word(text: str, words: Iterable[str]) -> bool:
    """Return whether a text has one of `words` as an identifier, a keyword or a whole string, not only in comments."""
    present = {word for word in words if word in text}
    return bool(present) and any(
        getattr(node, field, None) in present for node in ast.walk(parse_tree(text)) for field in _WORD_FIELDS
    )


def get_callee_name(call: ast.Call) -> str:
    """Return the last name of the callee, or "" if the callee is not a name."""
    return get_last_name(call.func)


def get_last_name(node: ast.AST) -> str:
    """Return `c` for `a.b.c`, or "" if the expression is not a name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def map_imports(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """Return the full name of each imported name; it starts with dots if the import is relative."""
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
    """Return the full name of a dotted expression, or "" if its first name is not imported."""
    suffix = ""
    while isinstance(node, ast.Attribute):
        suffix = f".{node.attr}{suffix}"
        node = node.value
    return f"{names[node.id]}{suffix}" if isinstance(node, ast.Name) and node.id in names else ""


def find_declared_settings(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the settings that a file declares, each with the name of its class.

    These are the annotated fields of classes and the options of argument parsers. The class of an option is "".
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            fields = (item.target for item in node.body if isinstance(item, ast.AnnAssign))
            yield from ((field.id, node.name) for field in fields if isinstance(field, ast.Name))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            texts = (item.value for item in node.args if isinstance(item, ast.Constant))
            yield from ((text.lstrip("-"), "") for text in texts if isinstance(text, str))
