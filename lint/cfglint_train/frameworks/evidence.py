"""Evidence of the repository about a configuration, passed to the lenses as a value before the framework reads it."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.documents.document import Document
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from cfglint_schemas.vendored import VendoredVocabulary

Strength = Literal["replaces", "adds", "lowers"]
"""Effect of evidence. "replaces": another framework is in use, for which upstream's vocabulary is little evidence.
"adds": upstream's is in use, with the named keys added; these are reported as info. "lowers": such keys are possible;
findings are reported one level milder.
"""
Scope = Literal["config", "launch", "folder", "repository"]

SCOPES: Final[Mapping[Scope, str]] = {
    "config": "in the configuration itself",
    "launch": "a launch of the configuration uses it",
    "folder": "in the folder of the configuration or one above it",
    "repository": "elsewhere in the repository",
}
"""Descriptions of how evidence relates to a configuration."""


class ForkTrace(Frozen):
    """One observation of a kind of evidence."""

    source: str
    """Repository, folder, program, plugin or file that is in use instead, or that changes the framework."""
    detail: str = ""
    """For a copy, the reason why it is not read; for a key, its name; for a change, the changed module or class."""
    place: str = ""
    """Location of the observation: `requirements.txt:1`."""
    scope: Scope = "launch"
    names: frozenset[str] | None = frozenset()
    """Settings that it concerns: those declared by a copy that cannot be read as a whole, or added by a change. None:
    any.
    """


class ForkEvidence(Frozen):
    """A reason why upstream's vocabulary may not apply to the framework (`forks/evidence.py` lists the kinds)."""

    kind: str
    strength: Strength
    scope: Scope
    text: str
    place: str
    names: frozenset[str] | None

    def __str__(self) -> str:
        """Return the text that reports show."""
        return self.text

    @property
    def source(self) -> str:
        """Relation of the evidence to the configuration, with file and line."""
        return f"{SCOPES[self.scope]} ({self.place})"

    def is_about(self, name: str) -> bool:
        """Return whether it concerns an unknown key."""
        return self.names is None or name.lstrip("-").rpartition(".")[2] in self.names


class ConfigEvidence(Frozen):
    """All evidence about one configuration. Rules read it and search for nothing again."""

    commands: tuple[str, ...] = ()
    """Programs that receive the configuration from scripts, each with its subcommand if it has one (`trl sft`)."""
    programs: tuple[tuple[Document | None, str], ...] = ()
    """Python programs of the repository that receive the configuration from scripts, each with the option that passes
    it. The document is None for other programs.
    """
    vocabulary: VendoredVocabulary | None = None
    """Vocabulary of the framework's copy in the repository, or None if upstream's applies."""
    fork: ForkEvidence | None = None
    """Evidence that the framework may be a fork for which upstream's vocabulary is uncertain."""
    lowering_evidence: tuple[ForkEvidence, ...] = ()
    """Evidence that keys may have been added to upstream's vocabulary."""
    copies: Mapping[str, ConfigEvidence] = {}
    """The same for the packages that it passes settings to: their copies, or their forks."""
    mutations: object = None
    """Mutations of its settings by programs before they are read (`get_mutations`); computed on demand because few
    rules use it and it is costly.
    """

    @property
    def is_upstream(self) -> bool:
        """True if nothing indicates another framework than upstream's."""
        return self.vocabulary is None and self.fork is None
