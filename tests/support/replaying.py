"""Replays in tests: a fake installation, and the questions to the file system that nothing recorded."""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from cfglint_train.foundation import filesystem
from cfglint_train.front import replay


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, tick: int = 0) -> Path:
    """Pretend that cfglint is installed, so that reports are stored, and return their folder.

    With a `tick` of 0 nanoseconds, a test need not wait after it wrote a file: it changes none during a lint.
    """
    record = folder / "RECORD"
    record.write_text("")
    monkeypatch.setattr(replay, "_find_record", lambda: str(record))
    monkeypatch.setattr(filesystem, "_list_dependencies", list)
    monkeypatch.setattr(filesystem, "TICK", tick)
    monkeypatch.setenv("CFGLINT_CACHE_DIR", str(folder / "cache"))
    return folder / "cache" / replay.KIND


def read_questions(stored: Path) -> set[str]:
    """Return the questions in a stored report."""
    _, _, count, *rest = stored.read_text().split("\0")
    return set(rest[: int(count)])


_KINDS = {
    "stat": "ts", "lstat": "TS", "listdir": "s", "scandir": "s", "readlink": "", "access": "", "open": "sS",
    "realpath": "r", "expanduser": "", "walk": "",
}  # fmt: skip
"""Function -> the kinds of questions of which one must be recorded; none: no lint may call it below the folder."""


@contextmanager
def watch(folder: Path, calls: set[tuple[str, str]]) -> Iterator[None]:
    """Add every call of a function that asks the file system about a path below `folder` to `calls`.

    `ask` compares an earlier report, on which the new report does not rest.
    """
    root = str(folder)

    def spy(name: str, function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **words: object) -> object:
            path = arguments[0] if arguments else "."
            caller = sys._getframe(1).f_code.co_name
            if isinstance(path, (str, bytes)) and caller not in ("ask", "realpath", "_joinrealpath", "spy"):
                text = os.fsdecode(path)
                if os.path.abspath(text).startswith(root):
                    calls.add((name, text))
            return function(*arguments, **words)

        return call

    with (
        mock.patch.object(os, "stat", spy("stat", os.stat)),
        mock.patch.object(os, "lstat", spy("lstat", os.lstat)),
        mock.patch.object(os, "listdir", spy("listdir", os.listdir)),
        mock.patch.object(os, "scandir", spy("scandir", os.scandir)),
        mock.patch.object(os, "readlink", spy("readlink", os.readlink)),
        mock.patch.object(os, "access", spy("access", os.access)),
        mock.patch.object(os, "walk", spy("walk", os.walk)),
        mock.patch.object(os, "open", spy("open", os.open)),
        mock.patch.object(os.path, "realpath", spy("realpath", os.path.realpath)),
        mock.patch.object(builtins, "open", spy("open", builtins.open)),
    ):
        yield


def list_unrecorded(calls: set[tuple[str, str]], questions: set[str]) -> list[tuple[str, str]]:
    """Return the calls about which no question is recorded."""
    return sorted(
        (name, path) for name, path in calls if not any(f"{kind}{path}" in questions for kind in _KINDS[name])
    )
