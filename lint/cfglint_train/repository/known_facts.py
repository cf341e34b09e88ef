"""Cache of facts about the files of a large repository, because few of its files change between runs.

A file counts as unchanged if its size, times and inode are the same. A file that changed just before it was read may
change again within the same clock tick, so its facts are not cached.
"""

from __future__ import annotations

import time
from array import array
from binascii import Error, a2b_base64, b2a_base64
from collections.abc import Iterator
from hashlib import sha256
from stat import S_ISREG

from cfglint_train.foundation import filesystem, regular_files
from cfglint_train.foundation.cache import Cache
from cfglint_train.foundation.typed import Final
from cfglint_train.version import VERSION

_MAX_CHANGED: Final = 50
"""Maximum number of changed files that are read again on each run without a rewrite of the cache."""

_Row = tuple[int, int, int, int, int]
"""State of a file (mtime and ctime in nanoseconds, size, inode) and its facts; all zeros if unknown."""
_NO_ROW: Final = (0, 0, 0, 0, 0)


class KnownFacts:
    """The facts about some files of a repository, as one bit mask per file; `meaning` identifies the bits."""

    def __init__(self, folder: str | None, root: str, meaning: str, paths: list[str]) -> None:
        """Prepare to look up facts about `paths` in the cache below `folder`."""
        self._cache = Cache("repositories", folder)
        self._name = sha256(f"{VERSION}\0{root}\0{meaning}".encode("utf-8", "surrogatepass")).hexdigest()
        self._paths = paths
        self._latest = time.time_ns() - filesystem.TICK
        self._rows: list[_Row] = []
        self._hit_count = 0

    def __iter__(self) -> Iterator[tuple[str, int | None]]:
        """Yield each file with its facts: None if the caller must `record` them, 0 if it is not a regular file."""
        rows, lstat = self._rows, filesystem.get_link_status
        cached_rows, self._is_same = self._read()
        for path, row in zip(self._paths, cached_rows, strict=True):
            try:
                status = lstat(path)
            except (OSError, ValueError):
                rows.append(_NO_ROW)
                yield path, 0
                continue
            changed, entered, size, number, facts = row
            if (
                changed == status.st_mtime_ns
                and size == status.st_size
                and entered == status.st_ctime_ns
                and number == status.st_ino
            ):
                rows.append(row)
                yield path, facts
                continue
            state = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
            is_old = min(state) >= 0 and max(state[:2]) < self._latest and max(state) < 2**63
            rows.append((*state, 0) if is_old else _NO_ROW)
            yield path, None if S_ISREG(status.st_mode) else 0

    def record(self, facts: int) -> None:
        """Record the facts of the file that was yielded last."""
        self._hit_count += 1
        if self._rows[-1] is not _NO_ROW:
            self._rows[-1] = (*self._rows[-1][:4], facts)

    def save(self) -> None:
        """Save the facts if the list of files differs from the cached list or many files have changed."""
        if len(self._rows) < len(self._paths) or (self._is_same and self._hit_count <= _MAX_CHANGED):
            return
        numbers = array("q", [number for row in self._rows for number in row]).tobytes()
        parts = ("\0".join(self._paths).encode("utf-8", "surrogatepass"), numbers)
        text = "\n".join(b2a_base64(part, newline=False).decode() for part in parts)
        if len(text) <= regular_files.MAX_BYTES:
            self._cache.put(self._name, text)

    def _read(self) -> tuple[list[_Row], bool]:
        """Return the cached row of each file, and whether the cache covers exactly the same files."""
        nothing = [_NO_ROW] * len(self._paths)
        try:
            names, numbers = map(a2b_base64, (self._cache.get(self._name) or "\n").split("\n"))
            values = array("q", numbers)
            rows = list(zip(*(values[at::5] for at in range(5)), strict=True))
            text = names.decode("utf-8", "surrogatepass")
        except (Error, ValueError):
            return nothing, False
        paths = self._paths if text == "\0".join(self._paths) else text.split("\0")
        if len(paths) != len(rows):
            return nothing, False
        if paths is self._paths:
            return rows, True
        rows_by_path = dict(zip(paths, rows, strict=True))
        return [rows_by_path.get(path, _NO_ROW) for path in self._paths], False
