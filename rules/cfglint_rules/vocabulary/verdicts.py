"""What a vocabulary says of each key of a configuration: one pass, whose verdicts the KEY rules read."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.vocabulary.effect_by_release import EffectByRelease, fate
from cfglint_rules.vocabulary.misfits import misfit
from cfglint_rules.vocabulary.survey import REFUSED, KeyOccurrence, context, keys_of, survey, target, vocabulary
from cfglint_rules.vocabulary.values import Schema, members
from cfglint_schemas.status import PRESENT, Context, Status
from cfglint_train.documents.document import Alias, Node, Sequence, follow
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final, Literal
from cfglint_train.frameworks.keys import Keys
from cfglint_train.frameworks.lens import Config
from cfglint_train.mutations.mutations import mutations_of

Kind = Literal["unknown", "gone", "gated", "unread", "misfit"]

_UNREAD: Final = {"ignored": ("nothing", "warning"), "renamed": ("nothing",)}
"""The effects of a key that is there and that nothing reads."""
_GONE: Final = frozenset(("removed", "renamed", "not yet"))
_REMARKS: Final = frozenset(("comment", "comments", "description", "note", "notes"))
"""Keys under which people write remarks in JSON."""


class Verdict(Frozen):
    """A key that is not simply taken with its value, and why. Other keys have none."""

    kind: Kind
    """unknown: no release has the key; gone: the one that counts does not have it; gated: it lacks something beside it;
    unread: nothing reads it; misfit: its value does not fit."""
    sighting: KeyOccurrence
    status: Status
    """What the key is at the release that decides."""
    schema: Schema = {}
    """What the key takes, where its value does not fit."""

    @property
    def effect(self) -> str:
        """What becomes of the key with this value: dropped, warning, error, mapped, kept."""
        config, keys = self.sighting.config, keys_of(self.sighting.config)
        assert keys is not None
        effect, release = self.status.effect or "dropped", target(config).release
        return keys.effect(effect, self.sighting.route, self.sighting.value, config, release)

    @property
    def outcome(self) -> EffectByRelease:
        """What becomes of the key at every candidate release."""
        return fate(self.sighting)


def verdicts(config: Config, kind: Kind) -> tuple[Verdict, ...]:
    """Return the verdicts of a kind, in the order of the text.

    A key that a script handles before the framework sees the file is its launcher's, and has only a value to check.
    """
    return tuple([verdict for verdict in config.once(_judge_all) if verdict.kind == kind])


def sightings(config: Config, kind: Kind) -> tuple[KeyOccurrence, ...]:
    """Return the keys with a verdict of a kind."""
    return tuple([verdict.sighting for verdict in verdicts(config, kind)])


def _judge_all(config: Config) -> tuple[Verdict, ...]:
    keys, newest = keys_of(config), _beside_newest(config)
    if keys is None:
        return ()
    return tuple([verdict for sighting in survey(config) for verdict in _judge(sighting, keys, newest)])


def _judge(sighting: KeyOccurrence, keys: Keys, newest: Context | None) -> Iterator[Verdict]:
    config, fact, status = sighting.config, sighting.fact, sighting.status
    mutations = mutations_of(config)
    if fact is None or status is None:
        effect = keys.vocabulary_of(config).effect(sighting.parent, target(config).release, context(config))
        unknown = Verdict("unknown", sighting, Status("unknown", effect=effect))
        if not mutations.is_own(sighting.route) and _is_lost(unknown):
            yield unknown
    elif status.kind == PRESENT:
        schema = misfit(sighting, keys)
        if schema is not None:
            yield Verdict("misfit", sighting, status, schema)
        later = _in_newest(sighting, newest) if newest is not None and fact.package == keys.listed.beside else None
        if later is not None and not mutations.is_own(sighting.route):
            yield Verdict("gone", sighting, later)
    elif mutations.is_own(sighting.route):
        return
    elif status.kind == "gated":
        yield Verdict("gated", sighting, status)
    elif status.effect in _UNREAD.get(status.kind, ()):
        yield Verdict("unread", sighting, status)
    elif status.kind in _GONE and status.effect != "nothing":
        gone = Verdict("gone", sighting, status)
        if sighting.value is None and gone.effect != REFUSED:
            return  # nothing was asked for
        if status.kind != "not yet" or not keys.may_be_another(fact, config, target(config).release):
            yield gone


def _is_lost(unknown: Verdict) -> bool:
    """Return whether a key is refused, or asks for something: it is no comment, not empty and not only an anchor."""
    one = unknown.sighting
    asks = not (_is_remark(one) or _holds_anchors(one) or one.value in (None, [], {}))
    return asks or unknown.effect == REFUSED


def _is_remark(sighting: KeyOccurrence) -> bool:
    """Return whether a key serves as a comment: JSON has no other way to write one."""
    key = str(sighting.route[-1])
    is_text = key in _REMARKS and isinstance(sighting.value, str) and sighting.config.document.syntax == "json"
    return is_text or key.startswith(("_", "//", "#", "x-"))


def _holds_anchors(sighting: KeyOccurrence) -> bool:
    """Return whether a key only holds what aliases elsewhere in the file repeat."""
    if b"&" not in sighting.config.document.source:
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


def package_beside(config: Config) -> str | None:
    """The package beside the framework's own whose release decides about keys, too."""
    keys = keys_of(config)
    return None if keys is None else keys.listed.beside


def _beside_newest(config: Config) -> Context | None:
    """The framework beside the newest release of that package that it allows, where no other one is stated."""
    package = package_beside(config)
    release = None if package is None else config.releases.get(package)
    if package is None or release is None or config.releases.stated(package):
        return None
    return context(config)._replace(releases={package: release})


def _in_newest(sighting: KeyOccurrence, newest: Context) -> Status | None:
    """What becomes of a key in the newest release beside the framework, where it is refused."""
    known = vocabulary(sighting.config)
    fact = None if known is None else known.fact(sighting.route, target(sighting.config).release, newest)
    status = None if fact is None else fact.status()
    return status if status is not None and status.kind in _GONE and status.effect == REFUSED else None


def may_be_forks(one: Verdict) -> bool:
    """Return whether a fork may have added the word; it changes no types."""
    doubt, value = one.sighting.config.evidence.fork, one.sighting.value
    return doubt is not None and isinstance(value, str) and bool(members(one.schema))
