"""Survey of a config: look up every key in the framework's vocabulary, for all KEY rules.

Each config is walked once, and the result is cached in it.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_schemas.fact import KeyFact
from cfglint_schemas.status import ITEM, Context, Status
from cfglint_schemas.vocabulary import Vocabulary
from cfglint_train.documents.document import Entry, Node, Route, Scalar, Sequence, follow
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.keys import Keys
from cfglint_train.frameworks.lens import Config, format_route
from cfglint_train.plan.origin import Place

REFUSED: Final = "error"
"""Effect of a key that stops its framework."""


class TargetRelease(Frozen):
    """The release that a config is checked against, with the framework's title."""

    title: str
    """Display name of the framework."""
    release: str

    @property
    def name(self) -> str:
        """Title and release, as in `axolotl 0.21.0`."""
        return f"{self.title} {self.release}"


class KeyOccurrence(Frozen):
    """A key of a config, with its fact at the target release."""

    config: Config
    route: Route
    """Route from the config's root, as spelled in the file."""
    entry: Entry
    fact: KeyFact | None
    """Fact about the key, or None if no release has the name at that place."""
    status: Status | None
    """Status at the target release, or None if no release has the key."""
    parent: Route
    """Route of the enclosing mapping, with `*` for list indices."""

    @property
    def name(self) -> str:
        """Name of the key in messages."""
        return format_route(self.route)

    @property
    def place(self) -> Place:
        """Place of a finding about the key: the key itself."""
        return Place(*self.config.document.locate_key(self.entry))

    @property
    def value(self) -> Any:
        """Plain value in the file, regardless of overrides."""
        return self.config.document.build_value(self.entry.value)

    @property
    def is_overridden(self) -> bool:
        """True if the launch overrides the file's value."""
        return bool(self.config.overrides) and self.config.find_override(self.route) is not None


def get_checked_keys(config: Config) -> Keys | None:
    """Return the keys of a config's framework, or None if they are not checked.

    They are also not checked if the release is older than the vocabulary; CHK003 reports that.
    """
    keys = frameworks.get_keys(config)
    return keys if keys is not None and keys.is_checked and not is_older_than_vocabulary(config) else None


def is_older_than_vocabulary(config: Config) -> bool:
    """Return whether the release is older than the vocabulary, and no copy in the repository replaces the framework."""
    return config.evidence.vocabulary is None and config.framework in config.releases.outdated_packages


def get_vocabulary(config: Config) -> Vocabulary | None:
    """Return the vocabulary that a config is checked against, or None if its keys are not checked."""
    keys = get_checked_keys(config)
    return None if keys is None else keys.get_vocabulary(config)


def get_target_release(config: Config) -> TargetRelease:
    """Return the effective release for a config: from the copy in use, as stated, or else the newest candidate."""
    return config.compute_once(_find_target_release)


def _find_target_release(config: Config) -> TargetRelease:
    keys = _require_keys(config)
    title, package = keys.manifest.title, keys.manifest.package
    if config.evidence.vocabulary is not None:
        return TargetRelease(f"{title} in {config.evidence.vocabulary.folder}/", keys.get_release(config))
    if config.releases.is_stated(package):
        return TargetRelease(title, config.releases.by_package[package].version)
    return TargetRelease(title, keys.get_release(config))


def _require_keys(config: Config) -> Keys:
    keys = frameworks.get_keys(config)
    assert keys is not None
    return keys


def get_context(config: Config) -> Context:
    """Return the conditions other than the release that decide which keys exist."""
    return config.compute_once(_build_context)


def _build_context(config: Config) -> Context:
    return _require_keys(config).build_context(config)


def list_key_occurrences(config: Config) -> tuple[KeyOccurrence, ...]:
    """Return the keys of a config in text order, known or unknown, without the keys of free-form mappings.

    Keys below a key that is unknown or not present at the target release are not included.
    """
    return config.compute_once(_walk_config)


def is_parser_default(config: Config, route: Route) -> bool:
    """Return whether a setting only has the default of an option that the script declares itself."""
    node = config.document.find_node((*config.root, *route))
    steps = getattr(node, "how", ())
    return any(step.kind == "option" for step in steps) and config.find_override(route) is None


def is_unused_default(config: Config, route: Route) -> bool:
    """Return whether a setting only has the default of an option, and no launch of the script is known to use it."""
    return not config.launches and is_parser_default(config, route)


def list_added_names(config: Config) -> tuple[str, ...]:
    """Return the last names of the config's keys that exist in the copy in use but not in upstream's newest source."""
    return config.compute_once(_list_added_names)


def find_added_setting(config: Config) -> str:
    """Return a top-level setting that the copy of the framework in use adds to upstream, or an empty string.

    An added setting proves that the copy's code differs from upstream's.
    """
    return config.compute_once(_find_added_setting)


