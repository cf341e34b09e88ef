"""Tables: the vocabulary of one release, as readers return it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cfglint_schemas.readers.types import Fragment
from cfglint_train.foundation.frozen import Frozen

Json = dict[str, Any]


class TableKey(Frozen):
    """One key in one release."""

    schema: Fragment
    """Schema of the accepted values, with the default."""
    aliases: tuple[str, ...] = ()
    """Other spellings that the release accepts."""
    gate: Json | None = None
    """Precondition of the key: `{"plugins": [NAME, ...]}`; any of these plugins adds the key."""


class Definition(Frozen):
    """One group of keys in one release: a class, a section or an entry point."""

    keys: Mapping[str, TableKey]
    unknown: str = "error"
    """Effect of an unknown name: dropped, error, warning or kept."""


class ReleaseTable(Frozen):
    """The vocabulary of one package at one release."""

    definitions: Mapping[str, Definition]
    entries: Mapping[str, tuple[str, ...]]
    """Entry point -> definitions whose keys it accepts at its root; the first entry point is the default."""
