"""Settings of a file that a script of the repository handles before the framework sees it: templates and their fillers.

A Python file that names the configuration, or loads files whose paths it is given: what it stores, takes out and reads
by constant names. A shell script that edits it with yq or sed. Both are read as text and never run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import partial

from cfglint_train.documents.document import Route
from cfglint_train.foundation import regular_files
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.frameworks.registry import listed
from cfglint_train.repository.index import RepositoryIndex

if TYPE_CHECKING:
    from cfglint_train.documents.python.fillers import PythonFiller

_LOADING: Final = ("yaml", "YAML", "ruamel.yaml", "json", "OmegaConf", "hydra")
"""Words of which a Python file that loads configurations has one."""
_MAY_LOAD: Final = r"(?i)loads?\b|compose|from_(?:yaml|json)|(?:load|read)_\w*(?:ya?ml|json|conf|cfg)|hydra"
"""What is in the text of a file that loads configurations, and not in that of one that only writes them."""
MAX_FOLLOWED: Final = 256 * 2**10
"""Bytes of the files that are followed for one key of one file: following a MiB takes one to three seconds."""


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
    for script in index.pythons_naming(name, path):
        found = index.once(Followed).filler(script)
        if found is not None and _means([one for one in found.strings if one.endswith(name)], path, index):
            handled = found.handled(name)
            changed |= handled.changed
            open_mappings |= handled.open
            read |= {*handled.read, ()}
    for script in index.scripts_naming(name, path):
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


def named(key: str, path: str, index: RepositoryIndex) -> Filled:
    """What the Python files that name a key do with the files whose paths they are given, as far as this may be one.

    A route that begins with the folders of the file (hydra's groups) is also one without them.
    """
    changed, read, folders = set[Route](), set[Route](), regular_files.tidy(os.path.abspath(path)).split("/")[:-1]
    for found in index.once(Followed).near(key, folders):
        handled = found.handled()
        changed.update(*(_in_groups(route, folders) for route in handled.changed))
        read.update(*(_in_groups(route, folders) for route in handled.read))
    return Filled(frozenset(changed), frozenset(read - changed))


def multiplied(path: str, index: RepositoryIndex) -> bool:
    """Whether a Python file of the repository makes a run of each combination of lists, and this may be one's file."""
    folders = regular_files.tidy(os.path.abspath(path)).split("/")[:-1]
    return any(found.multiplies for found in index.once(Followed).near("product", folders))


class Followed:
    """The Python files of a repository, each read and parsed at most once, and copies of frameworks left out."""

    def __init__(self, index: RepositoryIndex) -> None:
        self._index = index
        self._texts: dict[str, str] = {}
        self._loading: dict[str, bool] = {}
        self._parsed: dict[str, PythonFiller | None] = {}
        self._copies: tuple[str, ...] | None = None

    def text(self, path: str) -> str:
        """The text of a file; empty where it cannot be read."""
        if path not in self._texts:
            try:
                self._texts[path] = regular_files.read(path).decode("utf-8", "replace")
            except OSError:
                self._texts[path] = ""
        return self._texts[path]

    def loads(self, path: str) -> bool:
        """Whether a file may load configurations."""
        if path not in self._loading:
            self._loading[path] = re.search(_MAY_LOAD, self.text(path)) is not None
        return self._loading[path]

    def filler(self, path: str) -> PythonFiller | None:
        """What a file does; None where it is no Python."""
        if path not in self._parsed:
            from cfglint_train.documents.python.fillers import filler  # most repositories have no such file

            self._parsed[path] = filler(self.text(path))
        return self._parsed[path]

    def near(self, key: str, folders: list[str]) -> Iterator[PythonFiller]:
        """The files that name a key and load configurations, those nearest to a folder first, within the bound."""
        left = MAX_FOLLOWED
        for path in sorted(self._index.pythons_having(_LOADING, key), key=lambda path: _distance(path, folders)):
            if path.startswith(self.copies):
                continue
            text = self.text(path)
            if key not in text or not self.loads(path):
                continue
            left -= len(text)
            if left < 0:
                return
            found = self.filler(path)
            if found is not None:
                yield found

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


def _distance(path: str, folders: list[str]) -> tuple[int, int, str]:
    """How many folders up from some folder to the one that holds both, and how many down from there."""
    steps = path.split("/")[:-1]
    common = next(
        (at for at, pair in enumerate(zip(steps, folders)) if pair[0] != pair[1]), min(map(len, (steps, folders)))
    )
    return len(folders) - common, len(steps) - common, path


def _in_groups(route: Route, folders: list[str]) -> list[Route]:
    groups = [count for count in range(1, len(route)) if list(route[:count]) == folders[-count:]]
    return [route, *(route[count:] for count in groups)]


def _means(stated: list[str], path: str, index: RepositoryIndex, script: str = "") -> bool:
    """Whether one of some paths is that of a file: the same end, and a bare name only where no second file has it, or
    the script that states it is beside the file.
    """
    beside = bool(script) and os.path.dirname(os.path.abspath(script)) == os.path.dirname(os.path.abspath(path))
    own = regular_files.tidy(os.path.abspath(path)).split("/")
    for one in stated:
        parts = [part for part in re.split(r"[/\\]", one) if part not in (".", "..") and not re.search(r"[${}]", part)]
        if parts and parts == own[-len(parts) :] and (len(parts) > 1 or beside or len(index.named(parts[-1])) == 1):
            return True
    return False
