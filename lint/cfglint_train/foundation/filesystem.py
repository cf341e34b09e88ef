"""Questions to the file system. While they are recorded, a report can name everything that it rests on.

Every module that a lint uses asks here instead of in `os`. A recorded answer is one of these:

- the type of a path (absent, file, folder), for questions such as `is_file`;
- the whole status of a path (mode, inode, device, size, times), for a file that is read and a folder that is listed:
  any later change of the file, or of the names in the folder, changes its ctime;
- the path that remains after links are followed.

A status is taken before the content is read. It is not trusted if the path changed just before: it might change again
within the same clock tick. A record with such an answer is dropped.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from errno import EACCES, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR

from cfglint_train.foundation.typed import TypeVar

Outcome = TypeVar("Outcome")

TICK = 2_000_000_000
"""Length of a clock tick on the coarsest file system, in nanoseconds."""

MARKS = (".git", ".hg")
"""Folder entries that mark the root of a repository.

`.git` takes precedence over a `.hg` below it: git can track a folder named `.hg`, but not a folder named `.git`.
"""

_TYPE, _LINK_TYPE, STATUS, _LINK_STATUS, _TARGET = "tTsSr"
"""First character of a question: an uppercase letter does not follow a link at the end of the path."""

MAX_ANSWERS = 2**15
"""Maximum number of files of one search whose status is recorded: with more, a report would be too large to store."""

_MASK = 0o170000
_FILE = 0o100000
_FOLDER = 0o040000
_LINK = 0o120000

_LASTING_ERRORS = (EACCES, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR)
"""Errors that follow from the state of the disk; others, such as too many open files, may not return."""

_answers: dict[str, str] | None = None
_is_dropped = False
"""True if the record was dropped since its start: a time limit may drop it while it is set aside."""
_trusted_until = 0


def start_recording() -> None:
    """Record all questions from now on."""
    global _answers, _is_dropped, _trusted_until
    _answers, _is_dropped, _trusted_until = {}, False, time.time_ns() - TICK


def stop_recording() -> dict[str, str] | None:
    """Stop recording and return the answers by question, or None if they do not determine the report."""
    global _answers
    answers, _answers = _answers, None
    return answers


def discard_record() -> None:
    """Drop the record, because the report also rests on something else: a time limit, or a file that just changed."""
    global _answers, _is_dropped
    _answers, _is_dropped = None, True


def expect_answers(number: int) -> None:
    """Drop the record if so many files are searched that their answers would be too many to store."""
    if number > MAX_ANSWERS:
        discard_record()


def run_unrecorded(work: Callable[[], Outcome]) -> Outcome:
    """Run work on files that no report rests on, such as those of a cache. A time limit still drops the record."""
    global _answers  # noqa: PLW0603
    answers, _answers = _answers, None
    try:
        return work()
    finally:
        _answers = None if _is_dropped else answers


def get_answers() -> dict[str, str] | None:
    """Return the answers so far, or None if there is no record."""
    return _answers


def forget_answers() -> None:
    """Empty the record if there is one."""
    if _answers is not None:
        _answers.clear()


def add_answers(answers: dict[str, str] | None) -> None:
    """Add the answers of a forked process; None drops the record."""
    if answers is None:
        discard_record()
        return
    for question, answer in answers.items():
        _record(question, answer)


def ask(question: str) -> str:
    """Return the current answer to a recorded question."""
    kind, path = question[0], question[1:]
    if kind == _TARGET:
        return os.path.realpath(path)
    try:
        status = os.stat(path) if kind in (_TYPE, STATUS) else os.lstat(path)
    except OSError as error:
        return _describe_error(error)
    return str(status.st_mode & _MASK) if kind in (_TYPE, _LINK_TYPE) else _describe(status)


def exists(path: str) -> bool:
    """Return whether a path exists after links are followed, like `os.path.exists`."""
    return _find_type(path) != 0


def is_file(path: str) -> bool:
    """Return whether a path is a regular file after links are followed, like `os.path.isfile`."""
    return _find_type(path) == _FILE


def is_folder(path: str) -> bool:
    """Return whether a path is a folder after links are followed, like `os.path.isdir`."""
    return _find_type(path) == _FOLDER


def is_link(path: str) -> bool:
    """Return whether a path is a link, like `os.path.islink`."""
    return _find_type(path, follow=False) == _LINK


def is_present(path: str) -> bool:
    """Return whether a path exists, even as a broken link, like `os.path.lexists`."""
    return _find_type(path, follow=False) != 0


def get_status(path: str) -> os.stat_result:
    """Return the status of a path after links are followed, like `os.stat`. Raise OSError and ValueError."""
    return _read_status(STATUS, path)


def get_link_status(path: str) -> os.stat_result:
    """Return the status of a path without following a link at its end, like `os.lstat`. Raise OSError, ValueError."""
    return _read_status(_LINK_STATUS, path)


def list_link_statuses(paths: Iterable[str]) -> Iterator[os.stat_result]:
    """Yield the status of each path without following a link at its end. Raise OSError and ValueError."""
    return map(os.lstat if _answers is None else get_link_status, paths)


def get_size(path: str) -> int:
    """Return the size of a file in bytes, like `os.path.getsize`. Raise OSError and ValueError."""
    return get_status(path).st_size


def resolve(path: str) -> str:
    """Return the path after all links are followed, like `os.path.realpath`. Raise ValueError."""
    target = os.path.realpath(path)
    if _answers is not None:
        _record(_TARGET + path, target)
    return target


def expand_home(path: str) -> str:
    """Expand `~`, like `os.path.expanduser`. Raise ValueError."""
    if _answers is not None and path[:1] == "~" and (path[1:2] not in ("", "/") or "HOME" not in os.environ):
        discard_record()  # the password database is asked
    return os.path.expanduser(path)


def list_names(folder: str) -> list[str]:
    """Return the names in a folder, like `os.listdir`. Raise OSError and ValueError."""
    get_status(folder or ".")
    try:
        return os.listdir(folder or ".")
    except OSError as error:
        note_failure(error)
        raise


def scan(folder: str) -> os._ScandirIterator[str]:
    """Return the entries of a folder, like `os.scandir`; ask them no question that follows links.

    Raise OSError and ValueError.
    """
    get_status(folder or ".")
    try:
        return os.scandir(folder or ".")
    except OSError as error:
        note_failure(error)
        raise


def walk(top: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each folder from the top down with its subfolders and its other names, like `os.walk`.

    The caller may remove and sort subfolders. A link is no subfolder. Unreadable folders are left out.
    """
    pending = [top]
    while pending:
        folder = pending.pop()
        folders: list[str] = []
        names: list[str] = []
        try:
            with scan(folder) as entries:
                for entry in entries:
                    (folders if entry.is_dir(follow_symlinks=False) else names).append(entry.name)
        except OSError:
            continue
        yield folder, folders, names
        pending += [os.path.join(folder, name) for name in reversed(folders)]


