"""Contents of files on the disk. Small files are cached, because several searches read the same scripts."""

from __future__ import annotations

import os

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.typed import Final

MAX_SMALL: Final = 256 * 2**10
"""Maximum size of a cached file in bytes."""
MAX_KEPT: Final = 8 * 2**20
"""Total size of the cached files in bytes; once it is reached, no further files are cached."""


class Texts:
    """The contents of files on the disk, cached by absolute path."""

    __slots__ = ("_cleared", "_contents", "_size")

    def __init__(self) -> None:
        """Start with an empty cache."""
        self._contents: dict[str, bytes] = {}
        self._size = 0
        self._cleared: set[str] = set()
        """Folders that are known to contain no link out of their repository."""

    def read(self, path: str) -> bytes:
        """Read a file; raise OSError if that fails."""
        return self._read_cached(path if path in self._contents else os.path.abspath(path), path)

    def read_small(self, path: str, statuses: dict[str, os.stat_result | None] | None = None) -> bytes:
        """Read a file by its absolute path; return b"" for a link, an unreadable file or a file above MAX_SMALL.

        If the file is opened, its status is added to `statuses`; if that fails, None.
        """
        text = self._contents.get(path)
        if text is None:
            try:
                text = regular_files.read_small(path, MAX_SMALL, self._cleared, statuses)
            except (OSError, ValueError):
                if statuses is not None:
                    statuses[path] = None
                return b""
            if text:  # an empty result may stand for a larger file
                self._keep(path, text)
        return text

    def is_inside(self, path: str) -> bool:
        """Return whether no link on the way to a file, given by its absolute path, leads out of its repository."""
        if path[: path.rfind("/")] not in self._cleared:
            try:
                regular_files.check_links(path, self._cleared)
            except (OSError, ValueError):
                return False
        return True

    def _read_cached(self, full: str, path: str) -> bytes:
        text = self._contents.get(full)
        if text is None:
            text = regular_files.read(path, self._cleared)
            self._keep(full, text)
        return text

    def _keep(self, full: str, text: bytes) -> None:
        if len(text) <= MAX_SMALL and self._size < MAX_KEPT:
            self._contents[full] = text
            self._size += len(text)
