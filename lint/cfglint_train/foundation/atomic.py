"""Atomic writes: a temporary file next to the target, then a rename, so that a file is never half written.

A file is not written if the rename would lose something: hard links, or an owner or extended attribute that cannot be
set. If the system can exchange two names (Linux), a change by another program is detected up to the last moment and
kept. Elsewhere, a write in the microseconds between the last comparison and the rename is lost.

Files that belong together are all staged before the first is renamed. The usual failures (no permission, no space, a
file that another program changed) therefore occur before anything has changed.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import suppress
from itertools import count

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.exchange import exchange, rename_new
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final

_TEMPORARY: Final = compile_on_use(r"\.cfglint-([0-9]+)-[0-9]+")
_STALE_SECONDS: Final = 60.0
"""Minimum age in seconds at which a temporary file of a dead process is removed."""
_CHANGED: Final = "another program changed it in the meantime"


class StagedFile(Frozen):
    """New content in a temporary file next to the file that it will replace."""

    target: str
    temporary: str
    original: bytes | None = None
    """Expected content of the target, or None if the target must not exist; `commit` fails if this no longer holds."""


def stage(path: str, source: bytes, original: bytes) -> StagedFile:
    """Stage new content next to the file, synced to disk, with its permissions, owner and extended attributes.

    A symbolic link stays a link: its target is replaced. Raise `OSError` if the file cannot be staged, is read-only,
    has hard links, no longer holds `original`, or has an owner or attributes that cannot be kept.
    """
    regular_files.check_links(path)
    target = os.path.realpath(path)
    if regular_files.read(target) != original:
        raise OSError(errno.EBUSY, _CHANGED, path)
    if not os.access(target, os.W_OK):
        raise OSError(errno.EACCES, "it is read-only", path)
    remove_stale_files(os.path.dirname(target))
    status = os.stat(target)
    if status.st_nlink > 1:
        raise OSError(errno.EMLINK, "it has hard links, which would keep the old content", path)
    temporary = _create_with_content(os.path.dirname(target), source)
    try:
        temporary_status = os.stat(temporary)
        if (temporary_status.st_uid, temporary_status.st_gid) != (status.st_uid, status.st_gid):
            try:
                os.chown(temporary, status.st_uid, status.st_gid)
            except OSError:
                raise OSError(errno.EPERM, "its owner and group cannot be kept", path) from None
        _copy_attributes(target, temporary)
        os.chmod(temporary, status.st_mode & 0o7777)
    except BaseException:
        os.unlink(temporary)
        raise
    return StagedFile(target, temporary, original)


def _copy_attributes(source: str, target: str) -> None:
    """Copy the extended attributes of a file, including access lists. Raise `OSError` if that fails."""
    if not hasattr(os, "listxattr"):
        return
    try:
        names = os.listxattr(source)
    except OSError:  # a file system without extended attributes
        return
    for name in names:
        value = os.getxattr(source, name)
        try:
            if name not in os.listxattr(target) or os.getxattr(target, name) != value:
                os.setxattr(target, name, value)
        except OSError:
            raise OSError(errno.EPERM, f"its extended attribute {name} cannot be kept", source) from None


def remove_stale_files(folder: str) -> None:
    """Remove the temporary files that killed processes left in a folder. Ignores errors."""
    with suppress(OSError):
        for name in os.listdir(folder or "."):
            match = _TEMPORARY.fullmatch(name)
            path = os.path.join(folder, name)
            if (
                match is not None
                and not _is_alive(int(match[1]))
                and time.time() - os.lstat(path).st_mtime > _STALE_SECONDS
            ):
                os.unlink(path)


def _is_alive(process: int) -> bool:
    if os.name == "nt":
        return True  # on Windows, a signal ends the process
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def stage_new(path: str, source: bytes) -> StagedFile:
    """Stage the content of a new file. Raise `FileExistsError` if the file exists, or another `OSError`."""
    regular_files.check_links(path)
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    remove_stale_files(os.path.dirname(path))
    return StagedFile(path, _create_with_mode(path, source, 0o666 & ~_read_umask()))


def write_output(path: str, source: bytes) -> None:
    """Write a file that the user names, such as a report, and replace any previous content.

    Raise `OSError`, with the old content intact, if the file cannot be written or is a link that leads out of its
    repository. A target that is not a regular file (`/dev/stdout`, a pipe) is written directly.
    """
    regular_files.check_links(path)
    target = os.path.realpath(path)
    mode = os.stat(target).st_mode if os.path.exists(target) else stat.S_IFREG | 0o666 & ~_read_umask()
    if not stat.S_ISREG(mode):
        with open(path, "wb") as file:
            file.write(source)
        return
    if os.path.exists(target) and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    remove_stale_files(os.path.dirname(target))
    try:
        temporary = _create_with_mode(target, source, stat.S_IMODE(mode))
        try:
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:  # omit the name of the temporary file
        raise OSError(error.errno, error.strerror, path) from None


def _create_with_mode(path: str, source: bytes, mode: int) -> str:
    """Create a temporary file next to `path` with content and permissions, and return its path."""
    temporary = _create_with_content(os.path.dirname(path) or ".", source)
    try:
        os.chmod(temporary, mode)
    except BaseException:
        os.unlink(temporary)
        raise
    return temporary


def _read_umask() -> int:
    """Return the umask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _create_with_content(folder: str, source: bytes) -> str:
    """Create a temporary file, sync its content to disk, and return its path."""
    temporary = _create(folder)
    try:
        with open(temporary, "wb") as file:
            file.write(source)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        os.unlink(temporary)
        raise
    return temporary


def _create(folder: str) -> str:
    """Create an empty temporary file that only its owner can read, and return its path.

    `tempfile` would do the same, but takes 10 ms to import.
    """
    for number in count():
        path = os.path.join(folder, f".cfglint-{os.getpid()}-{number}")
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            return path
    raise AssertionError


def commit(staged: StagedFile) -> None:
    """Replace the target with the new content. Raise `OSError`, with the old content intact, if that fails."""
    try:
        if staged.original is None:
            rename_new(staged.temporary, staged.target)
        else:
            _replace(staged, staged.original)
    except BaseException:
        discard(staged)
        raise


def _replace(staged: StagedFile, original: bytes) -> None:
    """Replace the original content. Raise `OSError` if the target has changed in the meantime."""
    if regular_files.read(staged.target) != original:
        raise OSError(errno.EBUSY, _CHANGED, staged.target)
    if not exchange(staged.temporary, staged.target):
        os.replace(staged.temporary, staged.target)
        return
    # The previous content now has the temporary name, under which no other program writes to it.
    if regular_files.read(staged.temporary) != original:
        exchange(staged.temporary, staged.target)
        raise OSError(errno.EBUSY, _CHANGED, staged.target)
    os.unlink(staged.temporary)


def discard(staged: StagedFile) -> None:
    """Discard the new content and leave the target unchanged."""
    with suppress(FileNotFoundError):
        os.unlink(staged.temporary)
