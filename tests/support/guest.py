"""Frameworks from outside, put where cfglint looks for frameworks and vocabularies."""

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

_CACHED = (
    registry.listed,
    registry._files,
    registry.packages,
    registry.spellings,
    registry.naming,
    registry._clues,
    registry._entries,
    registry.of_program,
    table.table,
)


def _forget(names: set[str]) -> None:
    """Drop all that was worked out about frameworks of these names."""
    for function in _CACHED:
        function.cache_clear()
    for known in (framework._loaded, framework._keys, vocabulary._loaded):
        for name in names:
            known.pop(name, None)
    for name in names:
        for module in [one for one in sys.modules if one.startswith(f"cfglint_train.frameworks.{name}")]:
            del sys.modules[module]


@contextmanager
def installed(place: Path, schemas: Path | None) -> Iterator[None]:
    """The frameworks of the folders in `place`, and the vocabularies in `schemas`, beside those that are shipped."""
    names = {path.parent.name for path in place.glob("*/framework.json")}
    own = [str(schemas)] if schemas is not None else []
    _forget(names)
    with (
        mock.patch.object(frameworks, "__path__", [*frameworks.__path__, str(place)]),
        mock.patch.object(cfglint_schemas, "__path__", [*cfglint_schemas.__path__, *own]),
    ):
        yield
    _forget(names)
