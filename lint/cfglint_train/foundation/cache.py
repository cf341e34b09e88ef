"""Cache of texts that are slow to compute, kept between runs and keyed by the digests of their inputs.

A folder that is not writable is ignored. If there are too many texts, the least recently used are removed. A folder
with files that git tracks is not used, because the repository's author could have planted them.
"""

from __future__ import annotations

import os
from contextlib import suppress

from cfglint_train.foundation import filesystem, regular_files
from cfglint_train.foundation.cache_folder import can_be_planted
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
        self._folder = None if path is None or can_be_planted(path) else path

    def get(self, digest: str) -> str | None:
        """Return a cached text and mark it as recently used, or return None."""
        content = self.read(digest)
        try:
            return None if content is None else content.decode()
        except UnicodeDecodeError:
            return None

    def read(self, digest: str) -> bytes | None:
        """Return cached bytes and mark them as recently used, or return None."""
        if self._folder is None:
            return None
        path = os.path.join(self._folder, digest)
        try:
            content = filesystem.run_unrecorded(lambda: regular_files.read(path))
            os.utime(path)
        except OSError:
            return None
        return content

    def put(self, digest: str, text: str) -> None:
        """Store a text as `write` does."""
        self.write(digest, text.encode("utf-8", "surrogatepass"))

    def write(self, digest: str, content: bytes) -> None:
        """Store bytes, and remove the least recently used entries if there are too many. Ignores errors."""
        if self._folder is None:
            return
        with suppress(OSError):
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            path = os.path.join(self._folder, digest)
            temporary = f"{path}.{os.getpid()}"
            _write_new(temporary, content)
            os.replace(temporary, path)
            _remove_oldest(self._folder)


def _write_new(path: str, content: bytes) -> None:
    """Write a new file that only this user can read, or none if the disk is full.

    "x" creates a file: in a repository's folder, this name may already be a link.
    """
    with open(path, "xb", buffering=0, opener=_open_private) as file:
        try:
            if file.write(content) < len(content):  # the next write would say why
                raise OSError
        except OSError:
            os.unlink(path)
            raise


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _remove_oldest(folder: str) -> None:
    entries = (entry for entry in os.scandir(folder) if _CACHE_FILE.fullmatch(entry.name))
    files = sorted(((entry.stat(), entry.path) for entry in entries), key=lambda pair: -pair[0].st_mtime)
    total = 0
    for number, (status, path) in enumerate(files):
        total += status.st_size
        if number >= MAX_FILES or total > MAX_BYTES:
            os.unlink(path)
