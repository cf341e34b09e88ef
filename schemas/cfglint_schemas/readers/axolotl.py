"""axolotl: the pydantic models in `axolotl.utils.schemas`, and the arguments that plugins add."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from cfglint_schemas.readers.models import ModelReader
from cfglint_schemas.readers.source import Class, Module, Source, UndecidedError, evaluate, is_descendant
from cfglint_schemas.readers.table import Definition, ReleaseTable

_ROOT: Final = "AxolotlInputConfig"
_SCHEMAS: Final = ("axolotl.utils.schemas.config", "axolotl.utils.config.models.input.v0_4_1")


def read(package: str, source: Source) -> ReleaseTable:
    """Return the vocabulary of one release; raise UndecidedError for an unexpected layout."""
    module = source.require_module(*_SCHEMAS)
    root = module.resolve_name(_ROOT)
    if not isinstance(root, Class):
        raise UndecidedError(f"{package} {source.tree.release}: {_ROOT} is not a class")
    models = ModelReader()
    keys = dict(models.read_keys(root))
    builtin = _read_builtin_plugins(source)
    for plugin, arguments in sorted(_find_plugins(source)):
        is_builtin = plugin.rpartition(".")[2] in builtin
        for name, key in models.read_keys(arguments).items():
            existing = keys.get(name)
            if is_builtin:
                keys[name] = key
            elif existing is None:
                keys[name] = key._replace(gate={"plugins": [plugin]})
            elif existing.gate is not None:
                keys[name] = existing._replace(gate={"plugins": [*existing.gate["plugins"], plugin]})
    definitions = {_ROOT: Definition(keys, models.find_unknown_effect(root)), **models.list_definitions()}
    return ReleaseTable(definitions, {"train": (_ROOT,)})


def _find_plugins(source: Source) -> Iterator[tuple[str, Class]]:
    """Yield the plugins of the release: the name to list under `plugins:`, and the class of the arguments."""
    for module in source.list_modules("axolotl/integrations", word="get_input_args"):
        for node in module.tree.body:
            if not isinstance(node, ast.ClassDef):
                continue
            plugin = Class(module, node)
            target = _read_input_args(plugin)
            if target is None or not is_descendant(plugin, "BasePlugin"):
                continue
            module_name, _, name = target.rpartition(".")
            arguments = source.resolve_imported(module_name, name)
            if isinstance(arguments, Class):
                yield _find_plugin_name(source, plugin), arguments


def _read_input_args(plugin: Class) -> str | None:
    """Return the dotted name that `get_input_args` returns, or None."""
    for node in plugin.node.body:
        if isinstance(node, ast.FunctionDef) and node.name == "get_input_args":
            for statement in ast.walk(node):
                if isinstance(statement, ast.Return) and statement.value is not None:
                    try:
                        value = evaluate(plugin.module, statement.value)
                    except UndecidedError:
                        return None
                    return value if isinstance(value, str) else None
    return None


def _find_plugin_name(source: Source, plugin: Class) -> str:
    """Return the plugin's name under the shortest module path that exports it, as `plugins:` lists it."""
    parts = plugin.module.name.split(".")
    for length in range(3, len(parts)):
        package: Module | None = source.find_module(".".join(parts[:length]))
        if package is not None and plugin.name in package.bindings:
            return f"{package.name}.{plugin.name}"
    return f"{plugin.module.name}.{plugin.name}"


def _read_builtin_plugins(source: Source) -> frozenset[str]:
    """Return the class names of the plugins that axolotl loads even if they are not listed."""
    module = source.find_module("axolotl.integrations.base")
    if module is None or "BUILTIN_PLUGINS" not in module.bindings:
        return frozenset()
    binding = module.bindings["BUILTIN_PLUGINS"]
    names = evaluate(module, binding) if isinstance(binding, ast.expr) else []
    return frozenset(name.rpartition(".")[2] for name in names)
