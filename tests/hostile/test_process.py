"""The process: closed streams, readers that leave, odd folders and names, interruptions, bare environments."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cfglint_train.foundation import deadline
from cfglint_train.foundation.budget import Budget
from tests.support.configs import AXOLOTL
from tests.support.corpus import REPOSITORY
from tests.support.pace import measure_block

pytestmark = pytest.mark.slow

ROOTS = os.pathsep.join(str(REPOSITORY / root) for root in ("lint", "rules", "schemas"))
COMMAND = f'"{sys.executable}" -m cfglint_train'
CLEAN, FINDINGS = AXOLOTL, AXOLOTL + "lora_rr: 8\n"
CRASH_SIGNS = ("Traceback", "please report it")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "clean.yaml").write_text(CLEAN)
    (tmp_path / "found.yaml").write_text(FINDINGS)
    return tmp_path


def run_shell(script: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    settings = {**os.environ, "PYTHONPATH": ROOTS, **environment}
    process = subprocess.run(
        ["bash", "-c", script], cwd=cwd, env=settings, capture_output=True, check=False, timeout=300
    )
    assert not any(sign.encode() in process.stdout + process.stderr for sign in CRASH_SIGNS), process.stderr.decode()
    return process


@pytest.mark.parametrize(("file", "code"), [("clean.yaml", 0), ("found.yaml", 1)])
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_closed_streams(here: Path, file: str, code: int, closed: str) -> None:
    select = "--select KEY001"
    assert run_shell(f"{COMMAND} {select} {file} {closed}", here).returncode == code


def test_standard_input_that_is_closed_is_empty(here: Path) -> None:
    assert run_shell(f"{COMMAND} - <&-", here).returncode == 0


@pytest.mark.parametrize(("file", "code"), [("clean.yaml", 0), ("found.yaml", 1)])
@pytest.mark.parametrize("form", ["text", "json", "html"])
def test_a_reader_that_leaves_does_not_change_the_exit_code(here: Path, file: str, code: int, form: str) -> None:
    script = f"{COMMAND} --select KEY001 --output-format {form} {file} | true; echo ${{PIPESTATUS[0]}}"
    assert run_shell(script, here).stdout.decode().strip() == str(code)


def test_a_full_disk_is_told(here: Path) -> None:
    process = run_shell(f"env -u PYTHONUNBUFFERED {COMMAND} found.yaml > /dev/full", here)
    assert process.returncode == 2
    assert process.stderr.splitlines() == [b"cfglint: No space left on device"]


def test_deep_folders(here: Path) -> None:
    folder = os.open(here, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=folder)
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    try:
        assert run_shell(f"{COMMAND} --select KEY001", here).returncode == 1
        (here / "found.yaml").unlink()
        assert run_shell(f"{COMMAND} --select KEY001", here).returncode == 0
    finally:
        run_shell("rm -rf d", here)


def test_a_deleted_folder(here: Path) -> None:
    process = run_shell(f"mkdir gone && cd gone && rmdir ../gone && {COMMAND}", here)
    assert process.returncode == 2
    assert b"No such file or directory" in process.stderr


BARE = [{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"HOME": ""}, {}]


@pytest.mark.parametrize("environment", BARE)
@pytest.mark.parametrize("form", ["text", "json", "sarif", "github"])
def test_names_that_are_not_utf_8(here: Path, environment: dict[str, str], form: str) -> None:
    with open(os.path.join(os.fsencode(here), b"caf\xe9.yaml"), "wb") as file:
        file.write(FINDINGS.encode())
    (here / "日本.yaml").write_text(FINDINGS, encoding="utf-8")
    unset = "" if "HOME" not in environment else "unset HOME; "
    process = run_shell(f"{unset}{COMMAND} --select KEY001 --output-format {form}", here, **environment)
    assert process.returncode == 1
    assert process.stdout.count(b"lora_rr") >= 3


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.1, 0.2])
def test_an_interruption_is_130_whenever_it_comes(here: Path, delay: float) -> None:
    ready = "import cfglint_train.front.process as p; p._open_streams = lambda: print(1, flush=True); p.main()"
    process = subprocess.Popen(
        [sys.executable, "-c", ready, "-"],
        cwd=here, env={**os.environ, "PYTHONPATH": ROOTS}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert b"Traceback" not in err


def test_time_that_is_up_ends_the_work() -> None:
    def run_forever(_: None) -> None:
        while True:
            try:
                sum(range(1000))
            except Exception:
                raise AssertionError from None

    with measure_block() as measured, pytest.raises(deadline.OutOfTime):
        deadline.run_within(Budget(0.2).compute_seconds_left, run_forever, None)
    assert measured.seconds < 2
    assert deadline.run_within(Budget(5).compute_seconds_left, lambda part: part + 1, 1) == 2
    assert signal.getsignal(signal.SIGVTALRM) == signal.SIG_DFL


def test_work_for_many_files_does_not_count() -> None:
    def spend(seconds: float) -> None:
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass

    def spend_and_return(seconds: float) -> str:
        deadline.run_untimed(lambda: spend(0.6))
        spend(seconds)
        return "done"

    assert deadline.run_within(Budget(0.4, deadline.read_clock).compute_seconds_left, spend_and_return, 0.0) == "done"
    with pytest.raises(deadline.OutOfTime):
        deadline.run_within(Budget(0.4, deadline.read_clock).compute_seconds_left, spend_and_return, 2.0)
    deadline.run_untimed(lambda: spend(0.0))
    assert signal.setitimer(signal.ITIMER_VIRTUAL, 0) == (0.0, 0.0)


BARE_SYSTEM = """
import os, sys
for name in ("fcntl", "resource", "pwd", "grp", "termios", "ctypes"):
    sys.modules[name] = None
