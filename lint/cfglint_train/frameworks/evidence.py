"""What a repository shows of a configuration before its framework reads it, handed to the lenses as a value."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.documents.document import Document
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from cfglint_schemas.vendored import VendoredVocabulary

Strength = Literal["replaces", "adds", "lowers"]
"""replaces: another framework is in use, of whose vocabulary upstream's says little. adds: upstream's is in use, with
the named keys besides: they are info. lowers: it may have them: one level milder.
"""
Scope = Literal["config", "launch", "folder", "repository"]

SCOPES: Final[Mapping[Scope, str]] = {
    "config": "in the configuration itself",
    "launch": "a launch of the configuration uses it",
    "folder": "in the folder of the configuration or one above it",
    "repository": "elsewhere in the repository",
}
"""How evidence concerns a configuration."""


class ForkTrace(Frozen):
    """What is found of one kind of evidence."""

    source: str
    """The repository, folder, program, plugin or file that is in use instead, or that changes the framework."""
    detail: str = ""
    """Of a copy, why it is not read; of a key, its name; of a change, the module or class that is changed."""
    place: str = ""
    """Where it is stated: `requirements.txt:1`."""
    scope: Scope = "launch"
    names: frozenset[str] | None = frozenset()
    """The settings that it is about: those that a copy which cannot be read as a whole declares, or that a change
    brings; None: any.
    """


class ForkEvidence(Frozen):
    """Why upstream's vocabulary may not be that of the framework in use (`forks/evidence.py` lists the kinds)."""

    kind: str
    strength: Strength
    scope: Scope
    text: str
    place: str
    names: frozenset[str] | None

    def __str__(self) -> str:
        return self.text

    @property
    def source(self) -> str:
        """How it concerns the configuration, with file and line."""
        return f"{SCOPES[self.scope]} ({self.place})"

    def is_about(self, name: str) -> bool:
        """Return whether it concerns an unknown key."""
        return self.names is None or name.lstrip("-").rpartition(".")[2] in self.names


class ConfigEvidence(Frozen):
    """All that counts for one configuration; a rule reads it, and nothing in it is looked for again."""

    commands: tuple[str, ...] = ()
    """The programs that scripts give it to, each with its subcommand where it has one (`trl sft`)."""
    programs: tuple[tuple[Document | None, str], ...] = ()
    """The Python programs of the repository that scripts give it to, each with the option that gives it; None for
    another one.
    """
    vocabulary: VendoredVocabulary | None = None
    """Of the copy of its framework in the repository; None where upstream's counts."""
    fork: ForkEvidence | None = None
    """Why its framework may be a fork for which upstream's vocabulary is uncertain."""
    lowering_evidence: tuple[ForkEvidence, ...] = ()
    """What may add keys to upstream's vocabulary."""
    copies: Mapping[str, ConfigEvidence] = {}
    """The same of the packages to which it hands settings: their copies, or their forks."""
    mutations: object = None
    """What programs do to its settings before it is read, for the rules (`mutations_of`): few ask, and it is costly."""

    @property
    def is_upstream(self) -> bool:
        """Whether nothing shows that its framework is another one than upstream's."""
        return self.vocabulary is None and self.fork is None
