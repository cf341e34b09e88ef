"""Two kinds of rename that `os` lacks (Linux: renameat2): an exchange, and a rename that never replaces a file."""

from __future__ import annotations

import errno
import os
import sys

from cfglint_train.foundation.typed import Final

_AT_FDCWD: Final = -100
"""AT_FDCWD: relative paths are relative to the working directory."""
_NO_REPLACE: Final = 1
"""RENAME_NOREPLACE (linux/fs.h)."""
_EXCHANGE: Final = 2
"""RENAME_EXCHANGE (linux/fs.h)."""


def exchange(first: str, second: str) -> bool:
    """Exchange two names; return False, with nothing changed, if the system or the file system cannot do that."""
    return _rename(first, second, _EXCHANGE) == 0


def rename_new(source: str, target: str) -> None:
    """Rename a file to a free name in one step; raise OSError, or FileExistsError if the name is in use.

    If the system cannot do that, the file has both names for a moment. On Windows, `os.rename` never replaces a file.
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
    """Rename a file with `renameat2` and return the error number, 0 for success."""
    if sys.platform != "linux":
        return errno.ENOSYS
    try:
        import ctypes

        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (ImportError, OSError, AttributeError):
        return errno.ENOSYS
    status: int = call(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), flags)
    return 0 if status == 0 else ctypes.get_errno()
