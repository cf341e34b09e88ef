"""Fillers: programs and scripts of a repository that change a file's settings before the framework reads them.

A Python file counts if it names the config, finds it by a pattern or receives it from a command; cfglint records the
constant keys that the program stores, removes and reads. A shell script counts if it edits the file with yq or sed.
Both are read as text and never run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import partial

from cfglint_train.documents.document import Route
from cfglint_train.foundation import regular_files
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.frameworks.registry import list_frameworks
from cfglint_train.repository.index import RepositoryIndex

if TYPE_CHECKING:
    from cfglint_train.documents.python.fillers import PythonFiller

_GLOBS: Final = ("glob", "iglob", "rglob")
"""Functions that find files by a pattern."""
MAX_PROGRAM_BYTES: Final = 256 * 2**10
"""Total size limit in bytes of the programs that one search parses; parsing 1 MiB takes one to three seconds."""


class SettingChanges(Frozen):
    """Settings that programs and scripts change or read."""

    changed: frozenset[Route] = frozenset()
    """Routes that are stored or removed, so that the framework does not get the file's value."""
    read: frozenset[Route] = frozenset()
    """Routes that are only read; the empty route stands for the whole file."""
    keys: frozenset[str] = frozenset()
    """Keys whose lines are replaced or removed wherever they occur in the file."""
    placeholders: frozenset[str] = frozenset()
    """Strings that are replaced wherever they occur in the file."""
    open_mappings: frozenset[Route] = frozenset()
    """Routes of mappings that are updated with undetermined keys, so that any of their values may be replaced."""


def find_changes(path: str, index: RepositoryIndex) -> SettingChanges:
    """Return the changes that the repository's programs and scripts make to the config at `path`."""
    name, changed, read = os.path.basename(path), set[Route](), set[Route]()
    keys, placeholders, open_mappings = set[str](), set[str](), set[Route]()
    ending = os.path.splitext(name)[1].lstrip(".")
    for script in dict.fromkeys((*index.find_python_naming(name), *index.find_python_using(_GLOBS, ending))):
        filler = index.compute_once(PythonSources).analyse_filler(script)
        if _is_path_of([*filler.strings], path, index, script):
            filler_changes = filler.find_handled_routes(name)
            changed |= filler_changes.changed
            open_mappings |= filler_changes.open
            read |= {*filler_changes.read, ()}
    for script in index.find_scripts_naming(name):
        from cfglint_train.documents.shell.fillers import EditedKey, find_edits  # few files are edited by a script

        for change in find_edits(
            script,
            index.compute_once(PythonSources).read_source(script).encode(),
            partial(_is_path_of, path=path, index=index, script=script),
        ):
            if isinstance(change, str):
                (keys if isinstance(change, EditedKey) else placeholders).add(str(change))
            else:
                changed.add(change)
    only_read = frozenset(read - changed)
    return SettingChanges(
        frozenset(changed), only_read, frozenset(keys), frozenset(placeholders), frozenset(open_mappings)
    )


def find_program_changes(programs: Iterable[str], path: str, index: RepositoryIndex) -> SettingChanges:
    """Return the changes that `programs`, which receive the config at `path`, make to its settings."""
    changes = [
        index.compute_once(PythonSources).analyse_filler(program).find_handled_routes(os.path.basename(path))
        for program in programs
    ]
    changed = frozenset().union(*(item.changed for item in changes))
    read = frozenset().union(*(item.read for item in changes))
    return SettingChanges(changed, read - changed)


class PythonSources:
    """A cache of a repository's Python files, each read and parsed at most once, and of its copies of frameworks."""

    def __init__(self, index: RepositoryIndex) -> None:
        """Create an empty cache for a repository."""
        self._index = index
        self._texts: dict[str, str] = {}
        self._parsed: dict[str, PythonFiller] = {}
        self._copies: tuple[str, ...] | None = None

    def read_source(self, path: str) -> str:
        """Return the text of a file, or an empty string if it cannot be read."""
        if path not in self._texts:
            try:
                self._texts[path] = regular_files.read(path).decode("utf-8", "replace")
            except OSError:
                self._texts[path] = ""
        return self._texts[path]

    def analyse_filler(self, path: str) -> PythonFiller:
        """Return the settings that a Python file changes and reads."""
        if path not in self._parsed:
            from cfglint_train.documents.python.fillers import parse_filler  # most repositories have no filler

            self._parsed[path] = parse_filler(self.read_source(path))
        return self._parsed[path]

    @property
    def copies(self) -> tuple[str, ...]:
        """Folders of copies of frameworks, each with a trailing slash."""
        if self._copies is None:
            folders = []
            for manifest in list_frameworks().values():
                roots = () if manifest.layout is None else self._index.find_parent_folders(*manifest.layout.packages)
                if roots:
                    from cfglint_train.forks.vendored import get_package_folder, is_copy  # few repositories have copies

                    folders += [f"{get_package_folder(root, manifest)}/" for root in roots if is_copy(root, manifest)]
            self._copies = tuple(folders)
        return self._copies


def _is_path_of(patterns: list[str], path: str, index: RepositoryIndex, script: str = "") -> bool:
    """Return whether any of a script's `patterns` (paths or globs) can denote the file at `path`.

    A pattern's components, except dots and components with variables, must match the last components of the path. A
    bare name counts only if no other file has that name or the script is in the file's folder. A bare glob counts only
    if the script is in the file's folder.
    """
    from fnmatch import fnmatchcase  # few programs fill in templates

    is_sibling = bool(script) and os.path.dirname(os.path.abspath(script)) == os.path.dirname(os.path.abspath(path))
    path_parts = regular_files.normalize_path(os.path.abspath(path)).split("/")
    for pattern in patterns:
        parts = [
            part for part in re.split(r"[/\\]", pattern) if part not in (".", "..") and not re.search(r"[${}]", part)
        ]
        if not parts or len(parts) > len(path_parts) or not all(map(fnmatchcase, path_parts[-len(parts) :], parts)):
            continue
        if len(parts) > 1 or is_sibling or ("*" not in parts[0] and len(index.find_by_name(parts[0])) == 1):
            return True
    return False
