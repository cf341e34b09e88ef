"""The keys of a framework by release: which there are, what they show and what becomes of one that is missing."""

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
    """Changes of keys that need the user's consent, and what they do."""

    applicability: Literal["safe", "unsafe", "display"]
    message: str
    changes: tuple[Change, ...]


class OutdatedConfig(Frozen):
    """A whole configuration that the release it is checked against does not take."""

    message: str
    place: Place
    severity: Literal["error", "warning", "info"]
    help: str | None = None
    grounds: tuple[Ground, ...] = ()
    """The facts that it rests on."""


class Words(Frozen):
    """Names that people write by mistake, and the settings that they mean: a framework's `words.json`."""

    same: Mapping[str, str] = {}
    """A name (dotted where nested) that another framework has -> the setting with the same meaning and values."""
    advice: Mapping[str, str] = {}
    """A name -> what to do instead, where no setting takes the same value."""
    gone: Mapping[str, str] = {}
    """A name that a release removed -> what took its place."""
    earlier: Mapping[str, str] = {}
    """A name (dotted where nested) that only releases before the oldest known one have -> the last of these, by the
    tags of the source; none to which upstream's later examples still give a value."""
    formerly: tuple[str, ...] | None = None
    """Further names that those releases read or show, by the tags of the source; None where that is not known."""
    dated: Mapping[str, str] = {}
    """A name that later releases take as well, but that upstream's examples lost before the oldest known one -> the
    last release whose examples have it."""
    former_values: Mapping[str, tuple[str, ...]] = {}
    """A setting -> the values that only releases before the oldest known one took."""
    forks: Mapping[str, str] = {}
    """A name that no release has -> the distribution of the fork that has it."""
    idle: Mapping[str, tuple[str, ...]] = {}
    """A section -> keys that people copy into it from another one, where they can have no meaning."""
    why: str = ""
    """Why those have none."""


class VocabularyAccess:
    """The vocabulary of a framework, as a configuration asks for it."""

    is_checked = True
    """Whether its keys are checked against the vocabulary; not where the framework's files are programs."""
    is_library = False
    """Whether users' own scripts read its files and call it, so that a program of another name is no fork."""
    migrates_idle_files = False
    """Whether files that train nothing (servers, converters) have the same keys, so that they are migrated as well."""
    rewrites: Mapping[Route, Any] = {}
    """Removed settings whose successor is no other name: route -> function of the configuration, which answers with a
    `KeyRewrite` or None."""

    def __init__(self, manifest: FrameworkManifest) -> None:
        self.manifest = manifest
        self.name = manifest.vocabulary or manifest.name

    @property
    def vocabulary(self) -> Vocabulary:
        """Every key by release."""
        return load(self.name)

    def get_vocabulary(self, config: Config) -> Vocabulary:
        """Return the vocabulary that counts for a configuration: that of a copy of the framework, else upstream's."""
        return config.evidence.vocabulary or self.vocabulary

    @cached_property
    def words(self) -> Words:
        """The contents of `words.json`, empty without that file."""
        path = os.path.join(self.manifest.folder, "words.json")
        if not os.path.exists(path):
            return Words()
        with open(path, encoding="utf-8") as file:
            return Words(**parse(file))

    def find_entry(self, document: Document, root: Route) -> str | None:
        """Return the entry point of the vocabulary that a configuration is for; None: the usual one."""
        return self.manifest.default_entry

    def build_context(self, config: Config) -> Context:
        """Return what decides beside the release which keys exist, as far as the configuration shows it."""
        return Context(entry=self.find_entry(config.document, config.root))

    def find_started_entry(self, config: Config) -> str | None:
        """Return the entry point that a copy of the framework would be started at; None if none of it is."""
        return self.build_context(config).entry or next(iter(self.vocabulary.entries))

    def find_traces(self, config: Config) -> Iterator[tuple[str, ForkTrace]]:
        """Return the evidence of a fork in the configuration itself, by its kinds."""
        node, forks = config.document.find_node(config.root), self.words.forks
        entries = node.index if isinstance(node, MappingNode) else {}
        for key in forks:
            if key in entries:
                yield "key", ForkTrace(forks[key], key, config.format_location(key), "config", frozenset((key,)))

    def get_release(self, config: Config) -> str:
        """Return the release that counts where none is stated."""
        return config.release

    def find_entry_assumption(self, config: Config, route: Route) -> Ground | None:
        """Return the assumption that chooses the entry point of a configuration, or None if nothing is assumed.

        It counts for settings that another entry point has.
        """
        return None

    def infer_release(
        self, document: Document, root: Route, release: str, package: str | None = None
    ) -> ReleaseHint | None:
        """Return the releases that the keys are written for; None if `release` refuses none of them.

        `package`: another package that the vocabulary rests on; then all releases are that package's.
        """
        from cfglint_train.frameworks.key_usage import infer_release

        context = Context(entry=self.find_entry(document, root))
        return infer_release(self.vocabulary, context, self.is_fixed_place, document, root, release, package)

    def find_used_keys(self, document: Document, root: Route, package: str | None = None) -> list[KeyUse]:
        """Return the keys that not all releases take, with the releases that do. `package`: as in `told`."""
        from cfglint_train.frameworks.key_usage import find_used_keys

        context = Context(entry=self.find_entry(document, root))
        return find_used_keys(self.vocabulary, context, self.is_fixed_place, document, root, package)

    def is_fixed_place(self, route: Route) -> bool:
        """Return whether a place has the same settings in every file."""
        return True

    def has_earlier_keys(self, document: Document, root: Route) -> bool:
        """Return whether a configuration gives a value to what only releases before the oldest known one took."""
        return self._has_value(document, root, self.words.earlier)

    def is_outdated(self, document: Document, root: Route) -> bool:
        """Return whether every known release refuses a configuration for what an earlier one took."""
        return False

    def can_be_former(self, route: Route) -> bool:
        """Return whether a release before the oldest known one may have a setting."""
        former_names = self.words.formerly
        return former_names is None or len(route) > 1 or route[0] in former_names or route[0] in self.words.earlier

    def has_dated_keys(self, document: Document, root: Route) -> bool:
        """Return whether it gives a value to what only examples of releases before the oldest known one had."""
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
        """Return the effect of a key that the release does not have, given its value and how the config is started.

        `effect` is the vocabulary's.
        """
        return effect

    def load_plugin(self, config: Config, route: Route, plugins: tuple[str, ...]) -> KeyRewrite | None:
        """Return the change that loads one of some plugins, for the sake of a key."""
        return None
