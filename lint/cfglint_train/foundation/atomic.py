"""Atomic writes: a temporary file next to the target, then one rename, so that a file is old or new, never half.

If a rename would lose something (other names of the file, an owner or extended attribute that cannot be set), the file
is not written. If the system can exchange two names (Linux), a change up to the last moment is detected and kept;
elsewhere, a write between the last comparison and the rename (microseconds) is lost.

Several files that belong together are all staged before the first is renamed, so that the usual failures (no
permission, no space, a file that another program changed) happen before anything has changed.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from contextlib import suppress
from itertools import count

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.exchange import exchange, rename_new
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final

_TEMPORARY: Final = re.compile(r"\.cfglint-([0-9]+)-[0-9]+")
_STALE_SECONDS: Final = 60.0
"""Seconds after which a temporary file of a process that has ended is removed."""
_CHANGED: Final = "another program changed it in the meantime"


class StagedFile(Frozen):
    """New content, stored next to the file that it will replace."""

    target: str
    temporary: str
    original: bytes | None = None
    """Content of the target, or None if it must not exist yet; a file that appears meanwhile is not replaced."""


def stage(path: str, source: bytes, original: bytes) -> StagedFile:
    """Stage new content next to the file, synced to disk, with its permissions, owner and extended attributes.

    A symbolic link stays a link: its target is replaced. Raise OSError, also if the file is read-only, has other names,
    no longer holds `original`, or has attributes that cannot be copied.
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
    """Copy the extended attributes of a file (including access lists); raise OSError if that fails."""
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
    """Remove temporary files of processes that were killed before they could do so."""
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
    """Stage the content of a new file next to its place; raise OSError, also if the file exists."""
    regular_files.check_links(path)
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    remove_stale_files(os.path.dirname(path))
    return StagedFile(path, _create_with_mode(path, source, 0o666 & ~_read_umask()))


def write_output(path: str, source: bytes) -> None:
    """Write a file that the user names, such as a report; replace any previous content.

    Raise OSError, also for a link that leads out of its repository; the old content is then intact. A target that is
    not a regular file (`/dev/stdout`, a pipe) is written to directly.
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
    """Create a temporary file next to a path, with content and permissions."""
    temporary = _create_with_content(os.path.dirname(path) or ".", source)
    try:
        os.chmod(temporary, mode)
    except BaseException:
        os.unlink(temporary)
        raise
    return temporary


def _read_umask() -> int:
    """Read the umask (which requires setting it)."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _create_with_content(folder: str, source: bytes) -> str:
    """Create a file whose content has reached the disk."""
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
    """Create an empty file that only its owner can read.

    `tempfile` would work too, but takes 10 ms to import.
    """
    for number in count():
        path = os.path.join(folder, f".cfglint-{os.getpid()}-{number}")
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            return path
    raise AssertionError


def commit(staged: StagedFile) -> None:
    """Put the new content in place; raise OSError with the old content intact."""
    try:
        if staged.original is None:
            rename_new(staged.temporary, staged.target)
        else:
            _replace(staged, staged.original)
    except BaseException:
        discard(staged)
        raise


def _replace(staged: StagedFile, original: bytes) -> None:
    """Replace the original content by the new; raise OSError if the target has changed meanwhile."""
    if regular_files.read(staged.target) != original:
        raise OSError(errno.EBUSY, _CHANGED, staged.target)
    if not exchange(staged.temporary, staged.target):
        os.replace(staged.temporary, staged.target)
        return
    # The previous content now has the temporary name, which no other program uses.
    if regular_files.read(staged.temporary) != original:
        exchange(staged.temporary, staged.target)
        raise OSError(errno.EBUSY, _CHANGED, staged.target)
    os.unlink(staged.temporary)


def discard(staged: StagedFile) -> None:
    """Discard the new content and leave the target unchanged."""
    with suppress(FileNotFoundError):
        os.unlink(staged.temporary)
