"""Renames: the changes that give a setting another name, and whether that name is free."""

from __future__ import annotations

from cfglint_train.documents.document import MISSING, Change, Delete, Rename, Route, Set
from cfglint_train.foundation.typed import Any
from cfglint_train.frameworks.framework import get_keys
from cfglint_train.frameworks.lens import Config


def move_key(config: Config, old: Route, new: Route, value: Any = MISSING) -> tuple[Change, ...]:
    """Return the changes that move a key's value to another name, in place if both are in one section.

    Routes are relative to the config's root. `value` is the new value; without it, the old one stays.
    """
    old_route, old_value = (*config.root, *old), config.document.get_value((*config.root, *old))
    new_value = old_value if value is MISSING else value
    if old[:-1] != new[:-1]:
        return Delete(old_route), Set((*config.root, *new), new_value)
    rename = Rename(old_route, str(new[-1]))
    return (
        (rename,)
        if new_value == old_value and type(new_value) is type(old_value)
        else (Set(old_route, new_value), rename)
    )


def is_taken(config: Config, route: Route) -> bool:
    """Return whether a setting is given already, or cannot be written in its section."""
    keys = get_keys(config)
    return keys is not None and keys.is_occupied(config, route)


def can_move(config: Config, route: Route) -> bool:
    """Return whether a key can be renamed to a setting: it is not set, and no setting is unseen."""
    keys = get_keys(config)
    return keys is not None and keys.is_complete(config) and not keys.is_occupied(config, route)
