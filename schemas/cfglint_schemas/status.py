"""Statuses: the state of a key at a release, and the context that it depends on."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final

Route = tuple[str | int, ...]

ITEM: Final = "*"
"""Stands for any list index in a route."""

PRESENT: Final = "present"
# If several definitions have the same name, the status with the lower rank wins.
RANKS: Final = {PRESENT: 0, "renamed": 1, "ignored": 2, "gated": 3, "not yet": 4, "removed": 5}


class Context(Frozen):
    """Facts other than the framework's release that decide whether a key exists."""

    entry: str | None = None
    """Entry point or command, or None for the framework's default one."""
    definitions: tuple[str, ...] | None = None
    """Definitions whose keys the program accepts at the top level, or None for those of the entry point."""
    plugins: tuple[str, ...] | None = None
    """Plugins that the configuration loads, as written there, or None if unknown."""
    settings: Mapping[str, Any] | None = None
    """Top level of the configuration, or None if unknown."""
    releases: Mapping[str, str] = {}
    """Releases of the other packages that the vocabulary is based on (`{"transformers": "4.57.1"}`)."""


UNKNOWN: Final = Context()
"""A context in which only the release is known."""


class ValueCase(Frozen):
    """The replacement for one old value of a renamed key."""

    old_value: Any
    new_values: Mapping[str, Any]
    """Keys (dotted routes from the root, or flags) and their values; empty if the key is only removed."""


class Status(Frozen):
    """The state of a key at one release."""

    kind: str
    """present, not yet, removed, renamed, gated or ignored."""
    since: str | None = None
    """First release with this status. For `present` and `not yet`: the release that adds the key."""
    new_names: tuple[str, ...] = ()
    """For renamed: the replacements at this release, as dotted routes from the root (flags as written)."""
    effect: str | None = None
    """Reaction of the framework: dropped (silently), error, warning (only), mapped (the value is moved to the new name)
    or nothing (accepted and never read).
    """
    plugins: tuple[str, ...] = ()
    """For gated: plugins, any of which adds the key."""
    needs: Mapping[str, Any] = {}
    """For gated: keys and their required values; true stands for any value except null, false and zero."""
    cases: tuple[ValueCase, ...] = ()
    """For renamed: the replacement for each old value. If empty, the new names receive the old value."""
    required_values: Mapping[str, Any] = {}
    """For renamed: keys and values that must accompany the new names."""
    addends: tuple[str, ...] = ()
    """For renamed: the new value is the sum of these keys."""
    reason: str | None = None
    """Short reason, if a patch states one."""


def split_route(dotted: str) -> Route:
    """Split a dotted route into its parts; numbers are list indices, and a flag (`--actor.max_norm`) is one part."""
    if dotted.startswith("-"):
        return (dotted,)
    return tuple(int(part) if part.isdigit() else part for part in dotted.split("."))


def is_loaded(loaded: tuple[str, ...], plugins: tuple[str, ...]) -> bool:
    """Return whether a configuration loads any of the wanted plugins.

    A plugin may be listed under any module that exports it, and without the prefix `axolotl.integrations.`, which the
    loader adds. The class name and the integration's folder identify it.
    """
    identities = {_identify_plugin(name) for name in loaded}
    return any(_identify_plugin(name) in identities for name in plugins)


def _identify_plugin(name: str) -> tuple[str, str]:
    parts = name.removeprefix("axolotl.integrations.").split(".")
    return parts[0], parts[-1]
