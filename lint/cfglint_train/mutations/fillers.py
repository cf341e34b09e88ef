"""Settings of a file that a script of the repository handles before the framework sees it: templates and their fillers.

A Python file that names the configuration, finds it by a pattern or is handed it by a command: what it stores, takes
out and reads by constant names. A shell script that edits it with yq or sed. Both are read as text and never run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import partial

from cfglint_train.documents.document import Route
from cfglint_train.foundation import regular_files
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.frameworks.registry import listed
from cfglint_train.repository.index import RepositoryIndex

if TYPE_CHECKING:
    from cfglint_train.documents.python.fillers import PythonFiller

_GLOBS: Final = ("glob", "iglob", "rglob")
"""Functions with which a program finds files by a pattern."""
MAX_FOLLOWED: Final = 256 * 2**10
"""Bytes of the programs that one search of a repository follows: following a MiB takes one to three seconds."""


class Filled(Frozen):
    """Routes of settings, by what becomes of them."""

    changed: frozenset[Route] = frozenset()
    """Stored or taken out: what the file says of them is not what the framework gets."""
    read: frozenset[Route] = frozenset()
    """Only looked at; the empty route is the file as a whole."""
    keys: frozenset[str] = frozenset()
    """Keys whose lines are replaced or taken out wherever they are."""
    marks: frozenset[str] = frozenset()
    """Texts that are replaced wherever they are."""
    open: frozenset[Route] = frozenset()
    """Mappings over which another one is laid whose keys cannot be determined: each value may be replaced."""


def filled(path: str, index: RepositoryIndex) -> Filled:
    """What the scripts that name a file do with its settings."""
    name, changed, read = os.path.basename(path), set[Route](), set[Route]()
    keys, marks, open_mappings = set[str](), set[str](), set[Route]()
    ending = os.path.splitext(name)[1].lstrip(".")
    for script in dict.fromkeys((*index.pythons_naming(name), *index.pythons_having(_GLOBS, ending))):
        found = index.once(Followed).filler(script)
        if _means([*found.strings], path, index, script):
            handled = found.handled(name)
            changed |= handled.changed
            open_mappings |= handled.open
            read |= {*handled.read, ()}
    for script in index.scripts_naming(name):
        from cfglint_train.documents.shell.fillers import Key, edits  # few files are edited by a script

        for one in edits(
            script, index.once(Followed).text(script).encode(), partial(_means, path=path, index=index, script=script)
        ):
            if isinstance(one, str):
                (keys if isinstance(one, Key) else marks).add(str(one))
            else:
                changed.add(one)
    left = frozenset(read - changed)
    return Filled(frozenset(changed), left, frozenset(keys), frozenset(marks), frozenset(open_mappings))


def handled_by(programs: Iterable[str], path: str, index: RepositoryIndex) -> Filled:
    """Return what the Python programs that are given a file do with its settings."""
    found = [index.once(Followed).filler(program).handled(os.path.basename(path)) for program in programs]
    changed = frozenset().union(*(one.changed for one in found))
    read = frozenset().union(*(one.read for one in found))
    return Filled(changed, read - changed)


class Followed:
    """The Python files of a repository, each read and parsed at most once, and copies of frameworks left out."""

    def __init__(self, index: RepositoryIndex) -> None:
        self._index = index
        self._texts: dict[str, str] = {}
        self._parsed: dict[str, PythonFiller] = {}
        self._copies: tuple[str, ...] | None = None

    def text(self, path: str) -> str:
        """The text of a file; empty where it cannot be read."""
        if path not in self._texts:
            try:
                self._texts[path] = regular_files.read(path).decode("utf-8", "replace")
            except OSError:
                self._texts[path] = ""
        return self._texts[path]

    def filler(self, path: str) -> PythonFiller:
        """What a file does."""
        if path not in self._parsed:
            from cfglint_train.documents.python.fillers import filler  # most repositories have no such file

            self._parsed[path] = filler(self.text(path))
        return self._parsed[path]

    @property
    def copies(self) -> tuple[str, ...]:
        """The folders of copies of frameworks, each with a slash behind it."""
        if self._copies is None:
            found = []
            for one in listed().values():
                roots = () if one.tree is None else self._index.holding(*one.tree.packages)
                if roots:
                    from cfglint_train.forks.vendored import folder_at, is_copy  # few repositories hold one

                    found += [f"{folder_at(root, one)}/" for root in roots if is_copy(root, one)]
            self._copies = tuple(found)
        return self._copies


def _means(stated: list[str], path: str, index: RepositoryIndex, script: str = "") -> bool:
    """Return whether one of some paths or patterns is that of a file: the same end, and a bare name only if no second
    file has it, or the script that states it is beside the file.
    """
    beside = bool(script) and os.path.dirname(os.path.abspath(script)) == os.path.dirname(os.path.abspath(path))
    own = regular_files.tidy(os.path.abspath(path)).split("/")
    for one in stated:
        parts = [part for part in re.split(r"[/\\]", one) if part not in (".", "..") and not re.search(r"[${}]", part)]
        if not parts or len(parts) > len(own) or not all(map(fnmatchcase, own[-len(parts) :], parts)):
            continue
        if len(parts) > 1 or beside or ("*" not in parts[0] and len(index.named(parts[0])) == 1):
            return True
    return False
