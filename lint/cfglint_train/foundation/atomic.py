"""Writes files so that each is old or new and never half: a temporary file beside it, then one rename.

What a rename cannot keep (other names of the file, an owner or an extended attribute that may not be set) is a reason
not to write. Where the system can exchange two names at once (Linux), a change up to the last moment is noticed and
stays; elsewhere what is written between the last comparison and the rename, microseconds, is lost.

Several files that belong together are all staged before the first of them is renamed, so that what usually goes wrong
(no permission, no space, a file that another program changed) goes wrong before anything has happened.
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
"""Seconds after which a temporary file of a process that is gone is removed."""
_CHANGED: Final = "another program changed it meanwhile"


class StagedFile(Frozen):
    """A new content that waits beside the file that it will replace."""

    target: str
    temporary: str
    original: bytes | None = None
    """What the target holds; None: there is no such file yet, and none that appears meanwhile is replaced."""


def stage(path: str, source: bytes, original: bytes) -> StagedFile:
    """Write the new content beside the file, with its permissions, owner and extended attributes, and on the disk.

    A symbolic link stays a link: its target is replaced. Raises OSError; also where the file may not be written, has
    other names, cannot be given what it has, or no longer holds `original`.
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
        raise OSError(errno.EMLINK, "it has other names (hard links), which would keep the old content", path)
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
    """Give a file the extended attributes of another (access lists among them). Raises OSError where it cannot."""
    if not hasattr(os, "listxattr"):
        return
    try:
        names = os.listxattr(source)
    except OSError:  # a file system without any
        return
    for name in names:
        value = os.getxattr(source, name)
        try:
            if name not in os.listxattr(target) or os.getxattr(target, name) != value:
                os.setxattr(target, name, value)
        except OSError:
            raise OSError(errno.EPERM, f"its extended attribute {name} cannot be kept", source) from None


def remove_stale_files(folder: str) -> None:
    """Remove temporary files of processes that were killed before they could do it."""
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
        return True  # there a signal ends the process
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def stage_new(path: str, source: bytes) -> StagedFile:
    """Write the content of a file that is to be made beside its place. Raises OSError; also where there is one."""
    regular_files.check_links(path)
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    remove_stale_files(os.path.dirname(path))
    return StagedFile(path, _create_with_mode(path, source, 0o666 & ~_read_umask()))


def write_output(path: str, source: bytes) -> None:
    """Write a file that a person names, such as a report: new, or in the place of whatever it held.

    Raises OSError, and the old content is whole then; also for a link that leads out of its repository. What is no
    regular file (`/dev/stdout`, a pipe) is written to.
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
    except OSError as error:  # without the name of the temporary file
        raise OSError(error.errno, error.strerror, path) from None


def _create_with_mode(path: str, source: bytes, mode: int) -> str:
    """A temporary file beside a path, with a content and permissions."""
    temporary = _create_with_content(os.path.dirname(path) or ".", source)
    try:
        os.chmod(temporary, mode)
    except BaseException:
        os.unlink(temporary)
        raise
    return temporary


def _read_umask() -> int:
    """The permissions that new files do not get. (There is no way to ask without setting.)"""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _create_with_content(folder: str, source: bytes) -> str:
    """A new file with a content that has reached the disk."""
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
    """A new empty file that only its owner can read. (`tempfile` would do, but takes 10 ms to import.)"""
    for number in count():
        path = os.path.join(folder, f".cfglint-{os.getpid()}-{number}")
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            return path
    raise AssertionError


def commit(staged: StagedFile) -> None:
    """Put the new content in place. Raises OSError; the old one is whole then."""
    try:
        if staged.original is None:
            rename_new(staged.temporary, staged.target)
        else:
            _replace(staged, staged.original)
    except BaseException:
        discard(staged)
        raise


def _replace(staged: StagedFile, original: bytes) -> None:
    """Put the new content in the place of the original one. Raises OSError where that is no longer there."""
    if regular_files.read(staged.target) != original:
        raise OSError(errno.EBUSY, _CHANGED, staged.target)
    if not exchange(staged.temporary, staged.target):
        os.replace(staged.temporary, staged.target)
        return
    # The previous content has the temporary name, which no other program uses.
    if regular_files.read(staged.temporary) != original:
        exchange(staged.temporary, staged.target)
        raise OSError(errno.EBUSY, _CHANGED, staged.target)
    os.unlink(staged.temporary)


def discard(staged: StagedFile) -> None:
    """Leave everything as it was."""
    with suppress(FileNotFoundError):
        os.unlink(staged.temporary)
