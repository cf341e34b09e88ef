"""Regular files: reading up to a size limit, and never through a link that leads out of their repository."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final

MAX_BYTES: Final = 8 * 2**20
"""Size limit for configurations: the largest known (OLMo's data mixes) is 312 kB, so larger files are data."""

_NAMES: Final = ("O_RDONLY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
_FLAGS: Final = sum(getattr(os, name, 0) for name in _NAMES)

PYTHON_TESTS: Final = compile_on_use(r"/tests?/|/(?:test_[^/]*|[^/]*_test|conftest)\.py$")
"""Pattern for the paths of Python tests, which are neither runs nor evidence about a run."""

MARKS: Final = (".git", ".hg")
"""Folder entries that mark the root of a repository.

`.git` takes precedence over a `.hg` below it: git can track a folder named `.hg`, but not a folder named `.git`.
"""


def normalize_path(path: str) -> str:
    """Return a normalized path with forward slashes."""
    return os.path.normpath(path).replace(os.sep, "/")


def read(path: str, checked_folders: set[str] | None = None) -> bytes:
    """Read a file, up to one byte more than `MAX_BYTES`, so that the caller can detect a file that is too large.

    Raise `OSError` if the file cannot be read, if it is a pipe or device, or if the file or a folder above
    it is a link that leads out of its repository. `checked_folders`: folders that are known not to be reached through
    such links; the folders that pass are added.
    """
    check_links(path, checked_folders)
    return read_anywhere(path)


def read_small(path: str, limit: int, checked_folders: set[str]) -> bytes:
    """Read a file by its absolute path, quickly; return b"" if it is not regular or has more than `limit` bytes.

    Raise `OSError` as `read` does and, if the system has `O_NOFOLLOW`, for a file that is a link. `checked_folders`: as
    for `read`.
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
    """Read at most the first `size` bytes of a file. Raise `OSError` as `read` does."""
    check_links(path)
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    with open(path, "rb", buffering=0) as file:
        return file.read(size)


def check_links(path: str, checked_folders: set[str] | None = None) -> None:
    """Raise `OSError` if a link in a path leads out of its repository. `checked_folders`: as for `read`."""
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
    """Read a file as `read` does, but follow any link: for model files and files named on the command line."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file (use - to read standard input)", path)
    if not status.st_size:
        return b""  # files that the kernel generates (/proc/kmsg) have no size either, and may never end
    with open(path, "rb", buffering=0) as file:  # a buffer would be as large as the limit
        return file.readall() if status.st_size <= MAX_BYTES else file.read(MAX_BYTES + 1)


def read_pieces(path: str) -> Iterator[str]:
    """Yield the text of a file named on the command line in pieces of 1 MiB, whatever its size.

    Raise `OSError` if it cannot be read or is not a regular file.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        while piece := file.read(2**20):
            yield piece


def is_below(path: str, folder: str) -> bool:
    """Return whether a file is below a folder after links are followed; False for an invalid file name."""
    try:
        return os.path.realpath(path).startswith(os.path.realpath(folder).rstrip(os.sep) + os.sep)
    except ValueError:  # a null byte or a lone surrogate
        return False


def expand_home(path: str) -> str:
    """Expand `~` to the home folder; return the path unchanged if it cannot be a file name."""
    try:
        return os.path.expanduser(path)
    except ValueError:
        return path


def find_repository(path: str) -> str | None:
    """Return the root of the git or Mercurial repository that contains a file or folder, or None."""
    for mark in MARKS:
        folder, last = os.path.abspath(path), ""
        while folder != last:
            if os.path.exists(os.path.join(folder, mark)):
                return folder
            folder, last = os.path.dirname(folder), folder
    return None


def is_python_test(path: str) -> bool:
    """Return whether a Python file is a test by its name or by a folder of its repository (`tests/`)."""
    full_path = os.path.abspath(path).replace(os.sep, "/")
    folder = os.path.dirname(full_path)
    return PYTHON_TESTS.search(full_path, len(find_repository(folder) or folder)) is not None


def _has_outside_target(link: str) -> bool:
    root = find_repository(os.path.dirname(os.path.abspath(link)))
    return root is not None and not is_below(link, root)
