"""Commands killed at each system call that changes the disk: every file stays whole, and no temporary file remains."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.configs import AXOLOTL, DEEPSPEED
from tests.support.corpus import REPOSITORY
from tests.support.skips import skip_inapplicable

pytestmark = pytest.mark.slow

ROOTS = os.pathsep.join(str(REPOSITORY / root) for root in ("lint", "rules", "schemas"))
COMMAND = [sys.executable, "-m", "cfglint_train"]
LINT = ("--isolated", "--no-cache", "--select", "BAT001,KEY001")
FIXED = {
    "main.yaml": AXOLOTL + "deepspeed: ds.json\nsequence_lenn: 1024\n",
    "ds.json": DEEPSPEED,
    "more/ds.json": DEEPSPEED.replace("100", "200"),
}
SOURCE = ("--source", "==0.1.0", "--no-check-source")
PROJECT = {"main.yaml": AXOLOTL, "pyproject.toml": '[project]\nname = "x"\nversion = "1"\n'}
# The arguments, the files before, the files that change, and the new files.
COMMANDS = {
    "fix": ((*LINT, "--fix", "."), FIXED, set(FIXED), set()),
    "init": (
        ("init", "--yes", "--no-pre-commit", *SOURCE),
        PROJECT,
        {"pyproject.toml"},
        {".github/workflows/cfglint.yml"},
    ),
}
WRITING = ("openat", "write", "fsync", "chmod", "chown", "setxattr", "renameat2", "rename", "unlink", "close")
_CALL = re.compile(r"(\w+)\((.*)")


def run_command(folder: Path, words: tuple[str, ...], *before: str) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONPATH": ROOTS, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    return subprocess.run([*before, *COMMAND, *words], cwd=folder, env=environment, capture_output=True, check=False)


def read_files(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def write_files(folder: Path, files: Mapping[str, str]) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def list_writing_calls(log: str) -> list[tuple[str, int]]:
    """Return the calls between the first and the last temporary file.

    Each is a name and the number of calls of that name so far.
    """
    calls = [match for line in log.splitlines() if (match := _CALL.match(line))]
    counts: Counter[str] = Counter()
    numbered = []
    for call in calls:
        counts[call[1]] += 1
        numbered.append((call[1], counts[call[1]], ".cfglint-" in call[2]))
    temporary_calls = [at for at, (*_, is_temporary) in enumerate(numbered) if is_temporary]
    return [(name, count) for name, count, _ in numbered[temporary_calls[0] : temporary_calls[-1] + 2]]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_kill_at_any_call_loses_nothing_and_leaves_nothing(command: str, tmp_path: Path) -> None:
    strace = shutil.which("strace")
    if strace is None:
        if sys.platform != "linux":
            skip_inapplicable("strace is a program of Linux")
        pytest.skip("strace is not installed")
    words, old, changed, added = COMMANDS[command]
    fresh, log = write_files(tmp_path / "work", old), tmp_path / "log"
    process = run_command(fresh, words, strace, "-qq", "-o", str(log), "-e", f"trace={','.join(WRITING)}")
    assert process.returncode in (0, 1), process.stderr.decode()
    new = read_files(fresh)
    assert new.keys() == old.keys() | added
    assert {name for name, text in old.items() if new[name] != text} == changed
    calls = list_writing_calls(log.read_text())
    assert {name for name, _ in calls} >= {"openat", "write", "fsync", "chmod"}
    leftover_count = 0
    for name, count in calls:
        write_files(fresh, old)
        killed = run_command(
            fresh, words, strace, "-qq", "-o", str(log), "-e", f"inject={name}:signal=KILL:when={count}"
        )
        assert killed.returncode == -signal.SIGKILL, (name, count, killed.stderr.decode())
        contents = read_files(fresh)
        for path, text in old.items():
            assert contents.pop(path) in (text, new[path]), (name, count, path)
        for path in added & contents.keys():
            assert contents.pop(path) == new[path], (name, count, path)
        for path in contents:
            leftover_count += 1
            assert ".cfglint-" in path
            os.utime(fresh / path, (time.time() - 3600, time.time() - 3600))
        again = run_command(fresh, words)
        assert again.returncode in (0, 1), again.stderr.decode()
        assert read_files(fresh) == new, (name, count)
    assert leftover_count > 0
