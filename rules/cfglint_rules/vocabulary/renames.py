"""Changes that give a setting another name, and whether that name is free."""

from __future__ import annotations

from cfglint_train.documents.document import MISSING, Change, Delete, Rename, Route, Set
from cfglint_train.foundation.typed import Any
from cfglint_train.frameworks.framework import keys_of
from cfglint_train.frameworks.lens import Config


def moved(config: Config, old: Route, new: Route, value: Any = MISSING) -> tuple[Change, ...]:
    """The changes that put a key's value under another name: in place beside its neighbours, else taken out and put in.

    Routes count from the configuration's root. `value` is the new one; without it the old one stays.
    """
    here, present = (*config.root, *old), config.document.value((*config.root, *old))
    wanted = present if value is MISSING else value
    if old[:-1] != new[:-1]:
        return Delete(here), Set((*config.root, *new), wanted)
    renamed = Rename(here, str(new[-1]))
    return (renamed,) if wanted == present and type(wanted) is type(present) else (Set(here, wanted), renamed)


def is_taken(config: Config, route: Route) -> bool:
    """Whether a setting is given already, or could not be put where it belongs."""
    keys = keys_of(config)
    return keys is not None and keys.is_taken(config, route)


def may_move(config: Config, route: Route) -> bool:
    """Whether a key can be renamed to a setting: it is not given, and every setting is in sight."""
    keys = keys_of(config)
    return keys is not None and keys.is_complete(config) and not keys.is_taken(config, route)
