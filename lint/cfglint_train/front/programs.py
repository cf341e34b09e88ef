"""The only module that starts other programs: git, pip and uv for `cfglint init`, and the command of a preflight."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence

from cfglint_train.foundation.typed import Final

ROOT: Final = os.path.abspath(os.sep)
SECONDS: Final = 120


def run(
    name: str, *arguments: str, environment: Mapping[str, str] | None = None, text: bytes | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a program and return its result; `text` is its input. Raise FileNotFoundError and subprocess.TimeoutExpired.

    The working directory is the root of the file system, and relative entries of PATH are ignored. Therefore, the
    program does not find settings (uv.toml, a git repository), modules or programs in the folder that is linted.
    """
    folders = [folder for folder in os.get_exec_path() if os.path.isabs(folder)]
    path = shutil.which(name, path=os.pathsep.join(folders))
    if path is None or not os.path.isabs(path):  # Windows may find it in the working directory
        raise FileNotFoundError(name)
    command = [path, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, input=text, capture_output=True, check=False, timeout=SECONDS
    )


_IGNORED_BY_PYTHON: Final = ("SIGPIPE", "SIGXFSZ")
"""Signals that Python ignores when it starts; a program that replaces it would ignore them as well."""


_CONSOLE_SIGNALS: Final = ("SIGINT", "SIGBREAK")
"""Signals that a Windows console sends to all its programs: Ctrl-C and Ctrl-Break."""
_BATCH_FILES: Final = (".bat", ".cmd")
_READ_BY_CMD: Final = frozenset('"%&()<>^|!\r\n')
"""Characters of an argument that `cmd.exe` does not pass to a batch file as they are."""


def replace_process(command: Sequence[str]) -> int:
    """Replace this process with a command, so that its exit code, signals and terminal are those of the command.

    Windows cannot replace a process: wait for the command and return its exit code. Raise OSError if the command cannot
    be started.
    """
    if os.name == "nt":
        return wait_for_command([find_windows_program(command), *command[1:]])
    for name in _IGNORED_BY_PYTHON:
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    return os.execvp(command[0], list(command))


def find_windows_program(command: Sequence[str]) -> str:
    """Return the file of a command's program, whose extension may be omitted. Raise OSError.

    A batch file is started by `cmd.exe`, which would read some characters of its arguments as commands.
    """
    path = shutil.which(command[0])
    if path is None:
        raise FileNotFoundError(command[0])
    if path.lower().endswith(_BATCH_FILES) and not all(_READ_BY_CMD.isdisjoint(word) for word in command[1:]):
        raise OSError(f"cmd.exe would change an argument of {os.path.basename(path)}; start its program directly")
    return path


def wait_for_command(command: Sequence[str]) -> int:
    """Run a command to its end and return its exit code. Raise OSError.

    The console's signals reach the command, too. It decides how to react; this process only waits.
    """
    for name in _CONSOLE_SIGNALS:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), lambda *_: None)
    code = subprocess.Popen(command).wait()
    # Windows' exit codes have 32 bits without a sign (0xC000013A after Ctrl-C), but Python passes a signed number on.
    return code - (1 << 32) if code >= 1 << 31 else code
