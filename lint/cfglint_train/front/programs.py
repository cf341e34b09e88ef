"""The only module that starts other programs: pip and uv for `cfglint init`, and git."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping

from cfglint_train.foundation.typed import Final

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
