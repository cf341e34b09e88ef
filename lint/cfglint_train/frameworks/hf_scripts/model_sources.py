"""Search for models that a script imports from its repository's modules, which cfglint parses but never imports."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Collection, Iterable, Iterator

from cfglint_train.documents.python.script import PythonScript
from cfglint_train.documents.python.static.modules import find_imports, find_module
from cfglint_train.documents.python.syntax import get_callee_name
from cfglint_train.foundation.typed import Final

_MAX_DEFINITIONS: Final = 300
"""Maximum number of definitions in other modules that one search visits."""
_FUNCTION_NODES: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_BLOCK_NODES: Final = (ast.If, ast.Try, ast.With)


def find_imported_source(document: PythonScript, expressions: Iterable[ast.expr], pattern: re.Pattern[bytes]) -> str:
    """Return an imported name that the expressions depend on and whose definition matches a pattern, or "".

    The definition must be in the script's repository. A match in another definition that this definition uses counts,
    too.
    """
    names = _find_sources(document, expressions)
    search = _Search(pattern)
    return next((name for name in sorted(names) if search.is_imported(document, name, names)), "")


def is_passing(document: PythonScript, path: str, pattern: re.Pattern[bytes]) -> bool:
    """Return whether a script passes arguments to an import from the file at `path`, and the pattern matches.

    The pattern may match anywhere in the script, or in the modules of its repository that the arguments come from.
    """
    imported_names = set(_list_names_from_file(document, path))
    calls = [
        call
        for call in document.list_nodes(ast.Call)
        if imported_names and not imported_names.isdisjoint(_collect_names(call.func))
    ]
    arguments = [node for call in calls for node in (*call.args, *(keyword.value for keyword in call.keywords))]
    return bool(arguments) and (
        pattern.search(document.source) is not None or bool(find_imported_source(document, arguments, pattern))
    )


def _list_names_from_file(document: PythonScript, path: str) -> Iterator[str]:
    """Yield the names under which a script imports a file or objects from it."""
    stem = os.path.basename(path).removesuffix(".py")

    def is_file(module: str) -> bool:
        imported_module = find_module(document, module) if module.rpartition(".")[2] == stem else None
        return imported_module is not None and os.path.abspath(imported_module.path) == os.path.abspath(path)

    for node in document.list_nodes(ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        is_module = is_file(module)
        for alias in node.names:
            if is_module or is_file(_join_module(module, alias.name)):
                yield alias.asname or alias.name
    for import_node in document.list_nodes(ast.Import):
        yield from (alias.asname or stem for alias in import_node.names if is_file(alias.name))


def list_model_arguments(call: ast.Call) -> Iterator[ast.expr]:
    """Yield the arguments of a trainer call that may be its model."""
    yield from call.args[:1]
    yield from (keyword.value for keyword in call.keywords if keyword.arg in ("model", "model_init", None))


def _find_sources(document: PythonScript, expressions: Iterable[ast.expr]) -> set[str]:
    """Return all names of a script that the expressions depend on, directly or indirectly."""
    pending = [name for node in expressions for name in _collect_names(node)]
    sources_by_name, sources = _collect_dependencies(document) if pending else {}, set[str]()
    while pending:
        name = pending.pop()
        if name not in sources:
            sources.add(name)
            pending += sources_by_name.get(name, ())
    return sources


def _collect_dependencies(document: PythonScript) -> dict[str, set[str]]:
    """Return the names that each name depends on, through assignments, call arguments and function bodies."""
    flows: dict[str, set[str]] = {}
    for node in document.list_nodes(ast.Assign):
        for target in node.targets:
            for name in _list_targets(target):
                flows.setdefault(name, set()).update(_collect_names(node.value))
    calls: dict[str, list[ast.Call]] = {}
    for call in document.list_nodes(ast.Call):
        calls.setdefault(get_callee_name(call), []).append(call)
    classes = {id(inner): item.name for item in document.list_nodes(ast.ClassDef) for inner in item.body}
    for function in document.list_nodes(ast.FunctionDef):
        flows.setdefault(function.name, set()).update(_collect_names(function))
        parameters = [item.arg for item in (*function.args.posonlyargs, *function.args.args)]
        callee_name = classes.get(id(function), "") if function.name == "__init__" else function.name
        for call in calls.get(callee_name, ()):
            bound = zip(parameters[id(function) in classes :], call.args, strict=False)
            for parameter, value in (*bound, *((item.arg, item.value) for item in call.keywords)):
                flows.setdefault(parameter or "", set()).update(_collect_names(value))
    return flows


def _list_targets(node: ast.expr) -> Iterator[str]:
    if isinstance(node, (ast.Tuple, ast.List)):
        for item in node.elts:
            yield from _list_targets(item)
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Name):
        yield node.id


def _collect_names(node: ast.AST) -> set[str]:
    """Return the names and attributes in a piece of syntax."""
    names = {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}
    return names | {child.attr for child in ast.walk(node) if isinstance(child, ast.Attribute)}


class _Search:
    """A search for a pattern in the definitions of other modules; each definition is visited once."""

    def __init__(self, pattern: re.Pattern[bytes]) -> None:
        """Start a search that has visited no definition."""
        self._pattern = pattern
        self._visited: set[tuple[str, str]] = set()
        self._modules: dict[tuple[str, str], PythonScript | None] = {}

    def is_imported(self, document: PythonScript, name: str, used: Collection[str]) -> bool:
        """Return whether the definition of an imported name matches; for a module, any of its members in `used`."""
        for module, imported_name in _find_origins(document, name):
            imported_module = self._load_module(document, module)
            if imported_module is not None and imported_name and self._is_matching(imported_module, imported_name):
                return True
            submodule = (
                self._load_module(document, _join_module(module, imported_name)) if imported_name else imported_module
            )
            if submodule is not None and any(self._is_matching(submodule, used_name) for used_name in sorted(used)):
                return True
        return False

    def _load_module(self, document: PythonScript, module: str) -> PythonScript | None:
        key = document.path, module
        if key not in self._modules:
            self._modules[key] = find_module(document, module) if module.strip(".") else None
        return self._modules[key]

    def _is_matching(self, document: PythonScript, name: str) -> bool:
        """Return whether an unvisited definition of a name matches, or a definition that it uses or re-exports does."""
        if (document.path, name) in self._visited or len(self._visited) > _MAX_DEFINITIONS:
            return False
        self._visited.add((document.path, name))
        nodes = [node for node in _list_statements(document.module.body) if name in _list_defined_names(node)]
        spans = map(document.find_span, nodes)
        if any(self._pattern.search(document.source, span.start, span.end) for span in spans):
            return True
        used = set[str]().union(*map(_collect_names, nodes))
        if any(self._is_matching(document, used_name) for used_name in sorted(used)):
            return True
        return any(self.is_imported(document, used_name, used) for used_name in (sorted(used) if nodes else (name,)))


def _join_module(module: str, name: str) -> str:
    return f"{module}{name}" if module.endswith(".") else f"{module}.{name}"


def _list_statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a body, including those inside `if`, `try` and `with` blocks."""
    for node in body:
        if isinstance(node, _BLOCK_NODES):
            yield from _list_statements(child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt))
        else:
            yield node


def _list_defined_names(node: ast.stmt) -> Collection[str]:
    if isinstance(node, (*_FUNCTION_NODES, ast.ClassDef)):
        return (node.name,)
    return [name for target in node.targets for name in _list_targets(target)] if isinstance(node, ast.Assign) else ()


def _find_origins(document: PythonScript, name: str) -> Iterator[tuple[str, str]]:
    """Yield each module that a name may come from and its name there ("" if the name is the module itself)."""
    yield from find_imports(document, name)
    yield from ((module, name) for module, _ in find_imports(document, "*"))
    for node in document.list_nodes(ast.Import):
        for alias in node.names:
            if (alias.asname or alias.name.partition(".")[0]) == name:
                yield alias.name, ""
