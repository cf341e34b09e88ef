"""Files that git tracks, read from the index of a checkout.

git itself is not run, because a repository can make git run programs.

Source: git's Documentation/gitformat-index.adoc, versions 2 to 4 (SHA-1 and SHA-256 names).
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_left

from cfglint_train.foundation import filesystem, regular_files
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final

_MAX_BYTES: Final = 2**26
"""Maximum size in bytes of an index, and of all its paths together: half a million entries of 100 bytes."""
_MAX_PATH: Final = 4096
_FORBIDDEN_STEPS: Final = (b"//", b"/./", b"/../", b"/.git/")
"""Path components that git never puts into an index: empty, `.`, `..` and `.git`."""
_STAT: Final = 40
"""Number of bytes of an entry before its object name."""
_MODE: Final = 26
"""Offset in an entry of the mode's byte whose upper four bits are the file type."""
_SUBMODULE: Final = 0o16
_EXTENDED: Final = 0x4000
_LENGTH: Final = 0xFFF
_PLAIN_FLAGS: Final = {length: bytes((0, length)) for length in range(256)}
"""The flags of nearly all entries by the length of the path: no bit is set beside those of the length."""


class TrackedFiles(Frozen):
    """The sorted paths that git tracks, relative to the root of the checkout, as bytes with forward slashes."""

    paths: tuple[bytes, ...] = ()
    submodules: tuple[bytes, ...] = ()
    """Paths in `paths` that are submodules."""

    def has_path(self, path: str) -> bool:
        """Return whether a path, relative to the root, or a file below it is tracked."""
        name = os.fsencode(path.replace(os.sep, "/"))
        at = bisect_left(self.paths, name)
        if at < len(self.paths) and self.paths[at] == name:
            return True
        at = bisect_left(self.paths, name + b"/")
        return at < len(self.paths) and self.paths[at].startswith(name + b"/")

    def has_files_in(self, folder: str, root: str) -> bool:
        """Return whether a tracked file lies directly in a folder.

        Compares folders by inode, so that links and other spellings of the folder count. Raise `OSError` if the folder
        does not exist.
        """
        top, folder_status = os.fsencode(root), os.stat(folder)
        for name in {os.path.dirname(path) for path in self.paths}:
            try:
                if os.path.samestat(os.stat(os.path.join(top, name)), folder_status):
                    return True
            except OSError:  # a tracked folder may be absent
                continue
        return False


def read_index(root: str) -> TrackedFiles | None:
    """Return the tracked files of a checkout, or None if its index cannot be read or is too large."""
    try:
        path = os.path.join(find_git_folder(root), "index")
    except OSError:
        return None
    try:
        source = regular_files.read_beginning(path, _MAX_BYTES + 1)
        if len(source) > _MAX_BYTES:
            return None
    except FileNotFoundError:
        return TrackedFiles()  # before the first `git add`
    except OSError:
        return None
    for hash_size in (20, 32):
        try:
            paths, submodules = _parse_paths(source, hash_size)
            return TrackedFiles(tuple(sorted(dict.fromkeys(paths))), tuple(submodules))
        except (ValueError, IndexError):
            continue
    return None


def get_index_status(root: str) -> os.stat_result | None:
    """Return the status of the index of a checkout, or None if it cannot be read."""
    try:
        path = os.path.join(find_git_folder(root), "index")
        regular_files.check_links(path)
        return filesystem.get_status(path)
    except OSError:
        return None


def find_git_folder(root: str) -> str:
    """Return the folder of a checkout's git data: `.git`, or the target of a `.git` file (worktrees, submodules).

    Raise `OSError` if git cannot have written the `.git` file, as in an unpacked archive. git's data for a worktree
    points back to the worktree, and its data for a submodule lies in the `.git` folder of the outer repository.
    """
    mark = os.path.join(root, ".git")
    if not filesystem.is_file(mark):
        return mark
    target = regular_files.read(mark).decode("utf-8", "surrogateescape").removeprefix("gitdir:").strip()
    folder = filesystem.resolve(os.path.join(root, target))
    outer_root = filesystem.find_repository(os.path.dirname(os.path.abspath(root)))
    if outer_root is not None and regular_files.is_below(folder, os.path.join(find_git_folder(outer_root), "modules")):
        return folder
    if os.path.basename(os.path.dirname(folder)) == "worktrees":
        back = regular_files.read_anywhere(os.path.join(folder, "gitdir")).decode("utf-8", "surrogateescape").strip()
        if filesystem.resolve(os.path.join(folder, back)) == filesystem.resolve(mark):
            return folder
    raise OSError(errno.EACCES, "does not point to a git folder of this checkout", mark)


def _parse_paths(source: bytes, hash_size: int) -> tuple[list[bytes], list[bytes]]:
    """Return the paths in an index, and the paths of submodules. A path may occur several times during a merge.

    Raise `ValueError` or `IndexError` if `source` is not a complete index with object names of `hash_size` bytes, or
    contains a path that git never adds: a path outside the checkout, or longer than 4096 bytes.
    """
    version, count = int.from_bytes(source[4:8], "big"), int.from_bytes(source[8:12], "big")
    if source[:4] != b"DIRC" or version not in (2, 3, 4):
        raise ValueError
    paths: list[bytes] = []
    submodules: list[bytes] = []
    at, last, bytes_left = 12, b"", _MAX_BYTES
    path_offset, may_have_submodules = _STAT + hash_size + 2, b"\0\0\xe0\0" in source
    for _ in range(count):
        start = at + path_offset
        end = source.index(b"\0", start)
        if version != 4 and source[start - 2 : start] == _PLAIN_FLAGS.get(end - start):
            last = source[start:end]
        else:
            flags = source[start - 2] << 8 | source[start - 1]
            drop, start = 0, start + (2 if flags & _EXTENDED else 0)
            if version == 4:
                drop, start = _read_varint(source, start)
            end = source.index(b"\0", start)
            last = (last[: len(last) - drop] if version == 4 else b"") + source[start:end]
            bytes_left -= len(last)
            if (len(last) != flags & _LENGTH and len(last) < _LENGTH) or bytes_left < 0 or len(last) > _MAX_PATH:
                raise ValueError
        paths.append(last)
        if may_have_submodules and source[at + _MODE] >> 4 == _SUBMODULE:
            submodules.append(last)
        at = end + 1 if version == 4 else end + 8 - (end - at) % 8
    if source[at : at + 4] == b"link":  # a split index: most paths are in another file
        raise ValueError
    text = b"/" + b"/\0/".join(paths) + b"/"
    if paths and any(step in text for step in _FORBIDDEN_STEPS):
        raise ValueError
    return paths, submodules


def _read_varint(source: bytes, at: int) -> tuple[int, int]:
    """Return the variable-width number at `at`, and the index after it (git's varint.c)."""
    byte = source[at]
    value = byte & 0x7F
    while byte & 0x80:
        at += 1
        byte = source[at]
        value = (value + 1 << 7) | byte & 0x7F
    return value, at + 1
