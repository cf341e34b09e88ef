"""Other modules of the repository that a script imports, and what their functions change. They are read as text.

A change of a part (`config["optimizer"]["lr"] = 1`) is one of the key that it is in.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator, Mapping

from cfglint_train.documents.document import DocumentError
from cfglint_train.documents.json import JsonDocument
from cfglint_train.documents.python.script import PythonScript
from cfglint_train.documents.python.static.mappings import METHODS
from cfglint_train.documents.python.syntax import callee
from cfglint_train.foundation import regular_files
from cfglint_train.foundation.typed import Final

_ABOVE: Final = 4
"""Folders above a script in which a module of it is looked for."""
_DEEPEST: Final = 5
"""Functions that hand an argument on to each other."""
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_NOTHING: Final[frozenset[str]] = frozenset()


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
    root = regular_files.repository_of(folder)
    for step in range(up, up + 1 if alone else _ABOVE):
        base = os.path.normpath(os.path.join(folder, *[".."] * step))
        yield from (os.path.join(base, path) for path in paths)
        if base == root:
            return


def changes(document: PythonScript, name: str, place: int | str, depth: int = _DEEPEST) -> frozenset[str] | None:
    """The attributes that a function of another module of the repository may set of its argument of a number or name;
    None where it may change any key of it.

    `name` is dotted, with the module as the script imports it; the function may be a method of a class of that module.
    Functions of installed packages change nothing.
    """
    module, _, last = name.rpartition(".")
    if not module.strip(".") or not depth:
        return _NOTHING
    other = module_of(document, module)
    if other is not None:
        return _changes(other, last, place, depth - 1)
    module, _, owner = module.rpartition(".")
    other = module_of(document, module) if module.strip(".") and owner[:1].isupper() else None
    return _NOTHING if other is None else _changes(other, f"{owner}.{last}", place, depth - 1)


def _changes(document: PythonScript, name: str, place: int | str, depth: int) -> frozenset[str] | None:
    """The same of a name in a module, which may define or import it."""
    first, _, method = name.partition(".")
    function = _defined(document.module.body, first)
    if isinstance(function, ast.ClassDef) and method:
        function = _defined(function.body, method)
        static = isinstance(function, _FUNCTIONS) and any(_is(one, "staticmethod") for one in function.decorator_list)
        place = place if isinstance(place, str) or static else place + 1
    elif function is None:
        behind = f".{method}" if method else ""
        known = imports(document, first)
        return _all(changes(document, f"{module}.{own}{behind}", place, depth) for module, own in known)
    if not isinstance(function, _FUNCTIONS):
        return _NOTHING
    parameters = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    if isinstance(place, str):
        own = place if place in (*parameters, *(one.arg for one in function.args.kwonlyargs)) else None
    else:
        own = parameters[place] if place < len(parameters) else None
    if own is None:
        return None
    nodes = [*ast.walk(function)]
    parts = {own: (), **_aliases(nodes, own)}
    return _all(_may_change(document, node, parts, depth) for node in nodes)


def _defined(body: Iterable[ast.stmt], name: str) -> ast.stmt | None:
    found = (node for node in body if isinstance(node, (*_FUNCTIONS, ast.ClassDef)))
    return next((node for node in found if node.name == name), None)


_Steps = tuple["str | None", ...]
"""The keys from a record down to a part of it; None for a computed one."""


def _aliases(nodes: Iterable[ast.AST], own: str) -> dict[str, _Steps]:
    """The names that a function gives to parts of its argument."""
    found: dict[str, _Steps] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            steps = _steps(node.value, {own: (), **found})
            if steps is not None:
                found[node.targets[0].id] = steps
    return found


def _steps(node: ast.expr, parts: Mapping[str, _Steps]) -> _Steps | None:
    """Where an expression is in what some names stand for; None where it is none of their parts."""
    behind: list[str | None] = []
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Attribute):
            behind.insert(0, node.attr)
        else:
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            behind.insert(0, key if isinstance(key, str) else None)
        node = node.value
    return (*parts[node.id], *behind) if isinstance(node, ast.Name) and node.id in parts else None


def _first(steps: _Steps) -> frozenset[str] | None:
    """The key of a record that a change of a part changes; None for any."""
    return None if not steps or steps[0] is None else frozenset((steps[0],))


def _may_change(
    document: PythonScript, node: ast.AST, parts: Mapping[str, _Steps], depth: int
) -> frozenset[str] | None:
    if isinstance(node, (ast.Attribute, ast.Subscript)):
        steps = _steps(node, parts) if isinstance(node.ctx, (ast.Store, ast.Del)) else None
        if steps is None:
            return _NOTHING
        # A key of the mapping itself may be a new one.
        return None if len(steps) == 1 and isinstance(node, ast.Subscript) else _first(steps)
    if not isinstance(node, ast.Call):
        return _NOTHING
    if isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
        steps = _steps(node.func.value, parts)
        return _NOTHING if steps is None else _first(steps)
    given: list[tuple[int | str, ast.expr]] = [*enumerate(node.args)]
    given += [(one.arg, one.value) for one in node.keywords if one.arg is not None]
    reached = [(place, steps) for place, one in given if (steps := _steps(one, parts)) is not None]
    called = callee(node)
    if called == "setattr" and reached and reached[0][0] == 0:
        stated = node.args[1] if len(node.args) > 1 else None
        key = stated.value if isinstance(stated, ast.Constant) and isinstance(stated.value, str) else None
        return _first((*reached[0][1], key))
    return _all(_handed(document, called, place, steps, depth) for place, steps in reached) if depth else _NOTHING


def _handed(document: PythonScript, called: str, place: int | str, steps: _Steps, depth: int) -> frozenset[str] | None:
    """What a function changes that is given a record, or a part of it."""
    found = _changes(document, called, place, depth - 1)
    return found if not steps or (found is not None and not found) else _first(steps)


def _all(found: Iterable[frozenset[str] | None]) -> frozenset[str] | None:
    """All attributes of several sets; None where one may be any."""
    names: set[str] = set()
    for one in found:
        if one is None:
            return None
        names |= one
    return frozenset(names)


def imports(document: PythonScript, name: str) -> list[tuple[str, str]]:
    """The modules that a script imports a name from, with its name there; dots in front as written."""
    nodes = document.nodes(ast.ImportFrom)
    found = [(node, alias) for node in nodes for alias in node.names if (alias.asname or alias.name) == name]
    return list(dict.fromkeys(("." * node.level + (node.module or ""), alias.name) for node, alias in found))


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
