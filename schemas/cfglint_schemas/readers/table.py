"""The vocabulary of one release as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cfglint_schemas.readers.types import Fragment
from cfglint_train.foundation.frozen import Frozen

Json = dict[str, Any]


class TableKey(Frozen):
    """One key in one release."""

    schema: Fragment
    """Accepted values and the default."""
    aliases: tuple[str, ...] = ()
    """Other accepted spellings."""
    gate: Json | None = None
    """Precondition of the key: `{"plugins": [NAME, ...]}`, any of which adds it."""


class Definition(Frozen):
    """One group of keys in one release: a class, a section or an entry point."""

    keys: Mapping[str, TableKey]
    unknown: str = "error"
    """Effect of a name that is not listed: dropped, error, warning or kept."""


class ReleaseTable(Frozen):
    """The vocabulary of one package at one release."""

    definitions: Mapping[str, Definition]
    entries: Mapping[str, tuple[str, ...]]
    """Entry point -> the definitions whose keys it accepts at its root; the first entry point is the usual one."""
