"""Cache of texts that are slow to compute, kept between runs and keyed by the digests of their inputs.

A folder that is not writable is ignored. If there are too many texts, the least recently used are removed. A folder
with files that git tracks is not used, because the repository's author could have planted them.
"""

from __future__ import annotations

import os
from contextlib import suppress

from cfglint_train.foundation import git_index, regular_files
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final

MAX_FILES: Final = 64
MAX_BYTES: Final = 16 * 2**20

_CACHE_FILE: Final = compile_on_use(r".*[0-9a-f]{64}(\.[0-9]+)?")
"""Names of cache files, which end in a digest or a digest and a process ID; other files are left alone."""


class Cache:
    """The cached texts of a kind; without a folder, nothing is cached."""

    __slots__ = ("_folder",)

    def __init__(self, kind: str, folder: str | None) -> None:
        """Use the subfolder `kind` of `folder`, unless it is a link or may hold tracked files."""
        path = None if folder is None else os.path.join(folder, kind)
        # A cache folder inside a repository may contain a link to another place.
        self._folder = None if path is None or os.path.islink(path) or _can_be_tracked(path) else path

    def get(self, digest: str) -> str | None:
        """Return a cached text and mark it as recently used, or return None."""
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
        """Store a text, and remove the least recently used texts if there are too many. Ignores errors."""
        if self._folder is None:
            return
        with suppress(OSError):
            os.makedirs(self._folder, exist_ok=True)
            path = os.path.join(self._folder, digest)
            temporary = f"{path}.{os.getpid()}"
            # "x" creates a new file: in a repository's folder, this name may already be a link.
            with open(temporary, "x", encoding="utf-8") as file:
                file.write(text)
            os.replace(temporary, path)
            _remove_oldest(self._folder)


def _can_be_tracked(folder: str) -> bool:
    """Return whether git tracks files in an existing folder, or may track some because the index cannot be read."""
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
    """Return the cache folder, or None if an empty name turns the cache off.

    The flag overrides `CFGLINT_CACHE_DIR`, which overrides the setting. The default is `cfglint` in `XDG_CACHE_HOME` or
    `~/.cache`. The setting counts only in a repository: in an unpacked archive, nothing shows which files came with it.
    """
    for folder in (flag, os.environ.get("CFGLINT_CACHE_DIR")):
        if folder is not None:
            return folder or None
    if setting is not None and regular_files.find_repository(setting) is not None:
        return setting
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "cfglint")
