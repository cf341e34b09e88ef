"""Runs of cfglint for the pages, which show real output, not a copy made by hand."""

from __future__ import annotations

import io
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

from cfglint_train.front.cli import main

REPOSITORY = Path(__file__).resolve().parents[2]
_COLUMNS = "100"
# Variables of the build machine that would change colours or reports.
_REMOVED_VARIABLES = ("NO_COLOR", "FORCE_COLOR", "GITHUB_ACTIONS", "GITHUB_WORKSPACE", "CI", "TERM")


class _Terminal(io.TextIOWrapper):
    """Stream that counts as a terminal, so that long messages are wrapped and not cut off by the page."""

    def isatty(self) -> bool:
        return True


@contextmanager
def _enter_folder(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def copy_to_repository(folder: Path) -> Iterator[Path]:
    """Yield a copy of the folder as a repository of its own.

    In this repository, each run would first search all scripts.
    """
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / folder.name
        shutil.copytree(folder, copy)
        (copy / ".git").mkdir()
        yield copy


def run_cfglint(*arguments: str, folder: Path = REPOSITORY) -> str:
    """Return the output of the command in a folder.

    Raise RuntimeError if it could not do its work (exit code 2).
    """
    out, err = _Terminal(io.BytesIO(), "utf-8"), io.StringIO()
    environment = {name: value for name, value in os.environ.items() if name not in _REMOVED_VARIABLES}
    with (
        _enter_folder(folder),
        redirect_stdout(out),
        redirect_stderr(err),
        mock.patch.dict(os.environ, {**environment, "COLUMNS": _COLUMNS, "NO_COLOR": "1"}, clear=True),
    ):
        try:
            code = main(list(arguments))
        except SystemExit as leaving:
            code = int(leaving.code or 0)
    out.flush()
    text = out.buffer.getvalue().decode()
    if code == 2 and not text:
        raise RuntimeError(f"cfglint {shlex.join(arguments)}: {err.getvalue()}")
    return text + (err.getvalue() if not text else "")
