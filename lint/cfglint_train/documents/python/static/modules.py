"""Modules of the repository that a script imports, and the changes that their functions make to arguments.

The modules are parsed, never imported. A change of a nested part (`config["optimizer"]["lr"] = 1`) counts as a change
of its top-level key.
"""

from __future__ import annotations

import ast
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from cfglint_train.documents.document import Document, DocumentError
from cfglint_train.documents.json import JsonDocument
from cfglint_train.documents.python.script import PythonScript
from cfglint_train.documents.python.static.mappings import METHODS
from cfglint_train.documents.python.syntax import get_callee_name
from cfglint_train.documents.yaml.dialects import PYYAML, get_omegaconf_dialect
from cfglint_train.documents.yaml.document import YamlDocument
from cfglint_train.foundation import filesystem, regular_files
from cfglint_train.foundation.typed import Final

_MAX_FOLDERS_ABOVE: Final = 4
"""Number of folders in which modules are searched: the script's own and those above it."""
MAX_SETTINGS_BYTES: Final = 1 << 15
"""Maximum size of a settings file that a script reads."""
_MAX_DEPTH: Final = 5
"""Maximum length of a chain of functions that pass an argument on."""
_ENDINGS: Final = (".py", "/__init__.py")
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_NOTHING: Final[frozenset[str]] = frozenset()


def find_module(document: PythonScript, module: str) -> PythonScript | None:
    """Return a module of the repository that a script imports, or None if it cannot be found or parsed.

    An absolute import is looked up in the script's folder, in the folders above it, and in a folder `src` of each.
    """
    modules = document.modules
    for candidate in _list_module_files(document, module):
        try:
            key = name_file(document, candidate), regular_files.read(candidate)
        except (OSError, ValueError):
            continue
        if key not in modules:
            # A copy for each script: caches by module must not outlive the files that the module imports.
            parsed = _parse_module(*key)
            modules[key] = None if parsed is None else parsed.copy_for(document)
        module_document = modules[key]
        if module_document is not None:
            return module_document
    return None


@lru_cache(maxsize=256)
def _parse_module(path: str, source: bytes) -> PythonScript | None:
    """Return a module of the repository, or None if it cannot be parsed."""
    try:
        return PythonScript(path, source)
    except (DocumentError, ValueError):
        return None


def name_file(document: PythonScript, path: str) -> str:
    """Return the path of another file as the user would name it, given the path of a script."""
    return regular_files.normalize_path(path if os.path.isabs(document.path) else os.path.relpath(path))


def _list_module_files(document: PythonScript, module: str) -> Iterator[str]:
    """Yield the files that may hold a module which a script imports."""
    module_name = module.lstrip(".")
    up = max(0, len(module) - len(module_name) - 1)
    path = module_name.replace(".", "/")
    is_relative = module.startswith(".")
    paths = [f"{folder}{path}{ending}" for folder in ("", "src/")[: 1 if is_relative else 2] for ending in _ENDINGS]
    yield from _list_candidates(document, paths, up, is_relative)


def find_settings_file(document: PythonScript, path: str) -> Document | None:
    """Return a JSON or YAML file that a script names, or None if it cannot be found or parsed.

    The path is resolved against the script's folder and the folders above it.
    """
    parse = JsonDocument if path.endswith(".json") else YamlDocument
    for candidate in _list_candidates(document, (path,), 0, is_fixed=False):
        try:
            return parse(candidate, regular_files.read(candidate))
        except (OSError, DocumentError, ValueError):
            continue
    return None


def find_single_file(document: PythonScript, path: str, loader: str) -> Document | None:
    """Return the only file of the repository that a script's path can mean, or None if it cannot be determined or read.

    The path is resolved as by `find_settings_file`. `loader`: the library that reads the file: json, yaml or omegaconf.
    """
    folder = os.path.dirname(os.path.abspath(document.path))
    root = os.path.join(filesystem.find_repository(folder) or folder, "")
    sources = {}
    for candidate in _list_candidates(document, (path,), 0, is_fixed=os.path.isabs(path)):
        if os.path.normpath(candidate).startswith(root) and _is_small_file(candidate):
            try:
                sources[candidate] = regular_files.read(candidate)
            except (OSError, ValueError):
                continue
    if len(sources) != 1:
        return None
    ((file, source),) = sources.items()
    try:
        return _parse_file(name_file(document, file), source, loader)
    except (DocumentError, ValueError):
        return None


