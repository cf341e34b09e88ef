"""The command line in tests: run in this process, with its own streams."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from cfglint_train.foundation import filesystem
from cfglint_train.front import cli, process
from tests.support.linting import change_directory

# Removed from the environment, so that the machine's colours and CI do not matter.
_UNSET_VARIABLES = ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "GITHUB_ACTIONS", "GITHUB_WORKSPACE", "TERM")


class Outcome(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class _Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def run_cfglint(
    *arguments: str | Path,
    cwd: Path,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
    encoding: str = "utf-8",
    terminal: bool = False,
    replayed: bool = False,
) -> Outcome:
    """Run cfglint in this process with `cwd` as the working directory.

    `replayed`: as the console script does, which replays and stores reports if `front.replay` finds an installation.
    """
    run = process.run if replayed else cli.main
    kind = _Terminal if terminal else io.TextIOWrapper
    out, err = kind(io.BytesIO(), encoding), kind(io.BytesIO(), encoding, errors="backslashreplace")
    inherited = {name: value for name, value in os.environ.items() if name not in _UNSET_VARIABLES}
    with (
        change_directory(cwd),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin))),
        mock.patch.object(sys, "stdout", out),
        mock.patch.object(sys, "stderr", err),
        mock.patch.dict(os.environ, {**inherited, **(environment or {})}, clear=True),
    ):
        try:
            code = run([str(argument) for argument in arguments])
        except SystemExit as leaving:
            code = leaving.code
        finally:
            filesystem.discard_record()
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode(encoding))
    assert isinstance(code, int)
    return Outcome(code, *texts)
