"""The folder of the caches: where it is, and whether a repository's author could have planted what it contains."""

from __future__ import annotations

import os

from cfglint_train.foundation import filesystem


def find_cache_folder(flag: str | None, setting: str | None) -> str | None:
    """Return the cache folder, or None if an empty name turns the cache off.

    The flag overrides `CFGLINT_CACHE_DIR`, which overrides the setting. The default is `cfglint` in `XDG_CACHE_HOME` or
    `~/.cache`. The setting counts only in a repository: in an unpacked archive, nothing shows which files came with it.
    """
    for folder in (flag, os.environ.get("CFGLINT_CACHE_DIR")):
        if folder is not None:
            return folder or None
    if setting is not None and filesystem.find_repository(setting) is not None:
        return setting
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "cfglint")


def can_be_planted(folder: str) -> bool:
    """Return whether a subfolder of the cache is a link, or may contain files that git tracks.

    A cache folder inside a repository may contain a link to another place. If the index of its repository cannot be
    read, git may track any file.
    """
    return filesystem.run_unrecorded(lambda: os.path.islink(folder) or _can_be_tracked(folder))


def _can_be_tracked(folder: str) -> bool:
    root = filesystem.find_repository(os.path.realpath(folder))
    if root is None or not os.path.isdir(folder):
        return False
    from cfglint_train.foundation import git_index  # a cache is rarely inside a repository

    index = git_index.read_index(root)
    return index is None or not os.path.exists(os.path.join(root, ".git")) or index.has_files_in(folder, root)
