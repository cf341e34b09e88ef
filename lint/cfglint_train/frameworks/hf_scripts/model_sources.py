"""What a script gets its models from, where other modules of its repository make them. They are read as text."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Collection, Iterable, Iterator

from cfglint_train.documents.python.script import PythonScript
from cfglint_train.documents.python.static.modules import imports, module_of
from cfglint_train.documents.python.syntax import callee
from cfglint_train.foundation.typed import Final

_MAX_DEFINITIONS: Final = 300
"""Functions, classes and variables of other modules that are followed from one script."""
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_BLOCKS: Final = (ast.If, ast.Try, ast.With)


def imported_source(document: PythonScript, used: Iterable[ast.expr], sign: re.Pattern[bytes]) -> str:
    """The name that a script imports from its repository and that some expressions are made of, where its definition
    there, or one that this uses, has a sign; empty where there is none.
    """
    names = _sources(document, used)
    search = _Search(sign)
    return next((name for name in sorted(names) if search.imported(document, name, names)), "")


def gives(document: PythonScript, path: str, sign: re.Pattern[bytes]) -> bool:
    """Whether a script calls what it imports from a file, and gives it something that has a sign, in the script or
    where another module of its repository makes it.
    """
    own = set(_from_file(document, path))
    calls = [call for call in document.nodes(ast.Call) if own and not own.isdisjoint(_names(call.func))]
    used = [node for call in calls for node in (*call.args, *(keyword.value for keyword in call.keywords))]
    return bool(used) and (sign.search(document.source) is not None or bool(imported_source(document, used, sign)))


def _from_file(document: PythonScript, path: str) -> Iterator[str]:
    """The names by which a script has a file, or something of it."""
    stem = os.path.basename(path).removesuffix(".py")

    def means(module: str) -> bool:
        found = module_of(document, module) if module.rpartition(".")[2] == stem else None
        return found is not None and os.path.abspath(found.path) == os.path.abspath(path)

    for node in document.nodes(ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        whole = means(module)
        for alias in node.names:
            if whole or means(_joined(module, alias.name)):
                yield alias.asname or alias.name
    for plain in document.nodes(ast.Import):
        yield from (alias.asname or stem for alias in plain.names if means(alias.name))


def models(call: ast.Call) -> Iterator[ast.expr]:
    """What a trainer may be given as its model."""
    yield from call.args[:1]
    yield from (keyword.value for keyword in call.keywords if keyword.arg in ("model", "model_init", None))


def _sources(document: PythonScript, used: Iterable[ast.expr]) -> set[str]:
    """The names of all that some expressions are made of in a script."""
    waiting = [name for node in used for name in _names(node)]
    flows, found = _flows(document) if waiting else {}, set[str]()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += flows.get(name, ())
    return found


def _flows(document: PythonScript) -> dict[str, set[str]]:
    """What the names of a script are made of: by assignments, as parameters, and as functions."""
    flows: dict[str, set[str]] = {}
    for node in document.nodes(ast.Assign):
        for target in node.targets:
            for name in _targets(target):
                flows.setdefault(name, set()).update(_names(node.value))
    calls: dict[str, list[ast.Call]] = {}
    for call in document.nodes(ast.Call):
        calls.setdefault(callee(call), []).append(call)
    classes = {id(inner): one.name for one in document.nodes(ast.ClassDef) for inner in one.body}
    for function in document.nodes(ast.FunctionDef):
        flows.setdefault(function.name, set()).update(_names(function))
        parameters = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
        called = classes.get(id(function), "") if function.name == "__init__" else function.name
        for call in calls.get(called, ()):
            bound = zip(parameters[id(function) in classes :], call.args, strict=False)
            for parameter, value in (*bound, *((one.arg, one.value) for one in call.keywords)):
                flows.setdefault(parameter or "", set()).update(_names(value))
    return flows


def _targets(node: ast.expr) -> Iterator[str]:
    if isinstance(node, (ast.Tuple, ast.List)):
        for item in node.elts:
            yield from _targets(item)
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Name):
        yield node.id


def _names(node: ast.AST) -> set[str]:
    """The names and attributes in a piece of syntax."""
    found = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    return found | {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}


class _Search:
    """A search for a sign in definitions of other modules, each met once."""

    def __init__(self, sign: re.Pattern[bytes]) -> None:
        self._sign = sign
        self._met: set[tuple[str, str]] = set()
        self._modules: dict[tuple[str, str], PythonScript | None] = {}

    def imported(self, document: PythonScript, name: str, used: Collection[str]) -> bool:
        """Whether what a module imports by a name has the sign; of a module, what is used of it."""
        for module, own in _origins(document, name):
            other = self._module(document, module)
            if other is not None and own and self._defined(other, own):
                return True
            inner = self._module(document, _joined(module, own)) if own else other
            if inner is not None and any(self._defined(inner, one) for one in sorted(used)):
                return True
        return False

    def _module(self, document: PythonScript, module: str) -> PythonScript | None:
        key = document.path, module
        if key not in self._modules:
            self._modules[key] = module_of(document, module) if module.strip(".") else None
        return self._modules[key]

    def _defined(self, document: PythonScript, name: str) -> bool:
        """Whether the definition of a name in a module has the sign, or one that it uses or hands on."""
        if (document.path, name) in self._met or len(self._met) > _MAX_DEFINITIONS:
            return False
        self._met.add((document.path, name))
        nodes = [node for node in _statements(document.module.body) if name in _defines(node)]
        spans = map(document.span, nodes)
        if any(self._sign.search(document.source, span.start, span.end) for span in spans):
            return True
        used = set[str]().union(*map(_names, nodes))
        if any(self._defined(document, one) for one in sorted(used)):
            return True
        return any(self.imported(document, one, used) for one in (sorted(used) if nodes else (name,)))


def _joined(module: str, name: str) -> str:
    return f"{module}{name}" if module.endswith(".") else f"{module}.{name}"


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those in its conditions among them."""
    for node in body:
        if isinstance(node, _BLOCKS):
            yield from _statements(one for one in ast.iter_child_nodes(node) if isinstance(one, ast.stmt))
        else:
            yield node


def _defines(node: ast.stmt) -> Collection[str]:
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        return (node.name,)
    return [name for target in node.targets for name in _targets(target)] if isinstance(node, ast.Assign) else ()


def _origins(document: PythonScript, name: str) -> Iterator[tuple[str, str]]:
    """The modules that a name may come from, with its name there; without one where it is the module itself."""
    yield from imports(document, name)
    yield from ((module, name) for module, _ in imports(document, "*"))
    for node in document.nodes(ast.Import):
        for alias in node.names:
            if (alias.asname or alias.name.partition(".")[0]) == name:
                yield alias.name, ""
