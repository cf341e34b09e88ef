"""Cache of facts about the files of a large repository, because few of its files change between runs.

A file counts as unchanged if its size, times and inode are the same. A file that changed just before it was read may
change again within the same clock tick, so its facts are not cached.
"""

from __future__ import annotations

import time
from array import array
from binascii import crc32
from collections.abc import Callable, Mapping
from hashlib import sha256
from itertools import accumulate, pairwise
from operator import attrgetter
from os import stat_result

from cfglint_train.foundation import filesystem, regular_files
from cfglint_train.foundation.cache import Cache
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.version import VERSION

_FORMAT: Final = "2"
"""Version of the format of the cached facts."""

_KIND: Final = "repositories"
"""Subfolder of the cache."""

_MAX_CHANGED: Final = 50
"""Maximum number of changed files that are read again on each run without a rewrite of the cache."""
_MAX_COMPARED: Final = 256
"""Number of files whose states are compared at once."""
_ANSWERED: Final = 31
"""Number of bits by which the mask of the answered questions is shifted in the facts of a file."""

_STATE: Final[tuple[Callable[[stat_result], Any], ...]] = (
    attrgetter("st_mtime_ns"), attrgetter("st_ctime_ns"), attrgetter("st_size"), attrgetter("st_ino"),
)  # fmt: skip
"""The state of a file: times in nanoseconds, size in bytes, and inode."""
_NO_STATE: Final = (0, 0, 0, 0)
"""The state of a file whose facts are not cached."""


class _Group:
    """The files of a kind: for each file, a number per part of its state, and its facts."""

    __slots__ = ("changed", "columns", "facts", "paths")

    def __init__(self, paths: list[str]) -> None:
        """Start without facts."""
        self.paths = paths
        self.columns = [array("q", bytes(8 * len(paths))) for _ in _STATE]
        self.facts = array("q", bytes(8 * len(paths)))
        self.changed: set[int] = set()
        """Numbers of files that have changed since their facts were stored."""

    def get_state(self, number: int) -> tuple[int, ...]:
        """Return the state of a file."""
        return tuple(column[number] for column in self.columns)

    def set_state(self, number: int, state: tuple[int, ...]) -> None:
        """Set the state of a file."""
        for column, value in zip(self.columns, state, strict=True):
            column[number] = value


