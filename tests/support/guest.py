"""Third-party frameworks, installed in the folders that cfglint searches for frameworks and vocabularies."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import cfglint_schemas
from cfglint_rules.vocabulary import table
from cfglint_schemas import vocabulary
from cfglint_train import frameworks
from cfglint_train.frameworks import framework, registry

_CACHED_FUNCTIONS = (
    registry.list_frameworks,
    registry._read_manifests,
    registry.list_packages,
    registry.map_spellings,
    registry.find_frameworks_of_rule,
    registry._list_clues,
    registry._compile_program_pattern,
    registry.find_framework_of_program,
    table.load_table,
)


def _clear_caches(names: set[str]) -> None:
    """Drop everything cached about frameworks of these names."""
    for function in _CACHED_FUNCTIONS:
        function.cache_clear()
    for cache in (framework._loaded_frameworks, framework._keys_by_framework, vocabulary._cache):
        for name in names:
            cache.pop(name, None)
    for name in names:
        for module in [
            module_name for module_name in sys.modules if module_name.startswith(f"cfglint_train.frameworks.{name}")
        ]:
            del sys.modules[module]


@contextmanager
def install_frameworks(place: Path, schemas: Path | None) -> Iterator[None]:
    """Add the frameworks in `place` and the vocabularies in `schemas` to the bundled ones."""
    names = {path.parent.name for path in place.glob("*/framework.json")}
    schema_folders = [str(schemas)] if schemas is not None else []
    _clear_caches(names)
    with (
        mock.patch.object(frameworks, "__path__", [*frameworks.__path__, str(place)]),
        mock.patch.object(cfglint_schemas, "__path__", [*cfglint_schemas.__path__, *schema_folders]),
    ):
        yield
    _clear_caches(names)
