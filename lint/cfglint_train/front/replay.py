"""Reports of earlier runs: print one again, without a lint, if everything that it rests on is unchanged.

A report rests on the call (arguments, working folder, environment, streams, user), on the installed code, and on the
answers of the file system that were recorded while it was made. It is replayed if all of them are the same.

Nothing is stored for a run that writes files, reads standard input or the network, fails, is interrupted, or reaches a
limit of time. This module imports little, because a replay takes hardly longer than the start of Python.

A forged report could print anything to the terminal. So a report must be a file that only this user can write, in such
a folder, and must name the status of the list of installed files: who writes an archive or a repository cannot foresee
its inode number and its times.
"""

from __future__ import annotations

import os
import sys

import cfglint_train
from cfglint_train.foundation import filesystem
from cfglint_train.foundation.cache_folder import can_be_planted, find_cache_folder
from cfglint_train.foundation.typed import Any, Final, TextIO

VARIABLES: Final = (
    "CI_PROJECT_DIR", "COLUMNS", "FORCE_COLOR", "FORCE_HYPERLINK", "GITHUB_WORKSPACE", "HF_HOME", "HF_HUB_CACHE",
    "HOME", "HUGGINGFACE_HUB_CACHE", "NO_COLOR", "TERM", "XDG_CACHE_HOME",
)  # fmt: skip
"""The environment variables that a lint reads."""

KIND: Final = "reports"
"""Subfolder of the cache."""
MAX_BYTES: Final = 4 * 2**20
"""Maximum size of a stored report with its answers."""

_FORMAT: Final = "1"
"""Version of the format of stored reports."""

_WRITABLE_BY_OTHERS: Final = 0o022

_TROUBLE: Final = 2


