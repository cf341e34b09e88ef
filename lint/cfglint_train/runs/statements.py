"""What is stated of a run outside its configuration: by flags, pragmas, settings, requirement files and its launch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from cfglint_train.documents.document import Document, Route
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.roots import Roots
from cfglint_train.foundation.typed import Any
from cfglint_train.frameworks.framework import Framework
from cfglint_train.frameworks.lens import Override
from cfglint_train.plan.origin import FieldValue, Origin, Place
from cfglint_train.releases.requirements import Requirements
from cfglint_train.releases.statements import ReleaseStatements
from cfglint_train.repository.sources import Sources
from cfglint_train.settings import cluster_facts, pragmas
from cfglint_train.settings.settings import Settings


class CommandLine(Frozen):
    """What flags say about the runs."""

    facts: Mapping[str, str] = {}
    overrides: Mapping[Route, Any] = {}
    """Settings that the launch passes, with their values."""
    settings: tuple[str, ...] = ()
    """The same as `KEY=VALUE` words, which each framework reads as its launcher does; they win."""
    model_config: Mapping[str, Any] | None = None
    """The object of a `config.json` that holds for the model of every run."""
    model_folders: tuple[str, ...] = ()
    """Folders outside the repository in which models may be looked at."""
    online: bool = False
    """The Hub may be asked for models that cfglint does not know."""
    cache_dir: str | None = None
    """The folder of the cache; empty: nothing is kept. None: environment and settings decide."""


class Statements:
    """What flags, settings and requirement files say of the documents that are asked about."""

    def __init__(self, settings_for: Callable[[str], Settings], command_line: CommandLine, roots: Roots) -> None:
        self.settings_for = settings_for
        self.command_line = command_line
        self._requirements = Requirements(roots)

    def parse_overrides(self, framework: Framework) -> Mapping[Route, Override]:
        """What `--set` says, as the framework reads it. Raises FactError where the framework cannot."""
        settings = self.command_line.overrides
        origin = Origin("user", note="--set")
        if self.command_line.settings:
            try:
                settings = {**settings, **framework.launch_interface.parse_settings(self.command_line.settings)}
            except ValueError as error:
                raise cluster_facts.FactError(str(error), origin) from None
        return {route: Override(value, origin._replace(key=str(route[-1]))) for route, value in settings.items()}

    def collect_release_statements(self, document: Document, sources: Sources) -> ReleaseStatements:
        """What flags, pragmas, settings and requirement files say of releases around a document. Raises FactError."""
        facts = {
            name: fact
            for name, fact in self.collect_facts(document).items()
            if name not in cluster_facts.HARDWARE_FACTS
        }
        pins = self._requirements.collect_pins(document.path)
        return ReleaseStatements(facts, pins, lambda path: sources.format_path(path, document.path))

    def collect_facts(
        self,
        document: Document,
        other_documents: Iterable[Document] = (),
        launch: Mapping[str, FieldValue] | None = None,
    ) -> Mapping[str, FieldValue]:
        """Facts about cluster and releases for a document, the strongest source winning. Raises FactError.

        From the weakest: what its launch says, the settings, pragmas of the other files of its run, its own, flags.
        """
        settings = self.settings_for(document.path)
        origin = Origin("user", note=os.path.basename(settings.source or "settings"))
        layers = [
            launch or {},
            {name: FieldValue(text, origin) for name, text in settings.collect_facts(document.path).items()},
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


def _read_pragma_facts(document: Document) -> Mapping[str, FieldValue]:
    """The facts in a document's pragmas, by their canonical names. Raises FactError."""
    facts: dict[str, FieldValue] = {}
    for fact in pragmas.read_pragmas(document).facts:
        name = cluster_facts.find_canonical_name(fact.name)
        if name is not None:
            facts[name] = FieldValue(fact.value, Origin("user", Place(document, fact.span), "pragma"))
            cluster_facts.check(name, facts[name])
    return facts
