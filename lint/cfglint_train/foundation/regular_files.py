"""Regular files: reading up to a size limit, and never through a link that leads out of their repository."""

from __future__ import annotations

import codecs
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from cfglint_train.foundation import filesystem
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final, TypeVar

Outcome = TypeVar("Outcome")

MAX_BYTES: Final = 8 * 2**20
"""Size limit for configurations: the largest known (OLMo's data mixes) is 312 kB, so larger files are data."""

_NAMES: Final = ("O_RDONLY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
_FLAGS: Final = sum(getattr(os, name, 0) for name in _NAMES)

_HAS_PREAD: Final = hasattr(os, "pread")

PYTHON_TESTS: Final = compile_on_use(r"/tests?/|/(?:test_[^/]*|[^/]*_test|conftest)\.py$")
"""Pattern for the paths of Python tests, which are neither runs nor evidence about a run."""


_replacements: Mapping[str, bytes] = {}
_used: set[str] = set()


def run_with_texts(texts: Mapping[str, bytes], work: Callable[[], Outcome]) -> tuple[Outcome, set[str]]:
    """Run work that reads `texts`, by absolute path, in place of files. Return also the paths that it read."""
    global _replacements, _used  # noqa: PLW0603
    _replacements, _used = texts, set()
    try:
        return work(), _used
    finally:
        _replacements = {}


def is_replaced(path: str) -> bool:
    """Return whether a text replaces a file, given by its absolute path."""
    return path in _replacements


def _find_replacement(path: str) -> bytes | None:
    """Return the text that replaces a file, or None."""
    if not _replacements:
        return None
    full = normalize_path(os.path.abspath(path))
    text = _replacements.get(full)
    if text is not None:
        _used.add(full)
    return text


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


def read_small(
    path: str, limit: int, checked_folders: set[str], statuses: dict[str, os.stat_result | None] | None = None
) -> bytes:
    """Read a file by its absolute path, quickly; return b"" if it is not regular or has more than `limit` bytes.

    Raise `OSError` as `read` does and, if the system has `O_NOFOLLOW`, for a file that is a link. `checked_folders`: as
    for `read`. The status of the open file is added to `statuses`, or None if a text replaces the file.
    """
    if path[: path.rfind("/")] not in checked_folders or not hasattr(os, "O_NOFOLLOW"):
        check_links(path, checked_folders)
    text = _find_replacement(path)
    if text is not None:
        if statuses is not None:
            statuses[path] = None
        return text if len(text) <= limit else b""
    try:
        number = os.open(path, _FLAGS)
    except OSError as error:
        filesystem.note_failure(error, path)
        raise
    try:
        if statuses is None and filesystem.get_answers() is None and _HAS_PREAD:
            size = os.lseek(number, 0, os.SEEK_END)  # four times as fast as a status; fails for a pipe
            return os.pread(number, size, 0) if size <= limit else b""
        status = os.fstat(number)
        filesystem.note_status(path, status)
        if statuses is not None:
            statuses[path] = status
        return os.read(number, status.st_size) if stat.S_ISREG(status.st_mode) and status.st_size <= limit else b""
    finally:
        os.close(number)


def read_beginning(path: str, size: int) -> bytes:
    """Read at most the first `size` bytes of a file. Raise `OSError` as `read` does."""
    check_links(path)
    text = _find_replacement(path)
    if text is not None:
        return text[:size]
    if not stat.S_ISREG(filesystem.get_status(path).st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(size)
    except OSError as error:
        filesystem.note_failure(error)
        raise


def check_links(path: str, checked_folders: set[str] | None = None) -> None:
    """Raise `OSError` if a link in a path leads out of its repository. `checked_folders`: as for `read`."""
    checked_folders = set() if checked_folders is None else checked_folders
    visited: list[str] = []
    step = os.path.abspath(path)
    while step not in checked_folders and (parent := os.path.dirname(step)) != step:
        if filesystem.is_link(step) and _has_outside_target(step):
            raise OSError(errno.EACCES, "a link that points outside the repository", path)
        visited.append(step)
        step = parent
    checked_folders.update(visited[1:])


def read_anywhere(path: str) -> bytes:
    """Read a file as `read` does, but follow any link: for model files and files named on the command line."""
    text = _find_replacement(path)
    if text is not None:
        return text[: MAX_BYTES + 1]
    status = filesystem.get_status(path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file (use - to read standard input)", path)
    if not status.st_size:
        return b""  # files that the kernel generates (/proc/kmsg) have no size either, and may never end
    try:
        with open(path, "rb", buffering=0) as file:  # a buffer would be as large as the limit
            return file.readall() if status.st_size <= MAX_BYTES else file.read(MAX_BYTES + 1)
    except OSError as error:
        filesystem.note_failure(error)
        raise


def read_pieces(path: str) -> Iterator[str]:
    """Yield the text of a file named on the command line in pieces of 1 MiB, whatever its size.

    Raise `OSError` if it cannot be read or is not a regular file.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    with open(path, "rb") as file:
        yield from decode_pieces(file.read)


def decode_pieces(read: Callable[[int], bytes]) -> Iterator[str]:
    """Yield the text of a file or pipe, of which `read` returns the next bytes, in pieces that cut no character."""
    return codecs.iterdecode(iter(partial(read, 2**20), b""), "utf-8", "replace")


_LINE_ENDS: Final = compile_on_use(r"[\r\n]+")
_MAX_LINE: Final = 2**20
"""Maximum length of a line of a log in characters; longer lines are cut."""


def split_lines(pieces: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a text that comes in pieces; progress bars end lines with a carriage return."""
    rest = ""
    for piece in pieces:
        *lines, rest = _LINE_ENDS.split(rest + piece)
        yield from lines
        if len(rest) > _MAX_LINE:
            yield rest
            rest = ""
    yield rest


def is_below(path: str, folder: str) -> bool:
    """Return whether a file is below a folder after links are followed; False for an invalid file name."""
    try:
        return filesystem.resolve(path).startswith(filesystem.resolve(folder).rstrip(os.sep) + os.sep)
    except ValueError:  # a null byte or a lone surrogate
        return False


def expand_home(path: str) -> str:
    """Expand `~` to the home folder; return the path unchanged if it cannot be a file name."""
    try:
        return filesystem.expand_home(path)
    except ValueError:
        return path


def is_python_test(path: str) -> bool:
    """Return whether a Python file is a test by its name or by a folder of its repository (`tests/`)."""
    full_path = os.path.abspath(path).replace(os.sep, "/")
    folder = os.path.dirname(full_path)
    return PYTHON_TESTS.search(full_path, len(filesystem.find_repository(folder) or folder)) is not None


def _has_outside_target(link: str) -> bool:
    root = filesystem.find_repository(os.path.dirname(os.path.abspath(link)))
    return root is not None and not is_below(link, root)