class _Copy:
    """A text stream that keeps a copy of what is written to it."""

    def __init__(self, stream: TextIO, mark: str, texts: list[str]) -> None:
        """Copy the texts that are written to `stream` to `texts`, each after `mark`."""
        self.stream = stream
        self._mark = mark
        self._texts = texts

    def write(self, text: str) -> int:
        """Write and copy a text; drop the record if the reader of the stream has exited."""
        try:
            size = self.stream.write(text)
        except OSError:
            filesystem.discard_record()
            raise
        self._texts.append(self._mark + text)
        return size

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the stream."""
        return getattr(self.stream, name)


class _Pending:
    """A run whose report may be stored: the cache folder, the name of the report, and the texts written so far."""

    def __init__(self, folder: str, name: str) -> None:
        """Start a run, and copy what it writes."""
        self.folder = folder
        self.name = name
        self.texts: list[str] = []
        sys.stdout = _Copy(sys.stdout, "1", self.texts)
        sys.stderr = _Copy(sys.stderr, "2", self.texts)


_pending: _Pending | None = None


def replay(arguments: list[str]) -> int | None:
    """Print the stored report of the same call and return its exit code, or start to record and return None."""
    global _pending  # noqa: PLW0603
    try:
        folder = _find_folder(arguments)
        record = _find_record()
        if folder is None or record is None or os.name != "posix":  # elsewhere, ctime is no time of a change
            return None
        reports = os.path.join(folder, KIND)
        if os.path.exists(reports) and not _is_own(os.stat(reports)):
            return None
        name = _compute_digest("\0".join(_describe_call(arguments)))
    except (OSError, ValueError):  # a working folder that was removed
        return None
    stored = _read(reports, name, record)
    if stored is not None:
        code, texts = stored
        return _print(texts) or code
    filesystem.start_recording()
    _pending = _Pending(folder, name)
    return None


def get_stream(stream: TextIO) -> TextIO:
    """Return the stream without its copy, for a display that is no part of the report."""
    return stream.stream if isinstance(stream, _Copy) else stream


def store(code: int, flag: str | None, setting: str | None) -> None:
    """Store the report of this run if its answers determine it. `flag` and `setting` name the cache folder.

    A folder that only the settings name is not used: a replay must not read the settings.
    """
    record = _find_record()
    if _pending is None or record is None or find_cache_folder(flag, setting) != _pending.folder:
        filesystem.discard_record()
        return
    filesystem.note_files([record])
    filesystem.note_modules()
    answers = filesystem.stop_recording()
    if answers is None:
        return
    fields = [str(code), str(len(answers)), *answers, *answers.values(), *_pending.texts]
    text = "\0".join(fields)
    if text.count("\0") == len(fields) - 1 and len(text) <= MAX_BYTES:
        from cfglint_train.foundation.cache import Cache

        Cache(KIND, _pending.folder).put(_pending.name, f"{_compute_digest(text)}\0{text}")


def _find_folder(arguments: list[str]) -> str | None:
    """Return the cache folder as the flags say, without a parser; `store` compares it with the parsed flags."""
    if "--no-cache" in arguments:
        return None
    flag = None
    for number, argument in enumerate(arguments):
        if argument == "--cache-dir":
            flag = arguments[number + 1] if number + 1 < len(arguments) else None
        elif argument.startswith("--cache-dir="):
            flag = argument.partition("=")[2]
    return find_cache_folder(flag, None)


def _find_record() -> str | None:
    """Return the list of installed files and their digests, or None in a checkout, whose code may change at any time.

    An installer writes a new list with every installation.
    """
    folder = os.path.dirname(os.path.dirname(os.path.abspath(cfglint_train.__file__)))
    path = f"{folder}/cfglint_train-{cfglint_train.__version__}.dist-info/RECORD"
    return path if os.path.isfile(path) else None


def _describe_call(arguments: list[str]) -> list[str]:
    """Return everything outside the file system that a report rests on."""
    facts = [_FORMAT, cfglint_train.__file__, cfglint_train.__version__, sys.version, str(sys.flags), os.getcwd()]
    facts += [str(os.geteuid()), str(os.getegid()), str(os.getgroups()), str(sys.warnoptions), str(sys.path)]
    facts += [f"{name}={os.environ.get(name)!r}" for name in VARIABLES]
    for stream in (sys.stdout, sys.stderr):
        is_terminal = stream.isatty()
        size = os.get_terminal_size(stream.fileno()) if is_terminal else None
        facts.append(f"{stream.encoding} {stream.errors} {is_terminal} {size}")
    return [*facts, *arguments]


def _compute_digest(text: str) -> str:
    """Return a digest of 64 hexadecimal digits; `hashlib` would double the time of a replay."""
    source = text.encode("utf-8", "surrogatepass")
    try:
        from _blake2 import blake2b
    except ImportError:
        from hashlib import blake2b
    digest: str = blake2b(source, digest_size=32).hexdigest()
    return digest


def _read(folder: str, name: str, record: str) -> tuple[int, list[str]] | None:
    """Return the exit code and the texts of a stored report, or None if there is none or something has changed.

    `record`: the list of installed files, whose status must be among the answers.
    """
    path = os.path.join(folder, name)
    try:
        with open(path, "rb", opener=_open_regular) as file:
            if not _is_own(os.fstat(file.fileno())):
                return None
            digest, _, text = file.read(MAX_BYTES * 4).decode("utf-8", "surrogatepass").partition("\0")
        if digest != _compute_digest(text) or can_be_planted(folder):
            return None
        code, number, *rest = text.split("\0")
        count = int(number)
        answers = dict(zip(rest[:count], rest[count : 2 * count], strict=True))
        if filesystem.STATUS + record not in answers:
            return None
        for question, answer in answers.items():
            if filesystem.ask(question) != answer:
                return None
    except (OSError, ValueError):
        return None
    _mark_as_used(path)
    return int(code), rest[2 * count :]


def _is_own(status: os.stat_result) -> bool:
    """Return whether a file or folder belongs to this user, and no other user but root can write it."""
    return status.st_uid == os.geteuid() and not status.st_mode & _WRITABLE_BY_OTHERS


def _mark_as_used(path: str) -> None:
    """Set the time by which the cache removes the least recently used reports, if the cache can be written."""
    try:
        os.utime(path)
    except OSError:
        return


def _open_regular(path: str, flags: int) -> int:
    """Open a file, but no link, and do not wait for a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _print(texts: list[str]) -> int:
    """Print the texts of a report, each to the stream that its mark names; return 0, or an exit code if that fails."""
    for text in texts:
        stream = sys.stdout if text[0] == "1" else sys.stderr
        try:
            stream.write(text[1:])
            stream.flush()
        except BrokenPipeError:  # the reader has exited (head, less); the exit code remains
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        except OSError as error:
            sys.stderr.write(f"cfglint: {error.strerror}\n")
            return _TROUBLE
    return 0