def _is_small_file(path: str) -> bool:
    """Return whether a regular file is small enough for settings; larger files are data."""
    try:
        status = filesystem.get_status(path)
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size <= MAX_SETTINGS_BYTES


def parse_text(text: str, loader: str) -> Document:
    """Return the document of a text that a library reads. Raise `DocumentError` if it cannot be parsed."""
    return _parse_file("", text.encode(), loader)


@lru_cache(maxsize=64)
def _parse_file(path: str, source: bytes, loader: str) -> Document:
    if loader == "json":
        return JsonDocument(path, source)
    return YamlDocument(path, source, get_omegaconf_dialect() if loader == "omegaconf" else PYYAML)


def _list_candidates(document: PythonScript, paths: Iterable[str], up: int, is_fixed: bool) -> Iterator[str]:
    """Yield the candidate paths in the folder `up` levels above a script.

    Unless `is_fixed`, the folders above it follow, up to the root of the repository.
    """
    folder = os.path.dirname(os.path.abspath(document.path))
    root = filesystem.find_repository(folder)
    for step in range(up, up + 1 if is_fixed else _MAX_FOLDERS_ABOVE):
        base = os.path.normpath(os.path.join(folder, *[".."] * step))
        yield from (os.path.join(base, path) for path in paths)
        if base == root:
            return


def find_changes(
    document: PythonScript, name: str, argument: int | str, depth: int = _MAX_DEPTH
) -> frozenset[str] | None:
    """Return the attributes that a function of another module may set on an argument, or None if it may set any.

    `argument` is the argument's index or name. `name` is dotted and starts with the module as the script imports it;
    the function may be a method of a class in that module. Functions of installed packages are assumed to change
    nothing.
    """
    module, _, last = name.rpartition(".")
    if not module.strip(".") or not depth:
        return _NOTHING
    other = find_module(document, module)
    if other is not None:
        return _find_changes(other, last, argument, depth - 1)
    module, _, owner = module.rpartition(".")
    other = find_module(document, module) if module.strip(".") and owner[:1].isupper() else None
    return _NOTHING if other is None else _find_changes(other, f"{owner}.{last}", argument, depth - 1)


def _find_changes(document: PythonScript, name: str, argument: int | str, depth: int) -> frozenset[str] | None:
    """Return the changes that a function makes to an argument; the module may define or import the function."""
    first, _, method = name.partition(".")
    function = _find_definition(document.module.body, first)
    if isinstance(function, ast.ClassDef) and method:
        function = _find_definition(function.body, method)
        static = isinstance(function, _FUNCTIONS) and any(
            _is_name(parameter, "staticmethod") for parameter in function.decorator_list
        )
        argument = argument if isinstance(argument, str) or static else argument + 1
    elif function is None:
        suffix = f".{method}" if method else ""
        sources = find_imports(document, first)
        return _merge_names(
            find_changes(document, f"{module}.{target_name}{suffix}", argument, depth)
            for module, target_name in sources
        )
    if not isinstance(function, _FUNCTIONS):
        return _NOTHING
    parameters = [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)]
    if isinstance(argument, str):
        target_name = (
            argument if argument in (*parameters, *(parameter.arg for parameter in function.args.kwonlyargs)) else None
        )
    else:
        target_name = parameters[argument] if argument < len(parameters) else None
    if target_name is None:
        return None
    nodes = [*ast.walk(function)]
    parts = {target_name: (), **_find_aliases(nodes, target_name)}
    return _merge_names(_find_node_changes(document, node, parts, depth) for node in nodes)


