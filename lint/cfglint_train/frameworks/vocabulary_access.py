"""Keys of a framework by release: which exist, what they indicate, and what happens to a missing one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from json import load as parse

from cfglint_schemas.status import Context
from cfglint_schemas.vocabulary import Vocabulary, load
from cfglint_train.documents.document import MISSING, Change, Document, Route
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Literal
from cfglint_train.frameworks.evidence import ForkTrace
from cfglint_train.frameworks.registry import FrameworkManifest
from cfglint_train.plan.origin import Place

if TYPE_CHECKING:
    from cfglint_train.frameworks.key_usage import KeyUse, ReleaseHint
    from cfglint_train.frameworks.lens import Config
    from cfglint_train.plan.certainty import Ground


class KeyRewrite(Frozen):
    """Changes of keys that need the user's consent, with a description of their effect."""

    applicability: Literal["safe", "unsafe", "display"]
    message: str
    changes: tuple[Change, ...]


class OutdatedConfig(Frozen):
    """A whole configuration that the release it is checked against does not accept."""

    message: str
    place: Place
    severity: Literal["error", "warning", "info"]
    help: str | None = None
    grounds: tuple[Ground, ...] = ()
    """Facts that the report depends on."""


class Words(Frozen):
    """Names that people write by mistake, with the settings that they mean: a framework's `words.json`."""

    same: Mapping[str, str] = {}
    """A name (dotted if nested) of another framework -> the setting with the same meaning and values."""
    advice: Mapping[str, str] = {}
    """A name -> advice, if no setting accepts the same value."""
    gone: Mapping[str, str] = {}
    """A name that a release removed -> its replacement."""
    earlier: Mapping[str, str] = {}
    """A name (dotted if nested) that only releases before the oldest known one have -> the last of these, by the tags
    of the source. Names that upstream's later examples still set are left out.
    """
    formerly: tuple[str, ...] | None = None
    """Further names that those releases read or show, by the tags of the source; None if unknown."""
    dated: Mapping[str, str] = {}
    """A name that later releases also accept, but that upstream's examples lost before the oldest known one -> the last
    release whose examples have it.
    """
    former_values: Mapping[str, tuple[str, ...]] = {}
    """A setting -> the values that only releases before the oldest known one accepted."""
    forks: Mapping[str, str] = {}
    """A name that no release has -> the distribution of the fork that has it."""
    idle: Mapping[str, tuple[str, ...]] = {}
    """A section -> keys that people copy into it from another one, and that have no effect there."""
    why: str = ""
    """Reason why the idle keys have no effect."""


