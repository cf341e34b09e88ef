"""PEFT: the arguments of `LoraConfig`, which scripts hand over as keywords."""

from __future__ import annotations

from typing import Final

from cfglint_schemas.readers.models import Models
from cfglint_schemas.readers.source import Class, Source, UndecidedError
from cfglint_schemas.readers.table import Definition, Table

_CONFIG: Final = "LoraConfig"
# The file of the adapter became a folder in 0.5.
_HOMES: Final = ("peft.tuners.lora.config", "peft.tuners.lora")


def read(package: str, source: Source) -> Table:
    """The vocabulary of one release. Raises UndecidedError for an unexpected layout."""
    models = Models()
    for home in _HOMES:
        module = source.module(home)
        found = module.resolve(_CONFIG) if module is not None and _CONFIG in module.bindings else None
        if isinstance(found, Class):
            return Table({_CONFIG: Definition(models.keys(found)), **models.definitions()}, {"lora": (_CONFIG,)})
    raise UndecidedError(f"peft {source.tree.release}: {_CONFIG} is not a class")
