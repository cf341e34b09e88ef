"""Where settings files are read from: the disk, or a commit."""

from __future__ import annotations

import os

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final, Protocol


class Files(Protocol):
    """Where settings files are read from. Paths are those of the disk."""

    def has(self, path: str) -> bool:
        """Whether there is such a file."""

    def read(self, path: str) -> bytes:
        """Its content. Raises OSError."""


class _Disk(Frozen):
    """Settings files as they are on the disk."""

    def has(self, path: str) -> bool:
        return os.path.isfile(path)

    def read(self, path: str) -> bytes:
        return regular_files.read(path)


DISK: Final[Files] = _Disk()
