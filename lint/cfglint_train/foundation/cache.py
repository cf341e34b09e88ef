"""Cache: texts that take long to compute, kept between runs under digests of their inputs.

A folder that cannot be written is no error, and the oldest texts are removed if there are too many. Repositories may be
written by others, so a folder with files that git tracks is not used as a cache.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress

from cfglint_train.foundation import git_index, regular_files
from cfglint_train.foundation.typed import Final

MAX_FILES: Final = 64
MAX_BYTES: Final = 16 * 2**20

_CACHE_FILE: Final = re.compile(r".*[0-9a-f]{64}(\.[0-9]+)?")
"""Names of cache files, which end in a digest; other files in the folder are not touched."""


class Cache:
    """The texts of one kind; without a folder, none are kept."""

    __slots__ = ("_folder",)

    def __init__(self, kind: str, folder: str | None) -> None:
        """Use the subfolder `kind` of `folder`, unless it is a link or may hold tracked files."""
        path = None if folder is None else os.path.join(folder, kind)
        # The cache folder inside a repository may hold a link to another place.
        self._folder = None if path is None or os.path.islink(path) or _can_be_tracked(path) else path

    def get(self, digest: str) -> str | None:
        """Get a cached text, or None; it counts as recently used."""
        if self._folder is None:
            return None
        path = os.path.join(self._folder, digest)
        try:
            text = regular_files.read(path).decode()
            os.utime(path)
        except (OSError, UnicodeDecodeError):
            return None
        return text

    def put(self, digest: str, text: str) -> None:
        """Put a text into the cache and remove the oldest ones."""
        if self._folder is None:
            return
        with suppress(OSError):
            os.makedirs(self._folder, exist_ok=True)
            path = os.path.join(self._folder, digest)
            temporary = f"{path}.{os.getpid()}"
            # Create a new file: in a repository's folder, there may be a link under this name.
            with open(temporary, "x", encoding="utf-8") as file:
                file.write(text)
            os.replace(temporary, path)
            _remove_oldest(self._folder)


def _can_be_tracked(folder: str) -> bool:
    """Return whether git tracks files in a folder of a repository, or might."""
    root = regular_files.find_repository(os.path.realpath(folder))
    if root is None or not os.path.isdir(folder):
        return False
    index = git_index.read_index(root)
    return index is None or not os.path.exists(os.path.join(root, ".git")) or index.has_files_in(folder, root)


def _remove_oldest(folder: str) -> None:
    entries = (entry for entry in os.scandir(folder) if _CACHE_FILE.fullmatch(entry.name))
    files = sorted(((entry.stat(), entry.path) for entry in entries), key=lambda pair: -pair[0].st_mtime)
    total = 0
    for number, (status, path) in enumerate(files):
        total += status.st_size
        if number >= MAX_FILES or total > MAX_BYTES:
            os.unlink(path)


def find_cache_folder(flag: str | None, setting: str | None) -> str | None:
    """Return the folder of the cache, or None if nothing is cached (an empty name).

    A flag overrides `CFGLINT_CACHE_DIR`, which overrides the setting; the default is `cfglint` below `XDG_CACHE_HOME`
    or `~/.cache`. The setting only counts in a repository: elsewhere, as in an unpacked archive, git does not know
    which files came with it.
    """
    for folder in (flag, os.environ.get("CFGLINT_CACHE_DIR")):
        if folder is not None:
            return folder or None
    if setting is not None and regular_files.find_repository(setting) is not None:
        return setting
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "cfglint")
