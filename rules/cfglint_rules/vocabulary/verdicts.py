"""Verdicts on keys: the result of one pass over a config, for all KEY rules."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.vocabulary.effect_by_release import EffectByRelease, find_effects
from cfglint_rules.vocabulary.misfits import find_expected_schema
from cfglint_rules.vocabulary.survey import (
    REFUSED,
    KeyOccurrence,
    get_checked_keys,
    get_context,
    get_target_release,
    get_vocabulary,
    is_unused_default,
    list_key_occurrences,
)
from cfglint_rules.vocabulary.values import Schema, list_enum_words
from cfglint_schemas.status import PRESENT, Context, Status
from cfglint_train.documents.document import Alias, Node, Sequence, follow
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final, Literal
from cfglint_train.frameworks.keys import Keys
from cfglint_train.frameworks.lens import Config
from cfglint_train.mutations.mutations import get_mutations

VerdictKind = Literal["unknown", "gone", "gated", "unread", "misfit"]

_UNREAD_EFFECTS: Final = {"ignored": ("nothing", "warning"), "renamed": ("nothing",)}
"""Status -> effects with which a key exists but is never read."""
_GONE_KINDS: Final = frozenset(("removed", "renamed", "not yet"))
_REMARK_KEYS: Final = frozenset(("comment", "comments", "description", "note", "notes"))
"""Keys that hold remarks in JSON files."""


class Verdict(Frozen):
    """A key that is rejected or ignored, or whose value is invalid, with the reason. Accepted keys have no verdict."""

    kind: VerdictKind
    """unknown: no release has the key; gone: the effective release lacks it; gated: it needs a plugin or another
    setting; unread: it is never read; misfit: its value is invalid.
    """
    occurrence: KeyOccurrence
    status: Status
    """Status of the key at the release that decides about it."""
    schema: Schema = {}
    """Schema of the accepted values, if the kind is misfit."""

    @property
    def effect(self) -> str:
        """Effect of the key with this value at the effective release: dropped, warning, error, mapped, kept."""
        config, keys = self.occurrence.config, get_checked_keys(self.occurrence.config)
        assert keys is not None
        effect, release = self.status.effect or "dropped", get_target_release(config).release
        return keys.determine_effect(effect, self.occurrence.route, self.occurrence.value, config, release)

    @property
    def outcome(self) -> EffectByRelease:
        """Effects of the key for every candidate release."""
        return find_effects(self.occurrence)


def list_verdicts(config: Config, kind: VerdictKind) -> tuple[Verdict, ...]:
    """Return the verdicts of a kind, in text order.

    A key that a script handles before the framework reads the file belongs to the script, so only its value is checked.
    """
    return tuple([verdict for verdict in config.compute_once(_judge_all) if verdict.kind == kind])


def list_judged_keys(config: Config, kind: VerdictKind) -> tuple[KeyOccurrence, ...]:
    """Return the keys that have a verdict of a kind, in text order."""
    return tuple([verdict.occurrence for verdict in list_verdicts(config, kind)])


def _judge_all(config: Config) -> tuple[Verdict, ...]:
    keys, newest = get_checked_keys(config), _get_newest_context(config)
    if keys is None:
        return ()
    return tuple(
        [verdict for occurrence in list_key_occurrences(config) for verdict in _judge(occurrence, keys, newest)]
    )


def _judge(occurrence: KeyOccurrence, keys: Keys, newest: Context | None) -> Iterator[Verdict]:
    config, fact, status = occurrence.config, occurrence.fact, occurrence.status
    mutations = get_mutations(config)
    if keys.is_declared(config, occurrence.route):
        return
    if fact is None or status is None:
        effect = keys.get_vocabulary(config).find_effect(
            occurrence.parent, get_target_release(config).release, get_context(config)
        )
        unknown_verdict = Verdict("unknown", occurrence, Status("unknown", effect=effect))
        if not mutations.is_custom(occurrence.route) and _is_reportable(unknown_verdict):
            yield unknown_verdict
    elif status.kind == PRESENT:
        schema = find_expected_schema(occurrence, keys)
        if schema is not None and not is_unused_default(config, occurrence.route):
            yield Verdict("misfit", occurrence, status, schema)
        newest_status = (
            _find_refusal_in_newest(occurrence, newest)
            if newest is not None and fact.package == keys.manifest.companion_package
            else None
        )
        if newest_status is not None and not mutations.is_custom(occurrence.route):
            yield Verdict("gone", occurrence, newest_status)
    elif mutations.is_custom(occurrence.route):
        return
    elif status.kind == "gated":
        yield Verdict("gated", occurrence, status)
    elif status.effect in _UNREAD_EFFECTS.get(status.kind, ()):
        yield Verdict("unread", occurrence, status)
    elif status.kind in _GONE_KINDS and status.effect != "nothing":
        gone_verdict = Verdict("gone", occurrence, status)
        if occurrence.value is None and gone_verdict.effect != REFUSED:
            return  # an empty value requests nothing
        if status.kind != "not yet" or not keys.can_be_user_setting(fact, config, get_target_release(config).release):
            yield gone_verdict


def _is_reportable(verdict: Verdict) -> bool:
    """Return whether an unknown key stops the framework or has content (no remark, mere anchor or empty value)."""
    occurrence = verdict.occurrence
    has_content = not (_is_remark(occurrence) or _is_anchor_holder(occurrence) or occurrence.value in (None, [], {}))
    return has_content or verdict.effect == REFUSED


def _is_remark(occurrence: KeyOccurrence) -> bool:
    """Return whether a key serves as a comment, because JSON has none."""
    key = str(occurrence.route[-1])
    is_text = key in _REMARK_KEYS and isinstance(occurrence.value, str) and occurrence.config.document.syntax == "json"
    return is_text or key.startswith(("_", "//", "#", "x-"))


def _is_anchor_holder(occurrence: KeyOccurrence) -> bool:
    """Return whether a key holds an anchor that an alias elsewhere in the file refers to."""
    if b"&" not in occurrence.config.document.source:
        return False
    aliases = occurrence.config.compute_once(_map_aliases)
    node_ids = set(map(id, _walk_nodes(occurrence.entry.value)))
    return any(not node_ids.issuperset(aliases[target]) for target in node_ids & aliases.keys())


def _map_aliases(config: Config) -> dict[int, list[int]]:
    """Return a mapping from the id of each aliased node to the ids of its aliases."""
    aliases: dict[int, list[int]] = {}
    for node in _walk_nodes(config.document.root) if config.document.root is not None else ():
        if isinstance(node, Alias):
            aliases.setdefault(id(follow(node)), []).append(id(node))
    return aliases


def _walk_nodes(node: Node) -> Iterator[Node]:
    """Yield a node and all nodes below it, without following aliases."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, MappingNode):
            for entry in node.entries:
                waiting += (entry.key, entry.value)
        elif isinstance(node, Sequence):
            waiting += node.items


