"""Whether the release of a run has the keys that a fix would write."""

from __future__ import annotations

from cfglint_train.documents.document import Change, Route, Set
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import Config, spelled

_LACKING: Final = ("not yet", "removed", "renamed")
"""Kinds of status of a key that a release does not have; a renamed one is still read where its effect is `mapped`."""


def refusal(config: Config, change: Change) -> str:
    """Why the release that counts does not take what a change states; empty where it does, or where that is unknown."""
    if not isinstance(change, Set) or config.framework in config.releases.older:
        return ""
    route = change.route[len(config.root) :]
    if _is_of_another_call(config, route):
        return ""
    keys = frameworks.keys_of(config)
    why = "" if keys is None else keys.untaken(config, route)
    if why or not _lacks(config, route):
        return why
    return f"{frameworks.load(config.framework).listed.title} {config.release} has no `{spelled(route)}`"


def _is_of_another_call(config: Config, route: Route) -> bool:
    """Whether another call of a script takes a setting than the one whose arguments the vocabulary has."""
    if config.document.syntax != "python":
        return False
    from cfglint_train.documents.python.tree import Record

    node = config.node()
    if not isinstance(node, Record):
        return False
    part = node.parts.get(str(route[0]))
    return part is not None and part.record is not None and part.record.call is not node.call


def _lacks(config: Config, route: Route) -> bool:
    """Whether the release does not have a key, or a section around it; false where that is unknown."""
    keys = frameworks.keys_of(config)
    if keys is None or not keys.checked:
        return False
    known, context, release = keys.vocabulary_of(config), keys.context(config), config.release
    for depth in range(len(route), 0, -1):
        fact = known.fact(route[:depth], release, context)
        if fact is not None:
            status = fact.status()
            return not fact.open and status.kind in _LACKING and status.effect != "mapped"
    # A script's settings are of several calls; the vocabulary has those of one.
    return config.document.syntax != "python" and known.effect((), release, context) != "kept"
