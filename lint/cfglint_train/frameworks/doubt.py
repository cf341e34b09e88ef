"""Evidence that a framework in use is not upstream's, so that its vocabulary may be another one."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final, Literal

Evidence = Literal[
    "pin",
    "checkout",
    "submodule",
    "tree",
    "entry",
    "elsewhere",
    "plugin",
    "used",
    "written",
    "key",
    "patch",
    "class",
    "namesake",
    "program",
]

_SAID: Final[Mapping[Evidence, str]] = {
    "pin": "`{source}` is installed ({place})",
    "checkout": "it is taken from `{source}` ({place})",
    "submodule": "`{source}` is a submodule ({place})",
    "tree": "the copy in `{source}` {place}",
    "entry": "`{source}` is not an entry point of upstream",
    "elsewhere": "`{source}` is not an entry point of upstream ({place})",
    "plugin": "`{source}` is not a plugin of upstream",
    "used": "{place} start it with `{source}`, which no release takes",
    "key": "`{place}` is a key of `{source}`",
    "patch": "`{source}` changes {place} of the installed package",
    "class": "`{source}`, which the program imports, changes {place}",
    "namesake": "the script imports `{source}` of the repository",
    "program": "`{source}` of the repository imports another package in its place",
    "written": "the file names `{source}` ({place})",
}


class Doubt(Frozen):
    """Why upstream's vocabulary may not be that of the framework in use."""

    kind: Evidence
    """A requirement that installs another repository or an unreleased revision, a folder outside the repository that a
    launch takes it from, a git submodule, a copy of the
    framework that cannot be read, an entry point (of this run, or of another script of the repository) or a plugin
    that upstream does not have, a flag that no release takes and many scripts give, the address of a fork in the
    file, a key of a fork, a change of the installed package or of a class of its settings, a module of its name
    beside a script, or a program of the repository that imports another package."""
    source: str
    """What is used instead: a repository, a folder, a program, a plugin, a flag."""
    place: str = ""
    """Where that stands (`requirements.txt:1`); of a copy, why it is not read; of a flag, how many scripts give it; of
    a key of the file, its name; of a change, the module or class that is changed.
    """
    taken: tuple[str, ...] = ()
    """Flags, and words in the place of integers, that no release takes and many scripts give."""
    declared: frozenset[str] = frozenset()
    """The settings that a copy declares which cannot be read as a whole, or that a change brings."""

    def __str__(self) -> str:
        return _SAID[self.kind].format(source=self.source, place=self.place)
