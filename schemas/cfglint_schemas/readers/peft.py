"""PEFT: the keyword arguments of `LoraConfig`."""

from __future__ import annotations

from typing import Final

from cfglint_schemas.readers.models import ModelReader
from cfglint_schemas.readers.source import Class, Source, UndecidedError
from cfglint_schemas.readers.table import Definition, ReleaseTable

_CONFIG: Final = "LoraConfig"
# PEFT 0.5 turned the module of the adapter into a package.
_MODULES: Final = ("peft.tuners.lora.config", "peft.tuners.lora")


def read(package: str, source: Source) -> ReleaseTable:
    """Return the vocabulary of one release; raise UndecidedError for an unexpected layout."""
    models = ModelReader()
    for module_name in _MODULES:
        module = source.find_module(module_name)
        symbol = module.resolve_name(_CONFIG) if module is not None and _CONFIG in module.bindings else None
        if isinstance(symbol, Class):
            return ReleaseTable(
                {_CONFIG: Definition(models.read_keys(symbol)), **models.list_definitions()}, {"lora": (_CONFIG,)}
            )
    raise UndecidedError(f"peft {source.tree.release}: {_CONFIG} is not a class")
