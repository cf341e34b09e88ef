"""The only module that starts other programs: git, pip and uv for `cfglint init`, and the command of a preflight."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence

from cfglint_train.foundation.typed import Final, NoReturn

ROOT: Final = os.path.abspath(os.sep)
SECONDS: Final = 120


def run(name: str, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run a program and return its result. Raise FileNotFoundError and subprocess.TimeoutExpired.

    The working directory is the root of the file system, and relative entries of PATH are ignored. Therefore, the
    program does not find settings (uv.toml, a git repository), modules or programs in the folder that is linted.
    """
    folders = [folder for folder in os.get_exec_path() if os.path.isabs(folder)]
    path = shutil.which(name, path=os.pathsep.join(folders))
    if path is None or not os.path.isabs(path):  # Windows may find it in the working directory
        raise FileNotFoundError(name)
    command = [path, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False, timeout=SECONDS)


_IGNORED_BY_PYTHON: Final = ("SIGPIPE", "SIGXFSZ")
"""Signals that Python ignores when it starts; a program that replaces it would ignore them as well."""


def replace_process(command: Sequence[str]) -> NoReturn:
    """Replace this process with a command, so that its exit code, signals and terminal are those of the command.

    Windows cannot replace a process: wait for the command and exit with its exit code. Raise OSError if the command
    cannot be started.
    """
    if os.name == "nt":
        raise SystemExit(subprocess.run(command, check=False).returncode)
    for name in _IGNORED_BY_PYTHON:
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    os.execvp(command[0], list(command))
