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


class Kind(Frozen):
    """A kind of evidence."""

    strength: Strength
    sentence: str


KINDS: Final[Mapping[str, Kind]] = {
    "pin": Kind("replaces", "`{source}` is installed ({place})"),
    "checkout": Kind("replaces", "it is taken from `{source}` ({place})"),
    "submodule": Kind("replaces", "`{source}` is a submodule ({place})"),
    "tree": Kind("replaces", "the copy in `{source}` {place}"),
    "entry": Kind("replaces", "`{source}` is not an entry point of upstream"),
    "namesake": Kind("replaces", "the script imports `{source}` of the repository"),
    "program": Kind("replaces", "`{source}` of the repository imports another package in its place"),
    "class": Kind("replaces", "`{source}`, which the program imports, changes {place}"),
    "copy": Kind("lowers", "no launch is seen to use the copy in `{source}`"),
    "plugin": Kind("lowers", "`{source}` is not a plugin of upstream"),
    "key": Kind("adds", "`{place}` is a key of `{source}`"),
    "patch": Kind("adds", "`{source}` may patch {place}"),
}


class Evidence(Frozen):
    """Why upstream's vocabulary may not be that of the framework in use."""

    kind: str
    """A row of `KINDS`."""
    source: str
    """The repository, folder, program, plugin or file that is in use instead, or that changes the framework."""
    place: str = ""
    """The place of that (`requirements.txt:1`); of a copy, why it is not read; of a key, its name; of a change, the
    module or class that is changed.
    """
    declared: frozenset[str] = frozenset()
    """The settings that a copy which cannot be read as a whole declares, or that a change brings."""

    def __str__(self) -> str:
        return KINDS[self.kind].sentence.format(source=self.source, place=self.place)

    def is_about(self, name: str) -> bool:
        """Return whether it concerns an unknown key: a plugin any, everything else those that it names."""
        return self.kind == "plugin" or name.lstrip("-").rpartition(".")[2] in self.declared


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
    fork: Evidence | None = None
    """Why its framework may be a fork for which upstream's vocabulary is uncertain."""
    lowering: tuple[Evidence, ...] = ()
    """What may add keys to upstream's vocabulary."""
    copies: Mapping[str, VendoredVocabulary | Evidence | None] = {}
    """What the copies of the packages take to which it hands settings, or why that cannot be determined; None where a
    release of upstream is used.
    """
    mutations: object = None
    """What programs do to its settings before it is read, for the rules (`mutations_of`): few ask, and it is costly."""

    @property
    def is_upstream(self) -> bool:
        """Whether nothing shows that its framework is another one than upstream's."""
        return self.vocabulary is None and self.fork is None