class KnownFacts:
    """The facts about the files of a repository: a bit for each question, and a bit whether it is answered.

    `meaning` identifies the questions; there are at most `_ANSWERED` of them.
    """

    def __init__(self, folder: str, root: str, meaning: str, paths_by_kind: Mapping[str, list[str]]) -> None:
        """Prepare to look up facts about files in the cache below `folder`."""
        self._cache = Cache(_KIND, folder)
        self._name = _build_name(root, meaning)
        self._paths_by_kind = paths_by_kind
        self._latest = time.time_ns() - filesystem.TICK
        self._groups: dict[str, _Group] = {}
        fields = _unpack(self._cache.read(self._name) or b"")
        self._stored = dict(zip(fields[::3], zip(fields[1::3], fields[2::3], strict=False), strict=False))
        """Paths and numbers of the files of each kind as they are stored."""
        self.statuses: dict[str, stat_result | None] = {}
        """The status of each file that was read since the last call of `record`; None if it could not be opened."""
        self._has_new = False

    def look_up(self, kind: str, questions: int) -> tuple[list[tuple[str, int]], list[int]]:
        """Return the files of a kind for which a question is true, with their facts, and the numbers of unknown files.

        An unknown file must be read.
        """
        group = self._get_group(kind)
        answered = questions << _ANSWERED
        if all(facts & answered == answered and not facts & questions for facts in set(group.facts)):
            return [], []
        hits: list[tuple[str, int]] = []
        unknown: list[int] = []
        for number, facts in enumerate(group.facts):
            if facts & answered != answered:
                unknown.append(number)
            elif facts & questions:
                hits.append((group.paths[number], facts & questions))
        return hits, unknown

    def record(self, kind: str, numbers: list[int], facts: list[int], questions: int) -> None:
        """Record the answers to questions for files that were just read."""
        group = self._groups[kind]
        for number, answers in zip(numbers, facts, strict=True):
            earlier, path = group.facts[number], group.paths[number]
            if path in self.statuses:
                status = self.statuses.pop(path)
                state = _NO_STATE if status is None else tuple(part(status) for part in _STATE)
                is_old = status is not None and min(state) >= 0 and max(state[:2]) < self._latest and max(state) < 2**63
                earlier = earlier if state == group.get_state(number) else 0
                self._has_new |= is_old and number not in group.changed
                group.set_state(number, state if is_old else _NO_STATE)
            group.facts[number] = earlier | answers | questions << _ANSWERED

    def save(self) -> None:
        """Save the facts if files or answers are new, or many files have changed."""
        if not self._has_new and sum(len(group.changed) for group in self._groups.values()) <= _MAX_CHANGED:
            return
        stored = {kind: self._stored[kind] for kind in map(_encode, self._paths_by_kind) if kind in self._stored}
        for kind, group in self._groups.items():
            numbers = b"".join(column.tobytes() for column in (*group.columns, group.facts))
            stored[_encode(kind)] = _encode("\0".join(group.paths)), numbers
        content = _pack([field for kind, fields in stored.items() for field in (kind, *fields)])
        _write(self._cache, self._name, content)
        self._has_new = False
        for group in self._groups.values():
            group.changed.clear()

    def _get_group(self, kind: str) -> _Group:
        """Return the files of a kind, with the facts of those that are unchanged."""
        if kind not in self._groups:
            group = self._groups[kind] = _Group(self._paths_by_kind[kind])
            self._read(kind, group)
            for at in range(0, len(group.paths), _MAX_COMPARED):
                end = at + _MAX_COMPARED
                if any(group.facts[at:end]) and not self._is_same(group, at, end):
                    self._forget_changed(group, at, min(end, len(group.paths)))
        return self._groups[kind]

    def _is_same(self, group: _Group, at: int, end: int) -> bool:
        """Return whether all files in a part of a group are unchanged."""
        if any(map(regular_files.is_replaced, group.paths[at:end])):
            return False
        try:
            statuses = list(filesystem.list_link_statuses(group.paths[at:end]))
        except (OSError, ValueError):
            return False
        return all(
            list(map(part, statuses)) == column[at:end].tolist()
            for part, column in zip(_STATE, group.columns, strict=True)
        )

    def _forget_changed(self, group: _Group, at: int, end: int) -> None:
        """Drop the facts of the changed files in a part of a group."""
        for number in range(at, end):
            is_replaced = regular_files.is_replaced(group.paths[number])
            try:
                status = filesystem.get_link_status(group.paths[number])
                state = tuple(part(status) for part in _STATE)
            except (OSError, ValueError):
                state = _NO_STATE
            if group.facts[number] and (is_replaced or state != group.get_state(number)):
                if group.get_state(number) != _NO_STATE:  # links are read on each run
                    group.changed.add(number)
                group.facts[number] = 0
                group.set_state(number, _NO_STATE)

    def _read(self, kind: str, group: _Group) -> None:
        """Read the cached states and facts of a group."""
        names, numbers = self._stored.get(_encode(kind), (b"", b""))
        paths = names.decode("utf-8", "surrogatepass").split("\0")
        values = array("q", numbers)
        if len(values) != len(paths) * (len(_STATE) + 1):
            return
        *columns, facts = (values[at : at + len(paths)] for at in range(0, len(values), len(paths)))
        if paths == group.paths:
            group.columns, group.facts = columns, facts
            return
        numbers_by_path = {path: number for number, path in enumerate(paths)}
        for number, path in enumerate(group.paths):
            if path in numbers_by_path:
                old = numbers_by_path[path]
                group.set_state(number, tuple(column[old] for column in columns))
                group.facts[number] = facts[old]


def list_cached_paths(
    folder: str, root: str, status: stat_result, work: Callable[[], tuple[list[str], ...] | None]
) -> tuple[list[str], ...] | None:
    """Return the lists of paths that `work` reads from git's index of a checkout, or None if it returns None.

    They are cached with the `status` of the index, which was taken before.
    """
    cache, name = Cache(_KIND, folder), _build_name(root, "index")
    state = _encode(" ".join(str(part(status)) for part in _STATE))
    stored_state, *fields = _unpack(cache.read(name) or b"") or [b""]
    if stored_state == state:
        return tuple(field.decode("utf-8", "surrogatepass").split("\0") if field else [] for field in fields)
    lists = work()
    if lists is not None and max(status.st_mtime_ns, status.st_ctime_ns) < time.time_ns() - filesystem.TICK:
        _write(cache, name, _pack([state, *(_encode("\0".join(paths)) for paths in lists)]))
    return lists


def _build_name(root: str, meaning: str) -> str:
    """Return the name of a cache entry about a repository."""
    return sha256(_encode(f"{_FORMAT}\0{VERSION}\0{root}\0{meaning}")).hexdigest()


def _write(cache: Cache, name: str, content: bytes) -> None:
    """Store a content that is not too large to be read."""
    if len(content) <= regular_files.MAX_BYTES:
        cache.write(name, content)


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _pack(fields: list[bytes]) -> bytes:
    """Join fields into one content: a checksum, the number of fields, the length of each, and the fields."""
    content = b"".join((array("q", [len(fields), *map(len, fields)]).tobytes(), *fields))
    return crc32(content).to_bytes(8, "little") + content


def _unpack(content: bytes) -> list[bytes]:
    """Return the fields of a content, or none if it is damaged."""
    if len(content) < 16 or crc32(memoryview(content)[8:]) != int.from_bytes(content[:8], "little"):
        return []
    [count] = array("q", content[8:16])
    ends = list(accumulate(array("q", content[16 : 16 + 8 * count]), initial=16 + 8 * count))
    return [content[start:end] for start, end in pairwise(ends)]