for name in ("fork", "listxattr", "getxattr", "setxattr", "sched_getaffinity", "chown", "mkfifo"):
    if hasattr(os, name):
        delattr(os, name)
import _signal
for name in ("SIGVTALRM", "setitimer", "ITIMER_VIRTUAL"):
    delattr(_signal, name)
from cfglint_train.front.cli import main
sys.exit(main(sys.argv[1:]))
"""


LINT, FIX = ("--select", "KEY001", "--jobs", "4"), ("--select", "KEY001", "--fix", "--unsafe-fixes")
COPY = {"openrlhf/__init__.py": "", "openrlhf/cli/train_sft.py": "parser.add_argument('--ours')\n"}


def run_bare(here: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONPATH": ROOTS, "CFGLINT_CACHE_DIR": str(here / "cache")}
    command = [sys.executable, "-c", BARE_SYSTEM, *words]
    process = subprocess.run(command, cwd=here, env=environment, capture_output=True, check=False)
    assert b"Traceback" not in process.stderr
    return process


@pytest.mark.parametrize("words", [LINT, FIX])
def test_a_system_without_fork_or_timers(here: Path, words: tuple[str, ...]) -> None:
    for number in range(80):
        (here / f"more{number}.yaml").write_text(CLEAN)
    (here / ".cfglint-999999999-0").write_text("left behind")
    os.utime(here / ".cfglint-999999999-0", (0, 0))
    process = run_bare(here, *words)
    assert process.returncode == (0 if words is FIX else 1), process.stderr.decode()
    assert ("lora_rr" in (here / "found.yaml").read_text()) == (words is LINT)
    assert (here / ".cfglint-999999999-0").exists() == (words is LINT)


def test_a_fix_without_exchange_is_made_once_and_leaves_nothing(here: Path) -> None:
    assert run_bare(here, *FIX).returncode == 0
    fixed = (here / "found.yaml").read_text()
    assert run_bare(here, *FIX).returncode == 0
    assert (here / "found.yaml").read_text() == fixed
    assert sorted(path.name for path in here.iterdir()) == [".git", "clean.yaml", "found.yaml"]


def test_a_cache_without_fork_or_timers(here: Path) -> None:
    for name, text in COPY.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(text)
    (here / "run.sh").write_text("deepspeed --module openrlhf.cli.train_sft --ours 1 --theirs 2\n")
    first = run_bare(here, "--select", "KEY001", "run.sh")
    assert b"has no `--theirs`" in first.stdout
    assert b"has no --ours" not in first.stdout
    (entry,) = (here / "cache" / "vocabulary").iterdir()
    before = entry.stat().st_mtime_ns
    os.utime(entry, (1, 1))
    assert run_bare(here, "--select", "KEY001", "run.sh").stdout == first.stdout
    assert entry.stat().st_mtime_ns >= before  # it counts as used again


@pytest.mark.parametrize("words", [("estimate", "."), ("fit", "."), ("migrate", "--to", "axolotl", ".")])
def test_other_commands_without_fork_or_timers(here: Path, words: tuple[str, ...]) -> None:
    assert run_bare(here, *words).returncode in (0, 1, 2)
