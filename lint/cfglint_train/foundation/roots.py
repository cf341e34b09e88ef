"""Roots: the repository or project that a folder belongs to."""

from __future__ import annotations

import os

from cfglint_train.foundation import filesystem
from cfglint_train.foundation.typed import Final

_PROJECT: Final = ("pyproject.toml", "cfglint.toml")


class Roots:
    """The roots of folders, with a cache: each folder is examined once."""

    __slots__ = ("_above", "_added", "_around", "_cached_checks", "checked")

    def __init__(self) -> None:
        """Start with no known folders."""
        self._added: set[str] = set()
        self.checked: set[str] = set()
        """Folders of the files that are checked."""
        self._above: dict[str, tuple[tuple[str, ...], bool]] = {}
        self._around: dict[str, tuple[str, bool]] = {}
        self._cached_checks: dict[tuple[str, tuple[str, ...]], bool] = {}

    def add(self, folder: str) -> None:
        """Add a folder that the user names as a root of last resort, because an unpacked archive has no `.git`."""
        self._added.add(os.path.abspath(folder))

    def list_folders_above(self, folder: str) -> tuple[tuple[str, ...], bool]:
        """Return a folder and its parents up to its root, and whether it has a root; up to `/` otherwise.

        The root is the root of the repository, or else the outermost folder with a `pyproject.toml` or `cfglint.toml`,
        or else the outermost folder that was added.
        """
        if folder not in self._above:
            chain = [folder]
            while os.path.dirname(chain[-1]) != chain[-1]:
                chain.append(os.path.dirname(chain[-1]))
            steps = range(1, len(chain) + 1)
            repository_steps = (
                step for mark in filesystem.MARKS for step in steps if self._has_any(chain[step - 1], (mark,))
            )
            step = next(repository_steps, 0)
            rooted = step > 0
            chain = chain[:step] if rooted else chain
            if not rooted:
                roots = [count for count, path in enumerate(chain, 1) if self._has_any(path, _PROJECT)]
                roots = roots or [count for count, path in enumerate(chain, 1) if path in self._added]
                rooted = bool(roots)
                chain = chain[: roots[-1]] if roots else chain
            self._above[folder] = (tuple(chain), rooted)
        return self._above[folder]

    def find_root(self, path: str) -> tuple[str, bool]:
        """Return the root of a file and True, or the file's folder and False if it has no root."""
        if path not in self._around:
            folders, rooted = self.list_folders_above(os.path.dirname(os.path.abspath(path)))
            self._around[path] = (folders[-1], True) if rooted else (folders[0], False)
        return self._around[path]

    def find_project(self, path: str) -> str:
        """Return the root of the repository or project of a file, or else its folder.

        Unlike `find_root`, it does not depend on the folders that were added.
        """
        root, _ = self.find_root(path)
        is_marked = self._has_any(root, (*filesystem.MARKS, *_PROJECT))
        return root if is_marked or root not in self._added else os.path.dirname(os.path.abspath(path))

    def list_allowed_folders(self, path: str) -> tuple[str, ...]:
        """Return the folders in which cfglint may read the files that a file names.

        This is the root of its repository or project. Without a repository or project, these are the working folder and
        the folder that was added, or else the folder of the file.
        """
        root, rooted = self.find_root(path)
        return (root,) if rooted and root not in self._added else (os.getcwd(), root)

    def _has_any(self, folder: str, marks: tuple[str, ...]) -> bool:
        """Return whether a folder contains any of the entries in `marks`."""
        key = (folder, marks)
        if key not in self._cached_checks:
            self._cached_checks[key] = any(filesystem.exists(os.path.join(folder, mark)) for mark in marks)
        return self._cached_checks[key]


def measure_distance(folder: str, root: str) -> tuple[int, int]:
    """Return the number of steps from `folder` up to the common folder, and from there down to `root`."""
    common = len(os.path.commonpath((folder, root)).rstrip("/").split("/"))
    up, down = (len(path.rstrip("/").split("/")) - common for path in (folder, root))
    return up, down
