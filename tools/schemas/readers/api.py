"""Public names of a package: what its modules export, and the parameters of its trainers."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from cfglint_schemas.readers.source import Class, Module, Source, UndecidedError, get_dotted_name, resolve_bases
from cfglint_schemas.readers.table import Definition, ReleaseTable, TableKey

_STRUCTURE: Final = "_import_structure"
_KEY: Final = TableKey({})
_MAX_BASES: Final = 5
_RELATED: Final = ("peft", "transformers")
"""Packages to which a name may have moved, so that a module imports what it used to define."""


def read_api(modules: Iterable[tuple[str, Iterable[str]]], trainers: Iterable[Class]) -> ReleaseTable:
    """Return a table with a definition per module, which has its names, and per trainer, which has its parameters."""
    definitions = {name: Definition(dict.fromkeys(sorted(set(names)), _KEY)) for name, names in modules}
    definitions |= {trainer.name: _read_parameters(trainer) for trainer in trainers}
    return ReleaseTable(definitions, {name: (name,) for name in definitions})


def list_names(module: Module) -> Iterator[str]:
    """Yield the public names of a module: its definitions, its submodules, and what it imports or provides lazily."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom):  # also below `if TYPE_CHECKING`
            origin = module.resolve_import(node.module or "", node.level).partition(".")[0]
            if origin in _RELATED or module.source.is_internal(origin):
                yield from (alias.asname or alias.name for alias in node.names if not _is_private(alias))
    yield from (
        name for name, node in module.bindings.items() if not isinstance(node, tuple) and not name.startswith("_")
    )
    yield from (name for _, names in list_lazy_names(module) for name in names)
    if module.source.is_package(module.name):
        folder = module.name.replace(".", "/") + "/"
        children = (path[len(folder) :].split("/") for path in module.source.tree.files if path.startswith(folder))
        yield from (name for first, *_ in children if (name := first.removesuffix(".py")) and not name.startswith("_"))


def _is_private(alias: ast.alias) -> bool:
    return (alias.asname or alias.name).startswith(("_", "*"))


def list_lazy_names(module: Module) -> Iterator[tuple[str, list[str]]]:
    """Yield each submodule in the import structure of a package, with the names that it provides."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Assign) and _is_structure(node.targets[0]):
            if isinstance(node.value, ast.Dict):
                for key, value in zip(node.value.keys, node.value.values, strict=True):
                    if isinstance(key, ast.Constant):
                        yield str(key.value), [str(key.value), *_list_words(value)]
            elif isinstance(node.targets[0], ast.Subscript):
                yield _get_word(node.targets[0].slice), _list_words(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if node.func.attr in ("append", "extend") and isinstance(owner, ast.Subscript) and _is_structure(owner):
                yield _get_word(owner.slice), [word for value in node.args for word in _list_words(value)]


def _is_structure(node: ast.expr) -> bool:
    return get_dotted_name(node.value if isinstance(node, ast.Subscript) else node) == _STRUCTURE


def _get_word(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _list_words(node: ast.expr) -> list[str]:
    return [item.value for item in ast.walk(node) if isinstance(item, ast.Constant) and isinstance(item.value, str)]


def list_trainers(source: Source, package: str, module: Module) -> Iterator[Class]:
    """Yield the trainers that a module exports, each with the class that defines it."""
    homes = {name: submodule for submodule, names in list_lazy_names(module) for name in names if submodule}
    for name in sorted(name for name in homes if name.endswith("Trainer")):
        home = source.find_module(f"{package}.{homes[name]}")
        try:
            symbol = None if home is None else _resolve(home, name)
        except UndecidedError:
            continue
        if isinstance(symbol, Class) and symbol.name == name:
            yield symbol


def _resolve(module: Module, name: str) -> object:
    """Return the symbol that a module exports under a name, following the import structures of packages."""
    if name not in module.bindings:
        for submodule, names in list_lazy_names(module):
            home = module.source.find_module(f"{module.name}.{submodule}") if name in names and submodule else None
            if home is not None:
                return home.resolve_name(name)
    return module.resolve_name(name)


def _read_parameters(trainer: Class) -> Definition:
    """Return the keyword parameters of a class, including former names that a decorator still accepts."""
    constructor = _find_constructor(trainer)
    if constructor is None:
        return Definition({}, "kept")
    arguments = constructor.args
    names = [item.arg for item in (*arguments.args[1:], *arguments.kwonlyargs)]
    for decorator in constructor.decorator_list:
        is_renaming = isinstance(decorator, ast.Call) and get_dotted_name(decorator.func) == "deprecate_kwarg"
        if is_renaming and isinstance(decorator, ast.Call) and decorator.args:
            names.append(_get_word(decorator.args[0]))
    return Definition(dict.fromkeys(sorted(names), _KEY), "kept" if arguments.kwarg else "error")


def _find_constructor(trainer: Class) -> ast.FunctionDef | None:
    """Return the `__init__` that states the parameters of a class, or None if no class of the package does.

    A constructor that hands `*args` and `**kwargs` to the base class accepts what that accepts.
    """
    class_ = trainer
    for _ in range(_MAX_BASES):
        methods = (item for item in class_.node.body if isinstance(item, ast.FunctionDef))
        constructor = next((item for item in methods if item.name == "__init__"), None)
        if constructor is not None and not (constructor.args.vararg and constructor.args.kwarg):
            return constructor
        bases = [base for base in resolve_bases(class_) if isinstance(base, Class)]
        if not bases:
            return None
        class_ = bases[0]
    return None
