"""Scripts run by bash itself, with stub launchers that record their arguments."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.words import Word

BASH = shutil.which("bash")
needs_bash = pytest.mark.skipif(BASH is None, reason="no bash")

LAUNCHERS = (
    "python",
    "python3",
    "torchrun",
    "deepspeed",
    "accelerate",
    "ray",
    "srun",
    "mpirun",
    "uv",
    "axolotl",
    "llamafactory-cli",
    "nohup",
    "pip",
)

# Records its name and arguments, then runs the shell that srun would run on the node.
_STUB = """#!{bash}
{{ printf '%s\\0' "${{0##*/}}" "$@"; printf '\\1\\0'; }} >> "$RECORD"
case "${{0##*/}}" in
  srun) while [ $# -gt 0 ] && [ "$1" != bash ]; do shift; done; [ $# -gt 0 ] && exec "$@" ;;
esac
exit 0
"""


def write_stubs(folder: Path) -> Path:
    """Write the stub launchers into `folder` and return it."""
    folder.mkdir(exist_ok=True)
    for name in LAUNCHERS:
        path = folder / name
        path.write_text(_STUB.format(bash=BASH))
        path.chmod(0o755)
    return folder


def run_script(source: bytes, folder: Path, variables: Mapping[str, str] | None = None) -> list[list[str]]:
    """Return the name and arguments of each launcher call of a script, in order.

    `variables` are set in the environment of the script.
    """
    programs = write_stubs(folder / "stubs")
    record = folder / "record"
    record.write_bytes(b"")
    path = folder / "script.sh"
    path.write_bytes(source)
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "RECORD": str(record), "HOME": "/HOME", "LC_ALL": "C.UTF-8"}
    environment |= variables or {}
    subprocess.run(
        [str(BASH), str(path)],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=300,
        check=False,
    )
    calls: list[list[str]] = []
    call: list[str] = []
    for part in record.read_bytes().split(b"\0")[:-1]:
        if part == b"\1":
            calls.append(call)
            call = []
        else:
            call.append(part.decode("utf-8", "replace"))
    return calls


def list_commands(document: ShellDocument) -> list[tuple[Word, ...]]:
    """Return the words of every command of a script, including nested commands."""
    commands: dict[int, tuple[Word, ...]] = {}
    for invocation in document.invocations:
        if invocation.scope is not None:
            commands.setdefault(id(invocation.scope), invocation.scope.words)
    return list(commands.values())


def is_same_call(words: tuple[Word, ...], call: list[str], defaults: bool = True) -> bool:
    """Return whether a parsed command matches the call that bash made.

    Known words must be equal; others may be anything. With `defaults`, the environment sets nothing, so that assumed
    words must be equal too.
    """
    if not words or (words[0].is_known and os.path.basename(words[0].text) != call[0]):
        return False

    def match_from(index: int, position: int) -> bool:
        while index < len(words):
            word = words[index]
            certain = all(fragment.why == "" for fragment in word.fragments) and (defaults or not word.assumption)
            if word.is_optional and certain:
                consumed = call[position : position + 1] == [word.text] and match_from(index + 1, position + 1)
                return consumed or match_from(index + 1, position)
            if not word.is_known or not certain:
                if word.loose or word.is_optional or word.assumption:
                    return any(match_from(index + 1, later) for later in range(position, len(call) + 1))
                if position >= len(call):
                    return False
            elif position >= len(call) or word.text.replace("~", "/HOME", word.text.startswith("~")) != call[position]:
                return False
            index, position = index + 1, position + 1
        return position == len(call)

    return match_from(1, 1)
