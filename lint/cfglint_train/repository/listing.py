"""Which files of a repository count: those that git tracks, and new ones beside the files that are checked.

git's own list makes a walk unnecessary, which takes longer than all else in a repository of many folders. Where git has
no list (there is no git, nothing was added yet, or its index is of a kind that cannot be read), the folders are walked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.git_index import tracked
from cfglint_train.foundation.typed import Final
from cfglint_train.repository.gitignore import GitIgnore, nothing

MAX_FILES: Final = 500_000
"""Files that count of those that git tracks; more than the largest public repositories have."""
MAX_WALKED: Final = 50_000
"""Files that a walk finds, those near the root first, and folders in which it looks."""
MAX_DEPTH: Final = 20
"""Submodules in submodules."""


class Listing(Frozen):
    """The files of a repository. Paths are absolute, with forward slashes; some may be gone, or excluded by a name."""

    files: tuple[str, ...]
    new: frozenset[str]
    """Files and folders that git does not track, and may ignore."""
    folders: tuple[str, ...]
    """Those that no file in the list shows: new ones."""
    most: int = 0
    """The bound that was met; 0 where all files are in the list."""


def listing(root: str, depth: int | None, beside: Iterable[str], outside: Callable[[str], bool]) -> Listing:
    """Return the files below a root. `depth`: folders in folders that are walked, where that matters; `beside`: folders
    whose new files count; `outside`: whether the settings exclude a folder, those above it having been asked before.
    """
    names = _tracked(root) if depth is None else None
    if names is None:
        return _walked(root, depth, outside)
    kept, last, is_out = list[str](), "", False
    known: dict[str, bool] = {"": False, root: False}
    for name in names[:MAX_FILES]:
        folder = name[: name.rfind("/")]
        if folder != last:
            last, is_out = folder, _is_out(folder, known, outside)
        if not is_out:
            kept.append(name)
    old, folders, more = set(names), set[str](), list[str]()
    listed = old if len(kept) == len(names) else set(kept)
    for near in sorted(_upwards(beside, root)):
        for path, is_folder in _entries(near):
            if is_folder:
                folders.add(path)
            elif path not in listed:
                more.append(path)
    fresh = sorted(folders.difference(known))
    new = frozenset((*(path for path in more if path not in old), *fresh))
    return Listing((*kept, *more), new, tuple(fresh), MAX_FILES if len(names) > MAX_FILES else 0)


def _tracked(root: str, depth: int = 0) -> list[str] | None:
    """Return what git tracks below a root, in submodules, too; None where it has no list."""
    known = tracked(root) if os.path.exists(f"{root}/.git") else None
    if known is None or not known.paths:
        return None
    base = root.rstrip("/")
    names = os.fsdecode(b"".join((first := os.fsencode(f"\0{base}/"), first.join(known.paths)))).split("\0")[1:]
    for module in known.submodules if depth < MAX_DEPTH else ():
        folder = f"{base}/{os.fsdecode(module)}"
        if not os.path.islink(folder):
            names += _tracked(folder, depth + 1) or ()
    return names


def _is_out(folder: str, known: dict[str, bool], outside: Callable[[str], bool]) -> bool:
    """Return whether the settings exclude a folder or one above it, up to the root."""
    steps, step = list[str](), folder
    while step not in known:
        steps.append(step)
        step = step[: step.rfind("/")]
    is_out = known[step]
    for step in reversed(steps):
        is_out = known[step] = is_out or outside(step)
    return is_out


def _upwards(folders: Iterable[str], root: str) -> set[str]:
    """Return some folders below a root with all that are between."""
    found: set[str] = set()
    for folder in folders:
        step = folder
        while step not in found and (step == root or step.startswith(f"{root.rstrip('/')}/")):
            found.add(step)
            step = os.path.dirname(step)
    return found


def _entries(folder: str) -> list[tuple[str, bool]]:
    """Return the files and folders in a folder, each with whether it is a folder; links are none."""
    base, found = folder.rstrip("/"), []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder or entry.is_file(follow_symlinks=False):
                    found.append((f"{base}/{entry.name}", is_folder))
    except OSError:  # it may not be read, or is gone
        return []
    return sorted(found)


def _walked(root: str, depth: int | None, outside: Callable[[str], bool]) -> Listing:
    """Return what a walk finds, one level after the other; what git ignores is left out, and counts for no bound."""
    ignored = GitIgnore(root).ignores if os.path.exists(f"{root}/.git") else nothing
    files, folders, level, is_cut = list[str](), list[str](), [root], False
    deep = 0
    while level:
        further: list[str] = []
        for folder in level:
            for path, is_folder in _entries(folder):
                if is_folder:
                    if not outside(path) and not ignored(path, True):
                        further.append(path)
                elif not ignored(path, False):
                    files.append(path)
            is_cut = max(len(files), len(folders)) > MAX_WALKED
            if is_cut:
                break
        folders += further[:MAX_WALKED]
        level = further if not is_cut and (depth is None or deep < depth) else []
        deep += 1
    return Listing(tuple(files[:MAX_WALKED]), frozenset(), tuple(folders), MAX_WALKED if is_cut else 0)
