"""TRL: the names that its public modules export, and the parameters of its trainers."""

from __future__ import annotations

from typing import Final

from cfglint_schemas.readers.source import Source
from cfglint_schemas.readers.table import ReleaseTable
from tools.schemas.readers.api import list_names, list_trainers, read_api

_PACKAGE: Final = "trl"
_INNER: Final = (
    "chat_template_utils", "cli", "commands", "distributed", "environment", "generation", "kernels", "losses",
    "mergekit_utils", "scripts", "skills", "templates",
)  # fmt: skip
"""Modules that users' programs seldom import."""


def read(package: str, source: Source) -> ReleaseTable:
    """Return the names and parameters at one release; raise UndecidedError for an unexpected layout."""
    root = source.require_module(_PACKAGE)
    modules = [module for module in source.list_modules(_PACKAGE) if _is_public(module.name)]
    return read_api(((module.name, list_names(module)) for module in modules), list_trainers(source, _PACKAGE, root))


def _is_public(name: str) -> bool:
    """Return whether users' programs import from a module."""
    _, *parts = name.split(".")
    if any(part.startswith("_") for part in parts) or (parts and parts[0] in _INNER):
        return False
    return len(parts) <= 2
