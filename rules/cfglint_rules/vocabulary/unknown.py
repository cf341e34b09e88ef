"""The keys of a configuration that no release has, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.vocabulary.survey import REFUSED, Sighting, context, keys_of, target, unusual, vocabulary
from cfglint_train.documents.document import Alias, Node, Sequence, follow
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.lens import Config

_REMARKS: Final = frozenset(("comment", "comments", "description", "note", "notes"))
"""Keys under which people write remarks in JSON."""


def unknown(config: Config) -> Iterator[Sighting]:
    """The unknown keys, but for those that serve as a comment, ask for nothing or only hold anchors."""
    for sighting in unusual(config):
        if sighting.fact is not None or _is_remark(sighting) or _holds_anchors(sighting):
            continue
        if sighting.value in (None, [], {}) and outcome(sighting) != REFUSED:
            continue  # nothing was asked for, and nothing is lost
        yield sighting


def outcome(sighting: Sighting) -> str:
    """What becomes of an unknown key: dropped, warning, error, kept."""
    config, known, keys = sighting.config, vocabulary(sighting.config), keys_of(sighting.config)
    assert known is not None
    assert keys is not None
    release = target(config).release
    effect = known.effect(sighting.parent, release, context(config))
    return keys.effect(effect, sighting.route, sighting.value, config, release)


def _is_remark(sighting: Sighting) -> bool:
    """A key that serves as a comment, where the framework accepts it: JSON has no other way to write one."""
    key = str(sighting.route[-1])
    is_text = key in _REMARKS and isinstance(sighting.value, str) and sighting.config.document.syntax == "json"
    return (is_text or key.startswith(("_", "//", "#", "x-"))) and outcome(sighting) != REFUSED


def _holds_anchors(sighting: Sighting) -> bool:
    """A key that only holds what aliases elsewhere in the file repeat, where the framework accepts it."""
    source = sighting.config.document.source
    if b"&" not in source or outcome(sighting) == REFUSED:
        return False
    repeated = sighting.config.once(_repeated)
    held = set(map(id, _nodes(sighting.entry.value)))
    return any(not held.issuperset(repeated[target]) for target in held & repeated.keys())


def _repeated(config: Config) -> dict[int, list[int]]:
    """The nodes that aliases stand for, each with its aliases."""
    found: dict[int, list[int]] = {}
    for node in _nodes(config.document.root) if config.document.root is not None else ():
        if isinstance(node, Alias):
            found.setdefault(id(follow(node)), []).append(id(node))
    return found


def _nodes(node: Node) -> Iterator[Node]:
    """A node and all below it; aliases are not followed."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, MappingNode):
            for entry in node.entries:
                waiting += (entry.key, entry.value)
        elif isinstance(node, Sequence):
            waiting += node.items
