"""Statements about a run outside its config: flags, pragmas, settings, requirement files and the launch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from cfglint_train.documents.document import Document, Route
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.roots import Roots
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.evidence import LaunchedKey
from cfglint_train.frameworks.framework import Framework
from cfglint_train.frameworks.lens import Override
from cfglint_train.plan.origin import FieldValue, Origin, Place
from cfglint_train.releases.requirements import Requirements
from cfglint_train.releases.statements import ReleaseStatements
from cfglint_train.repository.sources import Sources
from cfglint_train.settings import cluster_facts, pragmas
from cfglint_train.settings.settings import Settings

SET_FLAG: Final = "--set"
"""Note of the origin of a setting that the command line states."""


class CommandLine(Frozen):
    """Statements on the command line about runs."""

    facts: Mapping[str, str] = {}
    overrides: Mapping[Route, Any] = {}
    """Settings that the launch passes, by route."""
    settings: tuple[str, ...] = ()
    """Settings as `KEY=VALUE` words, which each framework parses like its launcher; they override `overrides`."""
    model_config: Mapping[str, Any] | None = None
    """Contents of a `config.json` that describes the model of every run."""
    model_folders: tuple[str, ...] = ()
    """Folders outside the repository from which models may be read."""
    online: bool = False
    """True if unknown models may be looked up on the Hub."""
    launch: str | None = None
    """Path of the script that is about to run, if it is known; only the files that it starts belong to its runs."""
    environment: Mapping[str, str] | None = None
    """Variables that the script inherits; None if they are unknown."""
    cache_dir: str | None = None
    """Cache folder; an empty string disables the cache, None uses the environment and settings."""


class Statements:
    """Statements of flags, settings and requirement files about documents."""

    def __init__(self, settings_for: Callable[[str], Settings], command_line: CommandLine, roots: Roots) -> None:
        """Prepare to collect statements; `settings_for` returns the settings of a path."""
        self.settings_for = settings_for
        self.command_line = command_line
        self._requirements = Requirements(roots)

    def parse_overrides(self, framework: Framework) -> Mapping[Route, Override]:
        """Return the settings of `--set` as the framework parses them. Raise `FactError` if it cannot parse them."""
        settings = self.command_line.overrides
        origin = Origin("user", note=SET_FLAG)
        if self.command_line.settings:
            try:
                settings = {**settings, **framework.launch_interface.parse_settings(self.command_line.settings)}
            except ValueError as error:
                raise cluster_facts.FactError(str(error), origin) from None
        return {route: Override(value, origin._replace(key=str(route[-1]))) for route, value in settings.items()}

    def collect_release_statements(
        self,
        document: Document,
        sources: Sources,
        scripts: Iterable[Document] = (),
        launched_keys: tuple[LaunchedKey, ...] = (),
    ) -> ReleaseStatements:
        """Return the statements about releases for a document: from flags, pragmas, settings and requirement files.

        `scripts` start the document: their pragmas count, except for a package about which they differ. Raise
        `FactError` if a fact is invalid.
        """
        facts = {
            name: fact
            for name, fact in self.collect_facts(document, releases=_read_agreed_releases(scripts)).items()
            if name not in cluster_facts.HARDWARE_FACTS
        }
        pins = self._requirements.collect_pins(document.path)
        return ReleaseStatements(facts, pins, lambda path: sources.format_path(path, document.path), launched_keys)

    def collect_facts(
        self,
        document: Document,
        other_documents: Iterable[Document] = (),
        launch: Mapping[str, FieldValue] | None = None,
        releases: Mapping[str, FieldValue] | None = None,
    ) -> Mapping[str, FieldValue]:
        """Return the facts about cluster and releases for a document; the strongest source wins.

        The sources, from weakest to strongest, are its launch, the settings, `releases`, pragmas in the other files of
        the run, its own pragmas, and flags. Raise `FactError` if a fact is invalid.
        """
        settings = self.settings_for(document.path)
        origin = Origin("user", note=os.path.basename(settings.source or "settings"))
        layers = [
            launch or {},
            {name: FieldValue(text, origin) for name, text in settings.collect_facts(document.path).items()},
            releases or {},
            *(_read_pragma_facts(other) for other in other_documents),
            _read_pragma_facts(document),
            {
                name: FieldValue(text, Origin("user", note="command line"))
                for name, text in self.command_line.facts.items()
            },
        ]
        facts: dict[str, FieldValue] = {}
        for layer in layers:
            facts = cluster_facts.merge_facts(facts, layer)
        return facts


def _read_agreed_releases(scripts: Iterable[Document]) -> Mapping[str, FieldValue]:
    """Return the releases that the pragmas of launch scripts state and on which the scripts agree."""
    releases: dict[str, FieldValue] = {}
    disputed = set[str]()
    for script in scripts:
        for name, fact in _read_pragma_facts(script).items():
            if releases.setdefault(name, fact).value != fact.value:
                disputed.add(name)
    return {
        name: fact
        for name, fact in releases.items()
        if name not in disputed and name not in cluster_facts.HARDWARE_FACTS
    }


def _read_pragma_facts(document: Document) -> Mapping[str, FieldValue]:
    """Return the facts in a document's pragmas by canonical name. Raise `FactError` if one is invalid."""
    facts: dict[str, FieldValue] = {}
    for fact in pragmas.read_pragmas(document).facts:
        name = cluster_facts.find_canonical_name(fact.name)
        if name is not None:
            facts[name] = FieldValue(fact.value, Origin("user", Place(document, fact.span), "pragma"))
            cluster_facts.check(name, facts[name])
    return facts