def _find_added_setting(config: Config) -> str:
    keys = get_checked_keys(config)
    if keys is None or config.evidence.vocabulary is None:
        return ""
    key_context = get_context(config)
    names = config.evidence.vocabulary.list_names((), get_target_release(config).release, key_context)
    upstream = (keys.vocabulary.find_fact((name,), keys.vocabulary.newest, key_context) for name in names)
    return next((name for name, fact in zip(names, upstream, strict=True) if fact is None), "")


def _list_added_names(config: Config) -> tuple[str, ...]:
    keys = get_checked_keys(config)
    if keys is None or config.evidence.vocabulary is None:
        return ()
    release, key_context = keys.vocabulary.releases[-1], get_context(config)
    return tuple(
        str(occurrence.route[-1])
        for occurrence in list_key_occurrences(config)
        if occurrence.fact is not None and keys.vocabulary.find_fact(occurrence.route, release, key_context) is None
    )


def _walk_config(config: Config) -> tuple[KeyOccurrence, ...]:
    keys = get_checked_keys(config)
    if keys is None:
        return ()
    flags = keys.parse_flags(config)
    if flags is not None:
        return tuple(_list_flags(config, keys.get_vocabulary(config), flags))
    node = config.get_node()
    if not isinstance(node, MappingNode):
        return ()
    key_walk = _KeyWalk(config, keys.get_vocabulary(config))
    key_walk.visit_mapping(node, (), ())
    return tuple(key_walk.occurrences)


class _KeyWalk:
    """A walk through a config; `general` is the route of a place with `*` instead of list indices."""

    __slots__ = ("config", "context", "occurrences", "release", "vocabulary")

    def __init__(self, config: Config, framework_vocabulary: Vocabulary) -> None:
        """Prepare a walk through a config with its vocabulary."""
        self.config = config
        self.vocabulary = framework_vocabulary
        self.release = get_target_release(config).release
        self.context = get_context(config)
        self.occurrences: list[KeyOccurrence] = []

    def visit_mapping(self, mapping: MappingNode, route: Route, general: Route) -> None:
        """Record the keys of a mapping and the keys below them."""
        facts = self.vocabulary.find_facts(general, mapping.index, self.release, self.context)
        is_open: bool | None = None  # computed only if a key needs it
        for (name, entry), fact in zip(mapping.index.items(), facts, strict=True):
            key_route = (*route, name)
            if fact is None:
                if is_open is None:
                    is_open = self.vocabulary.is_open(general, self.release, self.context)
                if name != "<<" and not is_open:
                    self.occurrences.append(KeyOccurrence(self.config, key_route, entry, None, None, general))
                continue
            if fact.is_open:
                continue
            status = fact.resolve_status()
            if status.kind == "renamed" and route != general:
                fact = (
                    self.vocabulary.find_fact(key_route, self.release, self.context) or fact
                )  # looked up again, so that the new names use list indices instead of `*`
                status = fact.resolve_status()
            if status.kind == "removed" and self._has_successors(entry.value, (*general, name)):
                self._visit_value(entry.value, key_route, (*general, name))
                continue  # its keys moved to another section, each to its own name
            self.occurrences.append(KeyOccurrence(self.config, key_route, entry, fact, status, general))
            if status.kind == "present" and not isinstance(entry.value, Scalar):
                self._visit_value(entry.value, key_route, (*general, name))

    def _has_successors(self, value: Node, general: Route) -> bool:
        """Return whether all keys of a section are known under new names."""
        node = follow(value)
        if not isinstance(node, MappingNode) or not node.index:
            return False
        facts = self.vocabulary.find_facts(general, node.index, self.release, self.context)
        return all(fact is not None and fact.resolve_status().new_names for fact in facts)

    def _visit_value(self, value: Node, route: Route, general: Route) -> None:
        node = follow(value)
        if isinstance(node, MappingNode):
            if self.vocabulary.list_definitions(general, self.release, self.context):
                self.visit_mapping(node, route, general)
        elif isinstance(node, Sequence):
            for index, item in enumerate(node.items):
                if not isinstance(item, Scalar):
                    self._visit_value(item, (*route, index), (*general, ITEM))


def _list_flags(
    config: Config, framework_vocabulary: Vocabulary, flags: Iterator[tuple[Entry, str | None]]
) -> Iterator[KeyOccurrence]:
    """Yield the flags of a command line as key occurrences."""
    release, key_context = get_target_release(config).release, get_context(config)
    for entry, flag in flags:
        fact = None if flag is None else framework_vocabulary.find_fact((flag,), release, key_context)
        yield KeyOccurrence(
            config, (entry.name or "",), entry, fact, None if fact is None else fact.resolve_status(), ()
        )
