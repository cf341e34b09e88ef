"""Regular files: read them up to a size limit, never through a link that leads out of their repository."""

from __future__ import annotations

import errno
import os
import stat

from cfglint_train.foundation.typed import Final

MAX_BYTES: Final = 8 * 2**20
"""Limit for configurations: the largest seen (OLMo's data mixes) has 312 kB; larger files are data."""

_NAMES: Final = ("O_RDONLY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
_FLAGS: Final = sum(getattr(os, name, 0) for name in _NAMES)

MARKS: Final = (".git", ".hg")
"""Entries that mark the root of a repository.

A `.hg` below a `.git` does not count: a git tree can contain a `.hg`, but never a `.git`.
"""


def normalize_path(path: str) -> str:
    """Return a normalized path with forward slashes."""
    return os.path.normpath(path).replace(os.sep, "/")


def read(path: str, checked_folders: set[str] | None = None) -> bytes:
    """Read a file, at most one byte more than MAX_BYTES.

    Raise OSError, also for a pipe or a device (without waiting), and for a link that leads out of its repository (the
    file itself or a folder above it). `checked_folders` are known to contain no such link; further ones are added.
    """
    check_links(path, checked_folders)
    return read_anywhere(path)


def read_small(path: str, limit: int, checked_folders: set[str]) -> bytes:
    """Read a regular file by its absolute path; return b"" if it has more than `limit` bytes. Fast for many files.

    Raise OSError as `read` does, and for any link. `checked_folders` as for `read`.
    """
    if path[: path.rfind("/")] not in checked_folders or not hasattr(os, "O_NOFOLLOW"):
        check_links(path, checked_folders)
    number = os.open(path, _FLAGS)
    try:
        status = os.fstat(number)
        return os.read(number, status.st_size) if stat.S_ISREG(status.st_mode) and status.st_size <= limit else b""
    finally:
        os.close(number)


def read_beginning(path: str, size: int) -> bytes:
    """Read the first bytes of a file; raise OSError as `read` does."""
    check_links(path)
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    with open(path, "rb", buffering=0) as file:
        return file.read(size)


def check_links(path: str, checked_folders: set[str] | None = None) -> None:
    """Raise OSError if a link in a path leads out of its repository; `checked_folders` as for `read`."""
    checked_folders = set() if checked_folders is None else checked_folders
    visited: list[str] = []
    step = os.path.abspath(path)
    while step not in checked_folders and (parent := os.path.dirname(step)) != step:
        if os.path.islink(step) and _has_outside_target(step):
            raise OSError(errno.EACCES, "a link that points outside the repository", path)
        visited.append(step)
        step = parent
    checked_folders.update(visited[1:])


def read_anywhere(path: str) -> bytes:
    """Read a file as `read` does, even outside the repository (a model's file, or one that a command names)."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file (use - to read standard input)", path)
    if not status.st_size:
        return b""  # files that the kernel generates (/proc/kmsg) have no size either, and may never end
    with open(path, "rb", buffering=0) as file:  # a buffer would be as large as the limit
        return file.readall() if status.st_size <= MAX_BYTES else file.read(MAX_BYTES + 1)


def is_below(path: str, folder: str) -> bool:
    """Return whether a file is below a folder, following links; False for an invalid file name."""
    try:
        return os.path.realpath(path).startswith(os.path.realpath(folder).rstrip(os.sep) + os.sep)
    except ValueError:  # a zero byte, or half a character
        return False


def expand_home(path: str) -> str:
    """Expand `~` to the home folder, if the path can be a file name."""
    try:
        return os.path.expanduser(path)
    except ValueError:
        return path


def find_repository(path: str) -> str | None:
    """Return the root of the repository that a file or folder is in, or None."""
    for mark in MARKS:
        folder, last = os.path.abspath(path), ""
        while folder != last:
            if os.path.exists(os.path.join(folder, mark)):
                return folder
            folder, last = os.path.dirname(folder), folder
    return None


def _has_outside_target(link: str) -> bool:
    root = find_repository(os.path.dirname(os.path.abspath(link)))
    return root is not None and not is_below(link, root)
