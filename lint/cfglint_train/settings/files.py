"""Sources of settings files: the disk, or a commit."""

from __future__ import annotations

from cfglint_train.foundation import filesystem, regular_files
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final, Protocol


class Files(Protocol):
    """A source of settings files, which are addressed by their paths on the disk."""

    def has(self, path: str) -> bool:
        """Return whether a file exists."""

    def read(self, path: str) -> bytes:
        """Read a file; raise OSError if that fails."""


class _Disk(Frozen):
    """Settings files on the disk."""

    def has(self, path: str) -> bool:
        return filesystem.is_file(path)

    def read(self, path: str) -> bytes:
        return regular_files.read(path)


DISK: Final[Files] = _Disk()
