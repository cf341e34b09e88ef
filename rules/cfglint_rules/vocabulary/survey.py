"""What a framework's vocabulary says of every key of a configuration: the walk that the KEY rules share.

A configuration is walked once; what was found stays with it (`Config.once`).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_schemas.fact import Fact
from cfglint_schemas.status import ITEM, Context, Status
from cfglint_schemas.vocabulary import Vocabulary
from cfglint_train.documents.document import Entry, Node, Route, Scalar, Sequence, follow
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.keys import Keys
from cfglint_train.frameworks.lens import Config, spelled
from cfglint_train.plan.origin import Place

REFUSED: Final = "error"
"""The effect of a key that stops its framework."""


class Target(Frozen):
    """The release that a configuration is checked against."""

    title: str
    """The framework as people call it."""
    release: str

    @property
    def name(self) -> str:
        """`axolotl 0.21.0`."""
        return f"{self.title} {self.release}"


class KeyOccurrence(Frozen):
    """One key of a configuration, and what its vocabulary has on it at the target release."""

    config: Config
    route: Route
    """Below the configuration's root, as spelled."""
    entry: Entry
    fact: Fact | None
    """None where no release has the name at that place."""
    status: Status | None
    """What the key is at the target release; None where no release has it."""
    parent: Route
    """The route of the mapping that it is in, with `*` for the indices of lists."""

    @property
    def name(self) -> str:
        """The key as messages show it."""
        return spelled(self.route)

    @property
    def place(self) -> Place:
        """Where a finding about the key points: at the key itself."""
        return Place(self.config.document, self.entry.key.span)

    @property
    def value(self) -> Any:
        """The plain value in the file (not at launch)."""
        return self.config.document.plain(self.entry.value)

    @property
    def overridden(self) -> bool:
        """Whether the launch gives another value than the file."""
        return bool(self.config.overrides) and self.config.override(self.route) is not None


def keys_of(config: Config) -> Keys | None:
    """The keys of a configuration's framework; None where they are not checked, or its release is older
    than the oldest in it (CHK003 reports that).
    """
    keys = frameworks.keys_of(config)
    return keys if keys is not None and keys.checked and not is_older(config) else None


def is_older(config: Config) -> bool:
    """Whether the framework is older than its vocabulary, and no copy of it in the repository is read instead."""
    return config.evidence.vocabulary is None and config.framework in config.releases.older


def vocabulary(config: Config) -> Vocabulary | None:
    """The vocabulary of a configuration's framework, or None where it has none."""
    keys = keys_of(config)
    return None if keys is None else keys.vocabulary_of(config)


def target(config: Config) -> Target:
    """The release that counts for a configuration: the stated one, else the newest candidate."""
    return config.once(_target)


def _target(config: Config) -> Target:
    keys = _checked(config)
    title, package = keys.listed.title, keys.listed.package
    if config.evidence.vocabulary is not None:
        return Target(f"{title} in {config.evidence.vocabulary.folder}/", keys.release(config))
    if config.releases.stated(package):
        return Target(title, config.releases.known[package].version)
    return Target(title, keys.release(config))


def _checked(config: Config) -> Keys:
    keys = frameworks.keys_of(config)
    assert keys is not None
    return keys


def context(config: Config) -> Context:
    """What the existence of keys depends on beside the release, as far as the configuration shows."""
    return config.once(_context)


def _context(config: Config) -> Context:
    return _checked(config).context(config)


def survey(config: Config) -> tuple[KeyOccurrence, ...]:
    """Every key that the vocabulary covers, in the order of the text; none below free mappings."""
    return config.once(_survey)


def is_parsers(config: Config, route: Route) -> bool:
    """Whether nothing states a setting but the default of an option of the script's own parser."""
    node = config.document.node((*config.root, *route))
    steps = getattr(node, "how", ())
    return any(step.kind == "option" for step in steps) and config.override(route) is None


def added(config: Config) -> tuple[str, ...]:
    """The last names of the keys that only the copy of the framework that is in use has, and no upstream release."""
    return config.once(_added)


def own(config: Config) -> str:
    """A setting that the copy of the framework in use has, and no upstream release: upstream's code is not its code.
    Empty where it has none.
    """
    return config.once(_own)


def _own(config: Config) -> str:
    keys = keys_of(config)
    if keys is None or config.evidence.vocabulary is None:
        return ""
    here = context(config)
    names = config.evidence.vocabulary.names((), target(config).release, here)
    upstream = (keys.vocabulary.fact((name,), keys.vocabulary.newest, here) for name in names)
    return next((name for name, fact in zip(names, upstream, strict=True) if fact is None), "")


def _added(config: Config) -> tuple[str, ...]:
    keys = keys_of(config)
    if keys is None or config.evidence.vocabulary is None:
        return ()
    release, here = keys.vocabulary.releases[-1], context(config)
    return tuple(
        str(one.route[-1])
        for one in survey(config)
        if one.fact is not None and keys.vocabulary.fact(one.route, release, here) is None
    )


def _survey(config: Config) -> tuple[KeyOccurrence, ...]:
    keys = keys_of(config)
    if keys is None:
        return ()
    flags = keys.flags(config)
    if flags is not None:
        return tuple(_flags(config, keys.vocabulary_of(config), flags))
    node = config.node()
    if not isinstance(node, MappingNode):
        return ()
    walk = _Walk(config, keys.vocabulary_of(config))
    walk.below(node, (), ())
    return tuple(walk.found)


class _Walk:
    """The walk through one configuration. Each place is known by its route, and by the one with `*` for indices."""

    __slots__ = ("config", "found", "known", "release", "told")

    def __init__(self, config: Config, known: Vocabulary) -> None:
        self.config = config
        self.known = known
        self.release = target(config).release
        self.told = context(config)
        self.found: list[KeyOccurrence] = []

    def below(self, mapping: MappingNode, route: Route, general: Route) -> None:
        """Notes the keys of a mapping, and those below them."""
        facts = self.known.facts(general, mapping.index, self.release, self.told)
        is_open: bool | None = None  # few mappings have a key that asks for it
        for (name, entry), fact in zip(mapping.index.items(), facts, strict=True):
            here = (*route, name)
            if fact is None:
                if is_open is None:
                    is_open = self.known.is_open(general, self.release, self.told)
                if name != "<<" and not is_open:
                    self.found.append(KeyOccurrence(self.config, here, entry, None, None, general))
                continue
            if fact.open:
                continue
            status = fact.status()
            if status.kind == "renamed" and route != general:
                fact = self.known.fact(here, self.release, self.told) or fact  # names the new one beside it
                status = fact.status()
            self.found.append(KeyOccurrence(self.config, here, entry, fact, status, general))
            if status.kind == "present" and not isinstance(entry.value, Scalar):
                self._inside(entry.value, here, (*general, name))

    def _inside(self, value: Node, route: Route, general: Route) -> None:
        node = follow(value)
        if isinstance(node, MappingNode):
            if self.known.definitions(general, self.release, self.told):
                self.below(node, route, general)
        elif isinstance(node, Sequence):
            for index, item in enumerate(node.items):
                if not isinstance(item, Scalar):
                    self._inside(item, (*route, index), (*general, ITEM))


def _flags(config: Config, known: Vocabulary, flags: Iterator[tuple[Entry, str | None]]) -> Iterator[KeyOccurrence]:
    """The flags of one command line."""
    release, about = target(config).release, context(config)
    for entry, flag in flags:
        fact = None if flag is None else known.fact((flag,), release, about)
        yield KeyOccurrence(config, (entry.name or "",), entry, fact, None if fact is None else fact.status(), ())
