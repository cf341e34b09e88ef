"""Keys of a framework by release: existing keys, the releases that they indicate, and effects of unknown keys."""

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
    from cfglint_train.frameworks.evidence import LaunchedKey
    from cfglint_train.frameworks.key_usage import KeyUse, ReleaseHint
    from cfglint_train.frameworks.lens import Config
    from cfglint_train.plan.certainty import Ground


class KeyRewrite(Frozen):
    """A fix that changes keys, with its applicability and a description of its effect."""

    applicability: Literal["safe", "unsafe", "display"]
    message: str
    changes: tuple[Change, ...]


class OutdatedConfig(Frozen):
    """A report that the target release does not accept a configuration as a whole."""

    message: str
    place: Place
    severity: Literal["error", "warning", "info"]
    help: str | None = None
    grounds: tuple[Ground, ...] = ()
    """Facts that the report depends on."""


class Words(Frozen):
    """Names that users write by mistake, with the intended settings: the contents of a framework's `words.json`."""

    same: Mapping[str, str] = {}
    """A name (dotted if nested) of another framework -> the setting with the same meaning and values."""
    advice: Mapping[str, str] = {}
    """A name -> advice, if no setting accepts the same value."""
    gone: Mapping[str, str] = {}
    """A name that a release removed -> its replacement."""
    earlier: Mapping[str, str] = {}
    """A name (dotted if nested) that only releases before the oldest known one have -> the last release that has it.

    The tags of the source repository show the releases. Names that upstream's later examples still set are left out.
    """
    formerly: tuple[str, ...] | None = None
    """Further names that releases before the oldest known one read or show, from the source's tags; None if unknown."""
    dated: Mapping[str, str] = {}
    """A name that upstream dropped from its examples -> the last release whose examples have it.

    That release is older than the oldest known one; later releases still accept the name.
    """
    former_values: Mapping[str, tuple[str, ...]] = {}
    """A setting -> the values that only releases before the oldest known one accepted."""
    forks: Mapping[str, str] = {}
    """A name that no release has -> the distribution of the fork that has it."""
    idle: Mapping[str, tuple[str, ...]] = {}
    """A section -> keys that users copy into it from another section, although they have no effect there."""
    why: str = ""
    """Reason why the idle keys have no effect."""