def get_secondary_package(config: Config) -> str | None:
    """Return the other package whose release also decides which keys exist, or None."""
    keys = get_checked_keys(config)
    return None if keys is None else keys.manifest.companion_package


def _get_newest_context(config: Config) -> Context | None:
    """Return the context with the secondary package's newest allowed release; None if stated or unknown."""
    package = get_secondary_package(config)
    release = None if package is None else config.releases.get(package)
    if package is None or release is None or config.releases.is_stated(package):
        return None
    return get_context(config)._replace(releases={package: release})


def _find_refusal_in_newest(occurrence: KeyOccurrence, newest: Context) -> Status | None:
    """Return the status of a key if the newest release of the secondary package rejects it, or None."""
    framework_vocabulary = get_vocabulary(occurrence.config)
    fact = (
        None
        if framework_vocabulary is None
        else framework_vocabulary.find_fact(occurrence.route, get_target_release(occurrence.config).release, newest)
    )
    status = None if fact is None else fact.resolve_status()
    return status if status is not None and status.kind in _GONE_KINDS and status.effect == REFUSED else None


def is_possibly_from_fork(verdict: Verdict) -> bool:
    """Return whether a fork may have added the word to an enumeration; forks are assumed not to change types."""
    evidence, value = verdict.occurrence.config.evidence.fork, verdict.occurrence.value
    return evidence is not None and isinstance(value, str) and bool(list_enum_words(verdict.schema))
