"""Renames: the changes that rename a setting, and checks that the new name is free."""

from __future__ import annotations

from cfglint_train.documents.document import MISSING, Change, Delete, Rename, Route, Set
from cfglint_train.foundation.typed import Any
from cfglint_train.frameworks.framework import get_keys
from cfglint_train.frameworks.key_availability import is_missing
from cfglint_train.frameworks.lens import Config


def move_key(config: Config, old: Route, new: Route, value: Any = MISSING) -> tuple[Change, ...]:
    """Return the changes that rename a key, in place if both names are in the same section.

    Routes are relative to the config's root. `value` replaces the old value; by default, the value stays the same.
    """
    old_route, old_value = (*config.root, *old), config.document.get_value((*config.root, *old))
    new_value = old_value if value is MISSING else value
    if isinstance(old_value, dict) and new_value == old_value and config.document.syntax == "shell":
        # Each key of the section is a word of its own.
        return tuple(change for name in old_value for change in move_key(config, (*old, name), (*new, name)))
    if old[:-1] != new[:-1]:
        return Delete((*config.root, *_find_emptied(config, old))), Set((*config.root, *new), new_value, (), old_route)
    rename = Rename(old_route, str(new[-1]))
    return (
        (rename,)
        if new_value == old_value and type(new_value) is type(old_value)
        else (Set(old_route, new_value), rename)
    )


def _find_emptied(config: Config, route: Route) -> Route:
    """Return a key, or the outermost section around it that has no other key and that the release lacks."""
    parent = route[:-1]
    section = config.get_value(*parent) if parent else None
    if not isinstance(section, dict) or len(section) != 1 or not is_missing(config, parent):
        return route
    return _find_emptied(config, parent)


def is_taken(config: Config, route: Route) -> bool:
    """Return whether a setting is already given, or cannot be written because of its section."""
    keys = get_keys(config)
    return keys is not None and keys.is_occupied(config, route)


def can_move(config: Config, route: Route) -> bool:
    """Return whether a key can be renamed to `route`: the name is free, and all settings of the config are visible."""
    keys = get_keys(config)
    return keys is not None and keys.is_complete(config) and not keys.is_occupied(config, route)
