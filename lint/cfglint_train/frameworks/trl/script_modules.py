"""Other modules of the repository that a script imports, and what their functions change. They are read as text."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator

from cfglint_train.documents.document import DocumentError
from cfglint_train.documents.json import JsonDocument
from cfglint_train.documents.python.script import PythonScript, callee
from cfglint_train.documents.python.static.mappings import METHODS
from cfglint_train.foundation import regular_files
from cfglint_train.foundation.typed import Final

_ABOVE: Final = 4
"""Folders above a script in which a module of it is looked for."""
_DEEPEST: Final = 5
"""Functions that hand an argument on to each other."""


def module_of(document: PythonScript, module: str) -> PythonScript | None:
    """A module of the repository that a script imports, below its folder or one above; None where there is none."""
    bare = module.lstrip(".")
    up = max(0, len(module) - len(bare) - 1)
    path = bare.replace(".", "/")
    for one in _files(document, (f"{path}.py", f"{path}/__init__.py"), up, module.startswith(".")):
        try:
            return PythonScript(one, regular_files.read(one))
        except (OSError, DocumentError, ValueError):
            continue
    return None


def file_of(document: PythonScript, path: str) -> JsonDocument | None:
    """A JSON file that is named to a script, below its folder or one above; None where there is none."""
    for one in _files(document, (path,), 0, alone=False):
        try:
            return JsonDocument(one, regular_files.read(one))
        except (OSError, DocumentError, ValueError):
            continue
    return None


def _files(document: PythonScript, paths: Iterable[str], up: int, alone: bool) -> Iterator[str]:
    """Where paths may lead to from some folder above a script: that `up` steps above it, or (not `alone`) higher ones,
    up to the root of the repository.
    """
    folder = os.path.dirname(os.path.abspath(document.path))
    for step in range(up, up + 1 if alone else _ABOVE):
        base = os.path.normpath(os.path.join(folder, *[".."] * step))
        yield from (os.path.join(base, path) for path in paths)
        if any(os.path.exists(os.path.join(base, mark)) for mark in regular_files.MARKS):
            return


def changes(document: PythonScript, name: str, number: int, depth: int = _DEEPEST) -> bool:
    """Whether a function of another module of the repository may change its argument of a number.

    `name` is dotted, with the module as the script imports it. False for functions of installed packages.
    """
    module, _, last = name.rpartition(".")
    other = module_of(document, module) if module.strip(".") and depth else None
    return other is not None and _changes(other, last, number, depth - 1)


def _changes(document: PythonScript, name: str, number: int, depth: int) -> bool:
    """The same of a name in a module, which may define or import it."""
    found = [node for node in document.module.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    function = next((node for node in found if node.name == name), None)
    if function is None:
        return any(changes(document, f"{module}.{own}", number, depth) for module, own in imports(document, name))
    parameters = [*function.args.posonlyargs, *function.args.args]
    if number >= len(parameters):
        return True
    own = parameters[number].arg
    return any(_may_change(document, node, own, depth) for node in ast.walk(function))


def _may_change(document: PythonScript, node: ast.AST, name: str, depth: int) -> bool:
    if isinstance(node, (ast.Attribute, ast.Subscript)):
        return isinstance(node.ctx, (ast.Store, ast.Del)) and _is(node.value, name)
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute):
        return node.func.attr in METHODS and _is(node.func.value, name)
    given = [number for number, one in enumerate(node.args) if _is(one, name)]
    called = callee(node)
    return any(called == "setattr" or (depth and _changes(document, called, number, depth - 1)) for number in given)


def imports(document: PythonScript, name: str) -> list[tuple[str, str]]:
    """The modules that a script imports a name from, with its name there; dots in front as written."""
    nodes = document.nodes(ast.ImportFrom)
    found = [(node, alias) for node in nodes for alias in node.names if (alias.asname or alias.name) == name]
    return list(dict.fromkeys(("." * node.level + (node.module or ""), alias.name) for node, alias in found))


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
