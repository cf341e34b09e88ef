"""Evidence in the repository about a config, collected before its settings are read and passed to the lenses."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.documents.document import Document, Entry, Route
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from cfglint_schemas.vendored import VendoredVocabulary

Strength = Literal["replaces", "adds", "lowers"]
"""Effect of evidence on findings about keys.

"replaces": another framework is in use, so upstream's vocabulary says little about its keys. "adds": upstream's
framework is in use with the named keys added, which are reported as info. "lowers": added keys are possible, and
findings are reported with the next lower severity.
"""
Scope = Literal["config", "launch", "folder", "repository"]

SCOPES: Final[Mapping[Scope, str]] = {
    "config": "in the configuration itself",
    "launch": "a launch of the configuration uses it",
    "folder": "in the folder of the configuration or one above it",
    "repository": "elsewhere in the repository",
}
"""Description of each scope: how the evidence relates to the config."""


class ForkTrace(Frozen):
    """An observation that indicates a fork, before it is weighed."""

    source: str
    """Repository, folder, program, plugin or file that replaces or changes the framework."""
    detail: str = ""
    """Reason why a copy cannot be read, the name of a key, or the module or class that is changed."""
    place: str = ""
    """Location of the observation, such as `requirements.txt:1`."""
    scope: Scope = "launch"
    names: frozenset[str] | None = frozenset()
    """Names of the settings concerned: declared by a copy that cannot be read as a whole, or added by a change.

    None means any setting.
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
        """Relation of the evidence to the config, with file and line."""
        return f"{SCOPES[self.scope]} ({self.place})"

    def is_about(self, name: str) -> bool:
        """Return whether the evidence concerns an unknown key or flag."""
        return self.names is None or name.lstrip("-").rpartition(".")[2] in self.names


class LaunchedKey(Frozen):
    """A key that every launch of a configuration sets."""

    route: Route
    """Route of the key below the configuration's root."""
    entry: Entry
    document: Document
    """Launch script that sets the key."""


class ConfigEvidence(Frozen):
    """All evidence about a config, collected once for all rules."""

    commands: tuple[str, ...] = ()
    """Programs to which scripts pass the config, each with its subcommand, if any (`trl sft`)."""
    programs: tuple[tuple[Document | None, str], ...] = ()
    """Programs to which scripts pass the config, each with the option that passes it.

    The document is a Python file in the repository, or None for other programs.
    """
    vocabulary: VendoredVocabulary | None = None
    """Vocabulary of the copy in the repository that the config uses, or None if upstream's applies."""
    fork: ForkEvidence | None = None
    """Evidence that the framework is a fork, so that upstream's vocabulary may not apply."""
    lowering_evidence: tuple[ForkEvidence, ...] = ()
    """Evidence that keys may have been added to upstream's vocabulary."""
    copies: Mapping[str, ConfigEvidence] = {}
    """Evidence about the copies or forks of the packages that a Python config passes settings to, by framework."""
    launched_keys: tuple[LaunchedKey, ...] = ()
    """Keys that every launch of the config sets and that show its release."""
    mutations: object = None
    """Mutations of the settings by programs before the framework reads them (`get_mutations`).

    Computed on demand, because they are costly to find and few rules need them.
    """

    @property
    def is_upstream(self) -> bool:
        """True if the evidence does not show a copy or a fork in place of upstream's framework."""
        return self.vocabulary is None and self.fork is None