def note_status(path: str, status: os.stat_result) -> None:
    """Record the status of an open file that was not reached through a link at the end of its path."""
    if _answers is not None:
        _record(_LINK_STATUS + path, _describe(status), status)


def note_failure(error: OSError, path: str | None = None) -> None:
    """Record that a path could not be opened; its status says why, or the record is dropped.

    `path` is None if the status was recorded before the attempt.
    """
    if _answers is None:
        return
    if path is not None:
        try:
            get_link_status(path)
        except (OSError, ValueError):
            return
    if error.errno not in (EACCES, ELOOP, ENOTDIR):  # the mode says that it is no folder
        discard_record()


def note_files(paths: Iterable[str]) -> None:
    """Record the status of files that must exist; the record is dropped if one does not."""
    for path in paths:
        try:
            get_status(path)
        except (OSError, ValueError):
            discard_record()


def note_modules() -> None:
    """Record the status of the files of all modules that this process has imported."""
    if _answers is not None:
        note_files(_list_dependencies())


def find_repository(path: str) -> str | None:
    """Return the root of the git or Mercurial repository that contains a file or folder, or None."""
    for mark in MARKS:
        folder, last = os.path.abspath(path), ""
        while folder != last:
            if exists(os.path.join(folder, mark)):
                return folder
            folder, last = os.path.dirname(folder), folder
    return None


def _list_dependencies() -> list[str]:
    """Return the files of all imported modules that neither cfglint nor Python installs."""
    checked = ("cfglint_train", "cfglint_rules", "cfglint_schemas", "__main__")  # by the list of installed files
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] not in checked]
    paths = (getattr(module, "__file__", None) for module in modules)
    standard = os.path.dirname(os.__file__) + os.sep
    packages = (f"{standard}site-packages{os.sep}", f"{standard}dist-packages{os.sep}")
    return [path for path in paths if path and (not path.startswith(standard) or path.startswith(packages))]


def _find_type(path: str, follow: bool = True) -> int:
    """Return the type of a path as in its mode, or 0 if it does not exist."""
    try:
        status = os.stat(path) if follow else os.lstat(path)
    except OSError as error:
        kind, answer = 0, _describe_error(error)
    except ValueError:  # not a file name, now and always
        return 0
    else:
        kind = status.st_mode & _MASK
        answer = str(kind)
    if _answers is not None:
        _record((_TYPE if follow else _LINK_TYPE) + path, answer)
    return kind


def _read_status(kind: str, path: str) -> os.stat_result:
    try:
        status = os.stat(path) if kind == STATUS else os.lstat(path)
    except OSError as error:
        if _answers is not None:
            _record(kind + path, _describe_error(error))
        raise
    if _answers is not None:
        _record(kind + path, _describe(status), status)
    return status


def _record(question: str, answer: str, status: os.stat_result | None = None) -> None:
    """Record an answer; drop the record if it contradicts an earlier answer or may change unnoticed."""
    if _answers is None:
        return
    is_recent = status is not None and max(status.st_mtime_ns, status.st_ctime_ns) >= _trusted_until
    if is_recent or answer == "" or _answers.setdefault(question, answer) != answer:
        discard_record()


def _describe(status: os.stat_result) -> str:
    return (
        f"{status.st_mode} {status.st_ino} {status.st_dev} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
    )


def _describe_error(error: OSError) -> str:
    """Return the number of an error that follows from the state of the disk, or an empty text."""
    return f"!{error.errno}" if error.errno in _LASTING_ERRORS else ""