class VocabularyAccess:
    """Queries of a configuration to the vocabulary of its framework."""

    is_checked = True
    """True if its keys are checked against the vocabulary; False if the framework's files are programs."""
    is_library = False
    """True if users' own scripts read its files and call it, so that a program of another name is no fork."""
    migrates_idle_files = False
    """True if files that train nothing (servers, converters) have the same keys and are migrated as well."""
    rewrites: Mapping[Route, Any] = {}
    """Removed settings that no rename replaces: route -> function of the configuration that returns a `KeyRewrite` or
    None.
    """

    def __init__(self, manifest: FrameworkManifest) -> None:
        """Use the vocabulary that the manifest names."""
        self.manifest = manifest
        self.name = manifest.vocabulary or manifest.name

    @property
    def vocabulary(self) -> Vocabulary:
        """Every key by release."""
        return load(self.name)

    def get_vocabulary(self, config: Config) -> Vocabulary:
        """Return the vocabulary that applies to a configuration: that of a copy of the framework, or upstream's."""
        return config.evidence.vocabulary or self.vocabulary

    @cached_property
    def words(self) -> Words:
        """Contents of `words.json`; empty without that file."""
        path = os.path.join(self.manifest.folder, "words.json")
        if not os.path.exists(path):
            return Words()
        with open(path, encoding="utf-8") as file:
            return Words(**parse(file))

    def find_entry(self, document: Document, root: Route) -> str | None:
        """Return the entry point of the vocabulary that a configuration is for, or None for the usual one."""
        return self.manifest.default_entry

    def build_context(self, config: Config) -> Context:
        """Return the facts besides the release that determine the keys, as far as the configuration shows them."""
        return Context(entry=self.find_entry(config.document, config.root))

    def find_started_entry(self, config: Config) -> str | None:
        """Return the entry point at which a copy of the framework would be started, or None if it has none."""
        return self.build_context(config).entry or next(iter(self.vocabulary.entries))

    def find_traces(self, config: Config) -> Iterator[tuple[str, ForkTrace]]:
        """Yield the evidence of a fork in the configuration itself, each with its kind."""
        node, forks = config.document.find_node(config.root), self.words.forks
        entries = node.index if isinstance(node, MappingNode) else {}
        for key in forks:
            if key in entries:
                yield "key", ForkTrace(forks[key], key, config.format_location(key), "config", frozenset((key,)))

    def get_release(self, config: Config) -> str:
        """Return the release that applies if none is stated."""
        return config.release

    def find_entry_assumption(self, config: Config, route: Route) -> Ground | None:
        """Return the assumption behind the choice of the entry point, or None if nothing is assumed.

        It concerns settings that another entry point has.
        """
        return None

    def infer_release(
        self, document: Document, root: Route, release: str, package: str | None = None
    ) -> ReleaseHint | None:
        """Return the releases that the keys are written for, or None if `release` refuses none of the keys.

        `package`: another package that the vocabulary depends on; if set, all releases are that package's.
        """
        from cfglint_train.frameworks.key_usage import infer_release

        context = Context(entry=self.find_entry(document, root))
        return infer_release(self.vocabulary, context, self.is_fixed_place, document, root, release, package)

    def find_used_keys(self, document: Document, root: Route, package: str | None = None) -> list[KeyUse]:
        """Return the keys that not all releases accept, each with the releases that do.

        `package`: as in `infer_release`.
        """
        from cfglint_train.frameworks.key_usage import find_used_keys

        context = Context(entry=self.find_entry(document, root))
        return find_used_keys(self.vocabulary, context, self.is_fixed_place, document, root, package)

    def is_fixed_place(self, route: Route) -> bool:
        """Return whether a place has the same settings in every file."""
        return True

    def has_earlier_keys(self, document: Document, root: Route) -> bool:
        """Return whether a configuration sets keys that only releases before the oldest known one accepted."""
        return self._has_value(document, root, self.words.earlier)

    def is_outdated(self, document: Document, root: Route) -> bool:
        """Return whether every known release refuses a configuration for something that an earlier one accepted."""
        return False

    def can_be_former(self, route: Route) -> bool:
        """Return whether a release before the oldest known one may have a setting."""
        former_names = self.words.formerly
        return former_names is None or len(route) > 1 or route[0] in former_names or route[0] in self.words.earlier

    def has_dated_keys(self, document: Document, root: Route) -> bool:
        """Return whether it sets keys that only examples of releases before the oldest known one had."""
        return self._has_value(document, root, self.words.dated)

    def _has_value(self, document: Document, root: Route, names: Iterable[str]) -> bool:
        node = document.find_node(root)
        if not isinstance(node, MappingNode):
            return False
        routes = [tuple(name.split(".")) for name in names if name.partition(".")[0] in node.index]
        return any(document.get_value((*root, *route)) not in (None, MISSING) for route in routes)

    def report_outdated(self, config: Config) -> OutdatedConfig | None:
        """Return a report if the whole configuration is for other releases than the one it is checked against."""
        return None

    def determine_effect(self, effect: str, route: Route, value: Any, config: Config, release: str) -> str:
        """Return the effect of a key that the release lacks, from its value and the config's launch.

        `effect` is the vocabulary's.
        """
        return effect

    def load_plugin(self, config: Config, route: Route, plugins: tuple[str, ...]) -> KeyRewrite | None:
        """Return the change that loads one of the plugins because a key needs it."""
        return None
