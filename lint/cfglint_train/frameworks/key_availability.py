"""Availability, at the release of a run, of the keys that a fix would write."""

from __future__ import annotations

from cfglint_train.documents.document import Change, Route, Set
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import Config, format_route

_MISSING_KINDS: Final = ("not yet", "removed", "renamed")
"""Status kinds of keys that a release lacks; a renamed key is still read if its effect is `mapped`."""


def explain_unavailable(config: Config, change: Change) -> str:
    """Return why the target release rejects a change, or "" if it accepts the change or that is unknown."""
    if not isinstance(change, Set) or config.framework in config.releases.outdated_packages:
        return ""
    route = change.route[len(config.root) :]
    if _is_of_other_call(config, route):
        return ""
    keys = frameworks.get_keys(config)
    reason = "" if keys is None else keys.explain_refused_argument(config, route)
    if reason or not is_missing(config, route):
        return reason
    return f"{frameworks.load(config.framework).manifest.title} {config.release} has no `{format_route(route)}`"


def _is_of_other_call(config: Config, route: Route) -> bool:
    """Return whether a setting of a script belongs to a call that the vocabulary does not cover."""
    if config.document.syntax != "python":
        return False
    from cfglint_train.documents.python.tree import Record

    node = config.get_node()
    if not isinstance(node, Record):
        return False
    part = node.parts.get(str(route[0]))
    return part is not None and part.record is not None and part.record.call is not node.call


def is_missing(config: Config, route: Route) -> bool:
    """Return whether the release lacks a key, or a section that contains it; False if that is unknown."""
    keys = frameworks.get_keys(config)
    if keys is None or not keys.is_checked:
        return False
    vocabulary, context, release = keys.get_vocabulary(config), keys.build_context(config), config.release
    for depth in range(len(route), 0, -1):
        fact = vocabulary.find_fact(route[:depth], release, context)
        if fact is not None:
            status = fact.resolve_status()
            return not fact.is_open and status.kind in _MISSING_KINDS and status.effect != "mapped"
    # A script's settings belong to several calls; the vocabulary covers one of them.
    return config.document.syntax != "python" and vocabulary.find_effect((), release, context) != "kept"
