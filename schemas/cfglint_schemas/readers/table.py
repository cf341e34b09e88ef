"""One release's vocabulary as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cfglint_schemas.readers.types import Fragment
from cfglint_train.foundation.frozen import Frozen

Json = dict[str, Any]


class TableKey(Frozen):
    """One setting in one release."""

    schema: Fragment
    """What it may be, with its default."""
    aliases: tuple[str, ...] = ()
    """Other spellings that are accepted as input."""
    gate: Json | None = None
    """What must be loaded or said before the setting exists: `{"plugins": [NAME, ...]}`."""


class Definition(Frozen):
    """One group of settings in one release: a class, a section, an entry point."""

    keys: Mapping[str, TableKey]
    unknown: str = "error"
    """What the framework does with a name that is not here: dropped, error, warning, kept."""


class ReleaseTable(Frozen):
    """One package's vocabulary at one release."""

    definitions: Mapping[str, Definition]
    entries: Mapping[str, tuple[str, ...]]
    """Entry point to the definitions whose settings it takes at its root; the first entry is the usual one."""
