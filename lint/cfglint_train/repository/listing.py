"""Listing of a repository: the files that git tracks, and new files in the folders of the files that are checked.

git's index saves a walk, which is the slowest part of linting a repository with many folders. Without a usable index
(no git, nothing added yet, an index format that cfglint cannot read), the folders are walked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from cfglint_train.foundation import filesystem
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.git_index import get_index_status, read_index
from cfglint_train.foundation.typed import Final

MAX_FILES: Final = 500_000
"""Maximum number of tracked files that are listed; the largest public repositories have fewer."""
MAX_WALKED: Final = 50_000
"""Maximum number of files that a walk lists, nearest to the root first, and of folders that it visits."""
MIN_INDEX_TO_CACHE: Final = 100_000
"""Minimum size in bytes of an index whose names are cached; about a thousand files."""
MAX_DEPTH: Final = 20
"""Maximum depth of nested submodules."""


class Listing(Frozen):
    """The files of a repository.

    Paths are absolute, with forward slashes. Some files may not exist, or may be excluded by name.
    """

    files: tuple[str, ...]
    new: frozenset[str]
    """Files and folders that git does not track and may ignore."""
    folders: tuple[str, ...]
    """Folders that contain no tracked file; after a walk, all folders."""
    limit: int = 0
    """Limit on the number of files if it was reached, or 0 if all files are listed."""


def list_files(
    root: str,
    depth: int | None,
    folders_with_new_files: Iterable[str],
    is_excluded: Callable[[str], bool],
    cache: Callable[[], str | None] = lambda: None,
) -> Listing:
    """List the files below a root.

    `depth` is the number of nested folder levels to walk, or None for all. Files that git does not track are listed
    only in `folders_with_new_files` and the folders between those and the root. `is_excluded` returns whether the
    settings exclude a folder; it is called for parent folders first. `cache` returns the cache folder, or None.
    """
    tracked = _list_tracked(root, cache) if depth is None else None
    if tracked is None:
        return _walk(root, depth, is_excluded)
    (names, tracked_folders), decisions = tracked, {"": False, root: False}
    listed = names[:MAX_FILES]
    excluded = {folder for folder in tracked_folders if _is_below_excluded(folder, decisions, is_excluded)}
    included = [name for name in listed if name[: name.rfind("/")] not in excluded] if excluded else listed
    tracked_names, folders, more = set(names), set[str](), list[str]()
    listed_names = tracked_names if len(included) == len(names) else set(included)
    for folder_to_list in sorted(_add_parents(folders_with_new_files, root)):
        for path, is_folder in _list_entries(folder_to_list):
            if is_folder:
                folders.add(path)
            elif path not in listed_names:
                more.append(path)
    new_folders = sorted(folders.difference(decisions))
    new = frozenset((*(path for path in more if path not in tracked_names), *new_folders))
    return Listing((*included, *more), new, tuple(new_folders), MAX_FILES if len(names) > MAX_FILES else 0)


def _list_tracked(root: str, cache: Callable[[], str | None], depth: int = 0) -> tuple[list[str], list[str]] | None:
    """Return the files that git tracks below a root, including submodules, and their folders.

    Return None without a usable index.
    """
    status = get_index_status(root) if filesystem.exists(f"{root}/.git") else None
    folder = None if status is None or status.st_size < MIN_INDEX_TO_CACHE else cache()
    if status is None or folder is None:
        lists: tuple[list[str], ...] | None = _read_tracked(root)
    else:
        from cfglint_train.repository.known_facts import list_cached_paths  # not needed in small repositories

        lists = list_cached_paths(folder, root, status, lambda: _read_tracked(root))
    if lists is None:
        return None
    names, folders, submodules = lists
    for module in submodules if depth < MAX_DEPTH else ():
        if not filesystem.is_link(module) and (more := _list_tracked(module, cache, depth + 1)):
            names += more[0]
            folders += more[1]
    return names, folders


def _read_tracked(root: str) -> tuple[list[str], list[str], list[str]] | None:
    """Return the files that the index of a checkout lists, their folders, and submodules, or None if it lists none."""
    index = read_index(root) if filesystem.exists(f"{root}/.git") else None
    if index is None or not index.paths:
        return None
    base = root.rstrip("/")
    names = os.fsdecode(b"".join((first := os.fsencode(f"\0{base}/"), first.join(index.paths)))).split("\0")[1:]
    folders = {name[: name.rfind("/")]: None for name in names}
    return names, list(folders), [f"{base}/{os.fsdecode(module)}" for module in index.submodules]


def _is_below_excluded(folder: str, decisions: dict[str, bool], is_excluded: Callable[[str], bool]) -> bool:
    """Return whether the settings exclude a folder or a folder above it, up to the root."""
    steps, step = list[str](), folder
    while step not in decisions:
        steps.append(step)
        step = step[: step.rfind("/")]
    result = decisions[step]
    for step in reversed(steps):
        result = decisions[step] = result or is_excluded(step)
    return result


def _add_parents(folders: Iterable[str], root: str) -> set[str]:
    """Return some folders with all folders between them and the root."""
    result: set[str] = set()
    for folder in folders:
        step = folder
        while step not in result and (step == root or step.startswith(f"{root.rstrip('/')}/")):
            result.add(step)
            step = os.path.dirname(step)
    return result


def _list_entries(folder: str) -> list[tuple[str, bool]]:
    """List the entries of a folder, with a flag that is true for folders; omit links."""
    base, result = folder.rstrip("/"), []
    try:
        with filesystem.scan(folder) as entries:
            for entry in entries:
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder or entry.is_file(follow_symlinks=False):
                    result.append((f"{base}/{entry.name}", is_folder))
    except OSError:  # unreadable, or removed in the meantime
        return []
    return sorted(result)


def _walk(root: str, depth: int | None, is_excluded: Callable[[str], bool]) -> Listing:
    """Walk a repository level by level; omit ignored files, which do not count toward the limit."""
    from cfglint_train.repository.gitignore import GitIgnore, ignore_nothing

    is_ignored = GitIgnore(root).is_ignored if filesystem.exists(f"{root}/.git") else ignore_nothing
    files, folders, level, is_cut = list[str](), list[str](), [root], False
    deep = 0
    while level:
        next_level: list[str] = []
        for folder in level:
            for path, is_folder in _list_entries(folder):
                if is_folder:
                    if not is_excluded(path) and not is_ignored(path, True):
                        next_level.append(path)
                elif not is_ignored(path, False):
                    files.append(path)
            is_cut = max(len(files), len(folders)) > MAX_WALKED
            if is_cut:
                break
        folders += next_level[:MAX_WALKED]
        level = next_level if not is_cut and (depth is None or deep < depth) else []
        deep += 1
    return Listing(tuple(files[:MAX_WALKED]), frozenset(), tuple(folders), MAX_WALKED if is_cut else 0)
