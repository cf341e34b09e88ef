"""What git ignores: `.gitignore` files and `.git/info/exclude`. A file that git tracks anyway is not ignored."""

from __future__ import annotations

import os
from collections.abc import Callable

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.git_index import Tracked, tracked
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.project.roots import Roots

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_NAME: Final = ".gitignore"
_MAX_BYTES: Final = 2**20


class GitIgnore:
    """The ignored files of one checkout; each file of patterns is read once."""

    __slots__ = ("_entered", "_root", "_specs", "_tracked")

    def __init__(self, root: str) -> None:
        self._root = root
        self._specs: dict[str, GitIgnoreSpec | None] = {}
        self._tracked: Tracked | None = None
        self._entered: set[str] = set()
        """Ignored folders that hold tracked files: all else in them is ignored."""

    def below(self, folder: str) -> Callable[[str, bool], bool]:
        """What a walk from a folder asks; in a folder that is itself ignored, nothing is."""
        full = os.path.abspath(folder)
        return nothing if full != self._root and self._matched(full, is_folder=True) else self.ignores

    def ignores(self, path: str, is_folder: bool) -> bool:
        """Whether git ignores a file or folder, and nothing tracked is in it.

        Asked by a walk, from the top down: the folder that it starts in counts as not ignored.
        """
        full = os.path.abspath(path)
        if not (os.path.dirname(full) in self._entered or self._matched(full, is_folder)):
            return False
        if not self._is_tracked(full):
            return True
        if is_folder:
            self._entered.add(full)
        return False

    def _matched(self, full: str, is_folder: bool) -> bool:
        """Whether the patterns mean a path: the last that matches counts, of two files of patterns the nearer one."""
        folder = os.path.dirname(full)
        while True:
            spec = self._spec(folder)
            if spec is not None:
                verdict = spec.check_file(_relative(full, folder) + ("/" if is_folder else "")).include
                if verdict is not None:
                    return verdict
            if len(folder) <= len(self._root):
                return False
            folder = os.path.dirname(folder)

    def _is_tracked(self, full: str) -> bool:
        if self._tracked is None:
            self._tracked = tracked(self._root) or Tracked()
        return self._tracked.holds(_relative(full, self._root))

    def _spec(self, folder: str) -> GitIgnoreSpec | None:
        """The patterns for a folder and what is below it; None: there are none."""
        if folder not in self._specs:
            files = [os.path.join(folder, _NAME)]
            if folder == self._root:
                files.insert(0, os.path.join(folder, ".git", "info", "exclude"))
            lines = [line for file in files for line in _lines(file)]
            self._specs[folder] = _compiled(lines) if lines else None
        return self._specs[folder]


def git_ignores(folder: str, roots: Roots, known: dict[str, GitIgnore]) -> Callable[[str, bool], bool]:
    """What git ignores below a folder; nothing where that is in no checkout. `known`: those met before, by root."""
    root, _ = roots.around(os.path.join(folder, "x"))
    if not os.path.exists(os.path.join(root, ".git")):
        return nothing
    return known.setdefault(root, GitIgnore(root)).below(folder)


def nothing(path: str, is_folder: bool) -> bool:
    """Nothing is ignored."""
    return False


def _relative(full: str, folder: str) -> str:
    return full[len(folder.rstrip(os.sep)) + 1 :].replace(os.sep, "/")


def _lines(path: str) -> list[str]:
    """The patterns of a file. One that cannot be read, or that is no file of patterns by its size, has none."""
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > _MAX_BYTES:
            return []
        source = regular_files.read(path)
    except OSError:
        return []
    found = source.decode("utf-8-sig", "surrogateescape").splitlines()
    return [line for line in found if line.strip() and not line.startswith("#")]


def _compiled(lines: list[str]) -> GitIgnoreSpec | None:
    from pathspec import GitIgnoreSpec

    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError:  # git passes over what is no pattern
        kept = []
        for line in lines:
            try:
                GitIgnoreSpec.from_lines([line])
            except ValueError:
                continue
            kept.append(line)
        return GitIgnoreSpec.from_lines(kept) if kept else None
