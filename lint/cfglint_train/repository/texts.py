"""The files of one invocation as they are on the disk. Small ones are kept: several questions are asked of the same
scripts.
"""

from __future__ import annotations

import os

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.typed import Final

MAX_SMALL: Final = 256 * 2**10
"""Bytes of the largest file that is kept."""
MAX_KEPT: Final = 8 * 2**20
"""Bytes of all that are kept."""


class Texts:
    """What is in files, however they are named."""

    __slots__ = ("_cleared", "_kept", "_size")

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}
        self._size = 0
        self._cleared: set[str] = set()
        """Folders through which no link leads out of the repository."""

    def read(self, path: str) -> bytes:
        """The bytes of a file. Raises OSError."""
        return self._read_cached(path if path in self._kept else os.path.abspath(path), path)

    def read_small(self, path: str) -> bytes:
        """The bytes of a file by its absolute path; none of a link, or of what is larger or cannot be read."""
        text = self._kept.get(path)
        if text is None:
            try:
                text = regular_files.read_small(path, MAX_SMALL, self._cleared)
            except (OSError, ValueError):
                return b""
            if text:  # nothing is known of a file that is larger
                self._keep(path, text)
        return text

    def _read_cached(self, full: str, path: str) -> bytes:
        text = self._kept.get(full)
        if text is None:
            text = regular_files.read(path, self._cleared)
            self._keep(full, text)
        return text

    def _keep(self, full: str, text: bytes) -> None:
        if len(text) <= MAX_SMALL and self._size < MAX_KEPT:
            self._kept[full] = text
            self._size += len(text)