def _find_definition(body: Iterable[ast.stmt], name: str) -> ast.stmt | None:
    definitions = (node for node in body if isinstance(node, (*_FUNCTIONS, ast.ClassDef)))
    return next((node for node in definitions if node.name == name), None)


_Steps = tuple["str | None", ...]
"""Keys that lead from a record to a part of it; None stands for a computed key."""


def _find_aliases(nodes: Iterable[ast.AST], argument: str) -> dict[str, _Steps]:
    """Return the names that a function assigns to parts of its argument, with the keys that lead to them."""
    aliases: dict[str, _Steps] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            steps = _find_steps(node.value, {argument: (), **aliases})
            if steps is not None:
                aliases[node.targets[0].id] = steps
    return aliases


def _find_steps(node: ast.expr, parts: Mapping[str, _Steps]) -> _Steps | None:
    """Return the keys that lead from a record to an expression, or None if it is not a part of the record."""
    keys: list[str | None] = []
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Attribute):
            keys.insert(0, node.attr)
        else:
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            keys.insert(0, key if isinstance(key, str) else None)
        node = node.value
    return (*parts[node.id], *keys) if isinstance(node, ast.Name) and node.id in parts else None


def _get_first_key(steps: _Steps) -> frozenset[str] | None:
    """Return the top-level key that contains a changed part, or None if it may be any key."""
    return None if not steps or steps[0] is None else frozenset((steps[0],))


def _find_node_changes(
    document: PythonScript, node: ast.AST, parts: Mapping[str, _Steps], depth: int
) -> frozenset[str] | None:
    if isinstance(node, (ast.Attribute, ast.Subscript)):
        steps = _find_steps(node, parts) if isinstance(node.ctx, (ast.Store, ast.Del)) else None
        if steps is None:
            return _NOTHING
        # The assignment may add a key to the mapping itself.
        return None if len(steps) == 1 and isinstance(node, ast.Subscript) else _get_first_key(steps)
    if not isinstance(node, ast.Call):
        return _NOTHING
    if isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
        steps = _find_steps(node.func.value, parts)
        return _NOTHING if steps is None else _get_first_key(steps)
    arguments: list[tuple[int | str, ast.expr]] = [*enumerate(node.args)]
    arguments += [(argument.arg, argument.value) for argument in node.keywords if argument.arg is not None]
    passed_parts = [
        (position, steps) for position, argument in arguments if (steps := _find_steps(argument, parts)) is not None
    ]
    callee_name = get_callee_name(node)
    if callee_name == "setattr" and passed_parts and passed_parts[0][0] == 0:
        name_node = node.args[1] if len(node.args) > 1 else None
        key = name_node.value if isinstance(name_node, ast.Constant) and isinstance(name_node.value, str) else None
        return _get_first_key((*passed_parts[0][1], key))
    return (
        _merge_names(
            _find_callee_changes(document, callee_name, position, steps, depth) for position, steps in passed_parts
        )
        if depth
        else _NOTHING
    )


def _find_callee_changes(
    document: PythonScript, callee_name: str, argument: int | str, steps: _Steps, depth: int
) -> frozenset[str] | None:
    """Return the changes made by a function that receives the record or a part of it."""
    names = _find_changes(document, callee_name, argument, depth - 1)
    return names if not steps or (names is not None and not names) else _get_first_key(steps)


def _merge_names(name_sets: Iterable[frozenset[str] | None]) -> frozenset[str] | None:
    """Return the union of several sets of attributes, or None if any of them is None."""
    names: set[str] = set()
    for name_set in name_sets:
        if name_set is None:
            return None
        names |= name_set
    return frozenset(names)


def find_imports(document: PythonScript, name: str) -> list[tuple[str, str]]:
    """Return the modules from which a script imports a name, each with the original name; leading dots are kept."""
    nodes = document.list_nodes(ast.ImportFrom)
    aliases = [(node, alias) for node in nodes for alias in node.names if (alias.asname or alias.name) == name]
    return list(dict.fromkeys(("." * node.level + (node.module or ""), alias.name) for node, alias in aliases))


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