class VocabularyAccess:
    """Queries about the keys of configurations, answered from the vocabulary of their framework."""

    is_checked = True
    """True if keys are checked against the vocabulary; False if the framework's files are programs."""
    is_library = False
    """True if users' own scripts read the framework's files and call it.

    A program with another name is then not evidence of a fork.
    """
    migrates_idle_files = False
    """True if files that train nothing (servers, converters) have the same keys and are migrated as well."""
    rewrites: Mapping[Route, Any] = {}
    """Route of a removed setting that needs more than a rename -> function that builds the rewrite.

    The function takes the configuration and returns a `KeyRewrite` or None.
    """

    def __init__(self, manifest: FrameworkManifest) -> None:
        """Select the vocabulary that the manifest names."""
        self.manifest = manifest
        self.name = manifest.vocabulary or manifest.name

    @property
    def vocabulary(self) -> Vocabulary:
        """The framework's vocabulary, which knows every key by release."""
        return load(self.name)

    def get_vocabulary(self, config: Config) -> Vocabulary:
        """Return the vocabulary that applies to a configuration: that of a copy of the framework, or upstream's."""
        return config.evidence.vocabulary or self.vocabulary

    @cached_property
    def words(self) -> Words:
        """The contents of the framework's `words.json`, or an empty `Words` if the file does not exist."""
        path = os.path.join(self.manifest.folder, "words.json")
        if not os.path.exists(path):
            return Words()
        with open(path, encoding="utf-8") as file:
            return Words(**parse(file))

    def find_entry(self, document: Document, root: Route) -> str | None:
        """Return the entry point in the vocabulary that a configuration is for, or None for the default one."""
        return self.manifest.default_entry

    def build_context(self, config: Config) -> Context:
        """Return the facts besides the release that determine the keys, as far as the configuration shows them."""
        return Context(entry=self.find_entry(config.document, config.root))

    def find_started_entry(self, config: Config) -> str | None:
        """Return the entry point at which a copy of the framework is started: the configuration's, or the first."""
        return self.build_context(config).entry or next(iter(self.vocabulary.entries))

    def find_traces(self, config: Config) -> Iterator[tuple[str, ForkTrace]]:
        """Yield the kind and the trace of each sign in the configuration that it was written for a fork."""
        node, forks = config.document.find_node(config.root), self.words.forks
        entries = node.index if isinstance(node, MappingNode) else {}
        for key in forks:
            if key in entries:
                yield "key", ForkTrace(forks[key], key, config.format_location(key), "config", frozenset((key,)))

    def get_release(self, config: Config) -> str:
        """Return the release that the settings belong to: the target release, unless the keys show another."""
        return config.release

    def find_entry_assumption(self, config: Config, route: Route) -> Ground | None:
        """Return the assumption behind the choice of the entry point, or None if nothing is assumed.

        It matters only for settings that exist at another entry point.
        """
        return None

    def infer_release(
        self,
        document: Document,
        root: Route,
        release: str,
        package: str | None = None,
        launched: Iterable[LaunchedKey] = (),
    ) -> ReleaseHint | None:
        """Return the releases that the keys are written for, or None if `release` accepts all keys.

        `package`: another package that the vocabulary depends on; if set, all releases are that package's.
        `launched`: keys that every launch of the configuration adds.
        """
        from cfglint_train.frameworks.key_usage import infer_release

        context = Context(entry=self.find_entry(document, root))
        return infer_release(self.vocabulary, context, self.is_fixed_place, document, root, release, package, launched)

    def find_used_keys(
        self, document: Document, root: Route, package: str | None = None, launched: Iterable[LaunchedKey] = ()
    ) -> list[KeyUse]:
        """Return the keys that not all releases accept, each with the releases that do.

        `package` and `launched`: as in `infer_release`.
        """
        from cfglint_train.frameworks.key_usage import find_used_keys

        context = Context(entry=self.find_entry(document, root))
        return find_used_keys(self.vocabulary, context, self.is_fixed_place, document, root, package, launched)

    def is_fixed_place(self, route: Route) -> bool:
        """Return whether a route means the same setting in every file."""
        return True

    def has_earlier_keys(self, document: Document, root: Route) -> bool:
        """Return whether a configuration sets keys that only releases before the oldest known one accepted."""
        return self._has_value(document, root, self.words.earlier)

    def is_outdated(self, document: Document, root: Route) -> bool:
        """Return whether every known release rejects a part of a configuration that an earlier release accepted."""
        return False

    def can_be_former(self, route: Route) -> bool:
        """Return whether a release before the oldest known one may have a setting."""
        former_names = self.words.formerly
        return former_names is None or len(route) > 1 or route[0] in former_names or route[0] in self.words.earlier

    def has_dated_keys(self, document: Document, root: Route) -> bool:
        """Return whether a configuration sets keys that only examples of releases before the oldest known one set."""
        return self._has_value(document, root, self.words.dated)

    def _has_value(self, document: Document, root: Route, names: Iterable[str]) -> bool:
        node = document.find_node(root)
        if not isinstance(node, MappingNode):
            return False
        routes = [tuple(name.split(".")) for name in names if name.partition(".")[0] in node.index]
        return any(document.get_value((*root, *route)) not in (None, MISSING) for route in routes)

    def report_outdated(self, config: Config) -> OutdatedConfig | None:
        """Return a report if the target release does not accept the configuration as a whole, or None."""
        return None

    def determine_effect(self, effect: str, route: Route, value: Any, config: Config, release: str) -> str:
        """Return the effect of a key that the release lacks, which may depend on its value and the launch.

        `effect`: the effect that the vocabulary states.
        """
        return effect

    def load_plugin(self, config: Config, route: Route, plugins: tuple[str, ...]) -> KeyRewrite | None:
        """Return the change that loads one of `plugins`, which a key needs, or None if no change can."""
        return None
