"""Read regular files, up to a size, and no link that leads out of the repository that it is in."""

from __future__ import annotations

import errno
import os
import stat

from cfglint_train.foundation.typed import Final

MAX_BYTES: Final = 8 * 2**20
"""The largest configuration that is known (OLMo's data mixes) has 312 kB. What is larger than this is data."""

_NAMES: Final = ("O_RDONLY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
_FLAGS: Final = sum(getattr(os, name, 0) for name in _NAMES)

MARKS: Final = (".git", ".hg")
"""What the root of a repository holds. A `.hg` below a `.git` is none: a tree of git can hold one, but no `.git`."""


def normalize_path(path: str) -> str:
    """A path without detours, with forward slashes."""
    return os.path.normpath(path).replace(os.sep, "/")


def read(path: str, checked_folders: set[str] | None = None) -> bytes:
    """The bytes of a file, one more than MAX_BYTES at most.

    Raises OSError; also for a pipe or a device, at once, and for a link that leads out of its repository, be it the
    file or a folder above it. `cleared`: folders that were found to lead to none; those found now are added.
    """
    check_links(path, checked_folders)
    return read_anywhere(path)


def read_small(path: str, limit: int, checked_folders: set[str]) -> bytes:
    """The bytes of a regular file by its absolute path; none of one that has more than `most`. Made for many files.

    Raises OSError as `read` does, and for any link. `cleared` as for `read`.
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
    """The first bytes of a file. Raises OSError as `read` does."""
    check_links(path)
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    with open(path, "rb", buffering=0) as file:
        return file.read(size)


def check_links(path: str, checked_folders: set[str] | None = None) -> None:
    """Raise OSError for a path with a link that leads out of its repository. `cleared` as for `read`."""
    checked_folders = set() if checked_folders is None else checked_folders
    visited: list[str] = []
    step = os.path.abspath(path)
    while step not in checked_folders and (parent := os.path.dirname(step)) != step:
        if os.path.islink(step) and _has_outside_target(step):
            raise OSError(errno.EACCES, "a link that leads out of the repository", path)
        visited.append(step)
        step = parent
    checked_folders.update(visited[1:])


def read_anywhere(path: str) -> bytes:
    """The same of a file that may be outside: a model's, or one that a command names. Raises OSError."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file (standard input is read as -)", path)
    if not status.st_size:
        return b""  # what the kernel makes up when it is read (/proc/kmsg) has no size either, and may never end
    with open(path, "rb", buffering=0) as file:  # a buffer of its own would be as large as what may be read
        return file.readall() if status.st_size <= MAX_BYTES else file.read(MAX_BYTES + 1)


def is_below(path: str, folder: str) -> bool:
    """Whether a file is below a folder, links followed. What no file can be called is below none."""
    try:
        return os.path.realpath(path).startswith(os.path.realpath(folder).rstrip(os.sep) + os.sep)
    except ValueError:  # a zero, or half a character
        return False


def expand_home(path: str) -> str:
    """A path with the home folder for its `~`, where it can be the name of a file."""
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
