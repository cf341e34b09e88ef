"""Renames that `os` lacks, with Linux's `renameat2`: exchange two files, or rename without replacing a file."""

from __future__ import annotations

import errno
import os
import sys

from cfglint_train.foundation.typed import Final

_AT_FDCWD: Final = -100
"""`AT_FDCWD`: paths are relative to the working directory."""
_NO_REPLACE: Final = 1
"""RENAME_NOREPLACE (linux/fs.h)."""
_EXCHANGE: Final = 2
"""RENAME_EXCHANGE (linux/fs.h)."""


def exchange(first: str, second: str) -> bool:
    """Exchange the names of two files. Return False, with nothing changed, if that fails or is not supported."""
    return _rename(first, second, _EXCHANGE) == 0


def rename_new(source: str, target: str) -> None:
    """Rename a file without replacing another. Raise `FileExistsError` if the name is in use, or another `OSError`.

    Atomic on Windows, where `os.rename` never replaces a file, and on Linux if the file system supports it. Elsewhere,
    the file has both names for a moment.
    """
    if os.name == "nt":
        os.rename(source, target)
        return
    code = _rename(source, target, _NO_REPLACE)
    if code == errno.EEXIST:
        raise FileExistsError(code, os.strerror(code), target)
    if code != 0:
        os.link(source, target)
        os.unlink(source)


def _rename(source: str, target: str, flags: int) -> int:
    """Rename a file with `renameat2`, and return 0 or the error number; ENOSYS if the system lacks the call."""
    if sys.platform != "linux":
        return errno.ENOSYS
    try:
        import ctypes

        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (ImportError, OSError, AttributeError):
        return errno.ENOSYS
    status: int = call(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), flags)
    return 0 if status == 0 else ctypes.get_errno()
