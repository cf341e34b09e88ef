"""What a setting is at a release, and what that depends on beside the release."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final

Route = tuple[str | int, ...]

ITEM: Final = "*"
"""Any index of a list, in a route."""

PRESENT: Final = "present"
# The better status wins where several definitions know a name.
RANKS: Final = {PRESENT: 0, "renamed": 1, "ignored": 2, "gated": 3, "not yet": 4, "removed": 5}


class Context(Frozen):
    """What the existence of a setting depends on beside the framework's release."""

    entry: str | None = None
    """The entry point or command; None is the framework's usual one."""
    plugins: tuple[str, ...] | None = None
    """The plugins that the configuration loads, as it names them; None where that is unknown."""
    settings: Mapping[str, Any] | None = None
    """What the configuration states at its top level; None where that is unknown."""
    releases: Mapping[str, str] = {}
    """Releases of the other packages that the vocabulary rests on (`{"transformers": "4.57.1"}`)."""


UNKNOWN: Final = Context()
"""Nothing beside the release is known."""


class ValueCase(Frozen):
    """What one old value of a renamed setting becomes."""

    old_value: Any
    new_values: Mapping[str, Any]
    """Settings (dotted routes from the root, or flags) and their values; empty where the setting just goes."""


class Status(Frozen):
    """What a setting is at one release."""

    kind: str
    """present, not yet, removed, renamed, gated, ignored."""
    since: str | None = None
    """The release from which this holds: for present and not yet, the one that brings the setting."""
    new_names: tuple[str, ...] = ()
    """For renamed: what takes its place at this release, as dotted routes from the root (flags: as such)."""
    effect: str | None = None
    """What the framework does with it: dropped (silently), error, warning (and no more), mapped (its value goes
    to the new name), nothing (it is accepted and never read)."""
    plugins: tuple[str, ...] = ()
    """For gated: any of these brings the setting."""
    needs: Mapping[str, Any] = {}
    """For gated: settings and the values that they must have; true is any value but nothing, false and zero."""
    cases: tuple[ValueCase, ...] = ()
    """For renamed: what each old value becomes. Where there are none, the new names take the old value."""
    required_values: Mapping[str, Any] = {}
    """For renamed: settings that must be given beside the new names."""
    addends: tuple[str, ...] = ()
    """For renamed: the new value is the sum of these settings."""
    reason: str | None = None
    """A short reason, where a patch states one."""


def split_route(dotted: str) -> Route:
    """A dotted route as its parts; numbers are indices of lists. A flag (`--actor.max_norm`) is one part."""
    if dotted.startswith("-"):
        return (dotted,)
    return tuple(int(part) if part.isdigit() else part for part in dotted.split("."))


def is_loaded(loaded: tuple[str, ...], plugins: tuple[str, ...]) -> bool:
    """Whether one of some plugins is among those that a configuration loads.

    A plugin may be listed by any module that offers it, and without the prefix `axolotl.integrations.` that the loader
    adds; the class name and the integration's folder determine it.
    """
    identities = {_identify_plugin(name) for name in loaded}
    return any(_identify_plugin(name) in identities for name in plugins)


def _identify_plugin(name: str) -> tuple[str, str]:
    parts = name.removeprefix("axolotl.integrations.").split(".")
    return parts[0], parts[-1]
