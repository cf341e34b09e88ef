"""A report is printed again without a lint, only if everything that it rests on is unchanged."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from cfglint_train.foundation import cache, deadline, filesystem, pool
from cfglint_train.front import cli, replay
from tests.support.command import Outcome, run_cfglint
from tests.support.configs import AXOLOTL, BROKEN, DEEPSPEED, REMOTE_CODE, TWICE
from tests.support.replaying import install

VENDORED = Path(__file__).parents[2] / "fixtures" / "acceptance" / "forks" / "olmo-vendored-fields"

HOUR = 3600 * 10**9
FIND_RECORD = replay._find_record


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a repository with a finding."""
    folder = tmp_path / "repository"
    (folder / ".git").mkdir(parents=True)
    (folder / "a.yaml").write_text(TWICE)
    return folder


@pytest.fixture
def stored(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the reports of an installed cfglint."""
    return install(tmp_path, monkeypatch)


def lint(folder: Path, *words: str, **options: object) -> Outcome:
    return run_cfglint(*(words or ("a.yaml",)), cwd=folder, replayed=True, **options)  # type: ignore[arg-type]


def list_reports(stored: Path) -> list[Path]:
    return sorted(stored.iterdir()) if stored.is_dir() else []


def is_replayed(folder: Path, *words: str, **options: object) -> bool:
    """Return whether a call is answered without a lint, and check that the answer is that of a lint."""
    plain = run_cfglint(*(words or ("a.yaml",)), cwd=folder, **options)  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as context:
        calls = []
        context.setattr(cli, "main", lambda arguments, main=cli.main: calls.append(arguments) or main(arguments))
        assert lint(folder, *words, **options) == plain
    return not calls


@pytest.mark.parametrize("text", [AXOLOTL, TWICE, REMOTE_CODE])
@pytest.mark.parametrize("words", [("a.yaml",), (".", "--verbose"), (".", "--output-format", "sarif"), ("-q", ".")])
def test_a_second_run_is_replayed(folder: Path, stored: Path, text: str, words: tuple[str, ...]) -> None:
    (folder / "a.yaml").write_text(text)
    assert not is_replayed(folder, *words)
    assert is_replayed(folder, *words)
    [report] = list_reports(stored)
    assert report.stat().st_mode & 0o777 == 0o600, "a report quotes configurations"


def test_a_lint_of_a_vendored_copy_is_replayed(folder: Path, stored: Path) -> None:
    """Some parts of a copy are files, not folders, as their recorded modes say."""
    shutil.copytree(VENDORED, folder, dirs_exist_ok=True)
    assert not is_replayed(folder, ".")
    assert is_replayed(folder, ".")


@pytest.mark.skipif(sys.platform != "linux", reason="sets the width of a terminal as Linux does")
def test_colours_and_width_of_a_terminal_are_replayed(folder: Path, tmp_path: Path) -> None:
    time.sleep(0.01)
    texts = [run_in_terminal(folder, tmp_path, width) for width in (60, 60, 200, 200, 60)]
    assert "\x1b[" in texts[0]
    assert texts[0] == texts[1] == texts[4] != texts[2] == texts[3]
    assert len(list_reports(tmp_path / "cache" / replay.KIND)) == 2


def run_in_terminal(folder: Path, tmp_path: Path, width: int) -> str:
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    process = start(folder, tmp_path, stdout=theirs)
    assert process.wait() == 1
    os.close(theirs)
    text = os.read(ours, 65536).decode()
    os.close(ours)
    return text


CHANGES = {
    "arguments": lambda folder, context: ("b.yaml", "a.yaml"),
    "a file": lambda folder, context: (folder / "a.yaml").write_text(AXOLOTL),
    "a file, but not its size and time": lambda folder, context: change_silently(folder / "a.yaml"),
    "a new companion": lambda folder, context: (folder / "ds.json").write_text(DEEPSPEED),
    "new settings": lambda folder, context: (folder / "cfglint.toml").write_text('ignore = ["SYN"]\n'),
    "new settings above": lambda folder, context: (folder.parent / "cfglint.toml").write_text('ignore = ["SYN"]\n'),
    "no repository": lambda folder, context: (folder / ".git").rmdir(),
    "an outer repository": lambda folder, context: ((folder / ".git").rmdir(), (folder.parent / ".git").mkdir()),
    "the user": lambda folder, context: context.setattr(os, "geteuid", lambda: 4711),
    "the version": lambda folder, context: context.setattr("cfglint_train.__version__", "9.9.9"),
    "the installation": lambda folder, context: (folder.parent / "RECORD").write_text("x"),
    "the home": lambda folder, context: context.setenv("HOME", str(folder)),
    "a colour": lambda folder, context: context.setenv("FORCE_HYPERLINK", "1"),
}


def change_silently(path: Path) -> None:
    status = path.stat()
    path.write_text(TWICE.replace("micro_batch_size: 2", "micro_batch_size: 3"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_any_change_needs_a_lint(folder: Path, stored: Path, change, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a.yaml").write_text(TWICE + "deepspeed: ds.json\n")
    (folder / "b.yaml").write_text(AXOLOTL)
    assert not is_replayed(folder)
    assert is_replayed(folder)
    time.sleep(0.01)
    words = change(folder, monkeypatch)
    assert not is_replayed(folder, *(words if isinstance(words, tuple) and isinstance(words[0], str) else ()))


def test_what_changed_just_before_is_not_trusted(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two changes within a tick of the clock leave the same times."""
    stored = install(tmp_path, monkeypatch, filesystem.TICK)
    lint(folder)
    assert list_reports(stored) == []
    monkeypatch.setattr(filesystem, "time", SimpleNamespace(time_ns=lambda: time.time_ns() + HOUR))
    lint(folder)
    assert len(list_reports(stored)) == 1


@pytest.mark.parametrize("name", ["a.yaml", "."])
def test_the_future_is_not_trusted(folder: Path, stored: Path, name: str) -> None:
    os.utime(folder / name, ns=(time.time_ns() + HOUR,) * 2)
    lint(folder, ".")
    assert list_reports(stored) == []


@pytest.mark.parametrize(
    "words",
    [
        ("--fix", "a.yaml"), ("--fix-only", "a.yaml"), ("--diff", "a.yaml"), ("--add-ignore", "a.yaml"),
        ("--write-baseline", "a.yaml"), ("--output-file", "report.txt", "a.yaml"), ("-",), ("--no-cache", "a.yaml"),
        ("--no-cach", "a.yaml"), ("--cache-dir", "", "a.yaml"), ("--online", "a.yaml"), ("absent.yaml",),
        ("broken.yaml",), ("--nonsense",), ("--max-cpu-seconds", "0.000001", "a.yaml"), ("estimate", "a.yaml"),
        ("rule", "SYN003"), ("--version",),
    ],
    ids=" ".join,
)  # fmt: skip
def test_nothing_else_is_stored(folder: Path, stored: Path, words: tuple[str, ...]) -> None:
    (folder / "broken.yaml").write_bytes(BROKEN.encode() + b"\xff")
    lint(folder, *words, stdin=TWICE.encode())
    assert list_reports(stored) == []


@pytest.mark.parametrize("named_by", ["settings", "variable", "flag"])
def test_a_folder_that_only_the_settings_name_is_not_used(
    folder: Path, stored: Path, tmp_path: Path, named_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "cfglint.toml").write_text('cache-dir = "own"\n')
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    if named_by != "variable":
        monkeypatch.delenv("CFGLINT_CACHE_DIR")
    words = ("--cache-dir", str(stored.parent), "a.yaml") if named_by == "flag" else ("a.yaml",)
    for is_known in (False, named_by != "settings"):
        assert is_replayed(folder, *words) == is_known
    assert len(list_reports(stored)) == (named_by != "settings")
    assert not [*(tmp_path / "home").rglob("*"), *list_reports(folder / "own" / replay.KIND)]


def test_an_empty_variable_switches_it_off(folder: Path, stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CFGLINT_CACHE_DIR", "")
    lint(folder)
    assert not is_replayed(folder)


def test_a_checkout_stores_nothing() -> None:
    """Its code may change at any time without another version."""
    assert FIND_RECORD() is None


def list_damages(source: bytes) -> Iterator[bytes]:
    yield b""
    yield source[:-1]
    yield source[: len(source) // 2]
    yield source.replace(b"SYN003", b"SYN002")
    yield b"\xff" + source
    yield source.replace(b"\0", b"\n")


@pytest.mark.parametrize("number", range(6))
def test_a_damaged_report_is_replaced(folder: Path, stored: Path, number: int) -> None:
    lint(folder)
    [report] = list_reports(stored)
    source = report.read_bytes()
    report.write_bytes(list(list_damages(source))[number])
    assert not is_replayed(folder)
    assert is_replayed(folder)
    assert report.read_bytes() == source


@pytest.mark.parametrize("kind", ["folder", "pipe", "link", "foreign"])
def test_what_is_no_report_is_not_read(folder: Path, stored: Path, tmp_path: Path, kind: str) -> None:
    lint(folder)
    [report] = list_reports(stored)
    report.rename(tmp_path / "moved")
    if kind == "folder":
        report.mkdir()
    elif kind == "pipe":
        os.mkfifo(report)
    elif kind == "link":
        report.symlink_to(tmp_path / "moved")
    else:
        report.write_text(f"{replay._compute_digest('x')}\0x")
    assert not is_replayed(folder)


@pytest.mark.parametrize("place", ["full", "absent"])
def test_a_cache_that_cannot_be_written_changes_nothing(
    folder: Path, stored: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if place == "absent":
        monkeypatch.setenv("CFGLINT_CACHE_DIR", "/dev/null/x")
    else:
        monkeypatch.setattr(cache, "_open_private", lambda path, flags: os.open("/dev/full", os.O_WRONLY))
    assert not is_replayed(folder)
    assert not is_replayed(folder)
    assert list_reports(stored) == []


def test_old_reports_are_removed(folder: Path, stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_FILES", 3)
    for number in range(5):
        lint(folder, "a.yaml", "--jobs", str(number + 1))
    assert len(list_reports(stored)) == 3


def test_a_report_cannot_be_planted(folder: Path, stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A forged report is printed from a folder that only this user writes, but not from one that git tracks."""
    (folder / ".git").rmdir()
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    (folder / ".gitignore").write_text("own/\n")
    subprocess.run(["git", "add", "--all"], cwd=folder, check=True)
    monkeypatch.setenv("CFGLINT_CACHE_DIR", "own")
    (folder / "own").mkdir()
    for _ in range(2):  # the first run creates the folder
        time.sleep(0.01)
        lint(folder)
    [report] = list_reports(folder / "own" / replay.KIND)
    text = report.read_text().partition("\0")[2].replace("SYN003", "SYN999")
    report.write_text(f"{replay._compute_digest(text)}\0{text}")
    assert "SYN999" in lint(folder).out, "the forgery has no effect: the test proves nothing"
    subprocess.run(["git", "add", "--force", "own"], cwd=folder, check=True)
    index = folder / ".git" / "index"
    forged = text.split("\0")
    answers = dict(zip(forged[2:], forged[2 + int(forged[1]) :], strict=False))
    assert any(str(index) in question for question in answers)
    for question in list(answers)[: int(forged[1])]:  # an author who could even foresee the index
        forged[2 + int(forged[1]) + list(answers).index(question)] = filesystem.ask(question)
    text = "\0".join(forged)
    report.write_text(f"{replay._compute_digest(text)}\0{text}")
    assert "SYN999" not in lint(folder).out


@pytest.mark.parametrize("forgery", ["none", "negative", "short", "old", "right"])
def test_nor_by_the_author_of_an_archive(
    folder: Path, stored: Path, tmp_path: Path, forgery: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a repository, nothing shows which files came with the archive. Its author cannot foresee RECORD's status.

    `right` has this status: it shows that everything else is right in the forgeries.
    """
    (folder / ".git").rmdir()
    monkeypatch.setenv("CFGLINT_CACHE_DIR", "own")
    (folder / "own").mkdir()
    for _ in range(2):  # the first run creates the folder
        time.sleep(0.01)
        lint(folder)
    [report] = list_reports(folder / "own" / replay.KIND)
    question = f"s{tmp_path / 'RECORD'}"
    status = filesystem.ask(question)
    printed = "1\x1b]0;forged\x07"
    fields = {
        "none": ["0", printed],
        "negative": ["-1", question, printed],
        "short": ["2", f"t{tmp_path}/absent", question, "!2"],  # prints nothing, and hides the finding
        "old": ["1", question, status.replace(" ", " 1"), printed],
        "right": ["1", question, status, printed],
    }
    text = "\0".join(["0", *fields[forgery]])
    report.write_text(f"{replay._compute_digest(text)}\0{text}")
    plain = run_cfglint("a.yaml", cwd=folder)
    outcome = lint(folder)
    if forgery == "right":
        assert "forged" in outcome.out
    else:
        assert outcome == plain


@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.parametrize("mode", [0o020, 0o002, None], ids=["group", "others", "another owner"])
def test_what_others_can_write_is_not_printed(
    folder: Path, stored: Path, kind: str, mode: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_replayed(folder)
    assert is_replayed(folder)
    [report] = list_reports(stored)
    path = report if kind == "file" else stored
    if mode is not None:
        path.chmod(path.stat().st_mode | mode)
    elif os.geteuid() == 0:
        os.chown(path, 4711, -1)
    else:
        pytest.skip("only root can give a file to another user")
    assert not is_replayed(folder)


def test_a_lax_mask_opens_no_folder_to_others(folder: Path, stored: Path) -> None:
    mask = os.umask(0)
    try:
        assert not is_replayed(folder)
    finally:
        os.umask(mask)
    assert stored.stat().st_mode & 0o777 == 0o700
    assert is_replayed(folder)


@pytest.mark.skipif(not pool.can_copy(), reason="no fork here")
def test_the_questions_of_forked_processes_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem, "_list_dependencies", list)
    original = os.getpid()

    def ask(items: Iterator[int]) -> list[bool]:
        answers = [filesystem.exists(f"{tmp_path}/{item}") for item in items]
        if last is not None and os.getpid() != original:
            filesystem.exists(str(tmp_path / last)), (tmp_path / last).mkdir(), filesystem.exists(str(tmp_path / last))
        return answers

    last: str | None = None
    filesystem.start_recording()
    pool.gather(ask, list(range(200)), 2)
    assert filesystem.stop_recording() == {f"t{tmp_path}/{item}": "!2" for item in range(200)}
    last = "seen twice, with different answers"
    filesystem.start_recording()
    pool.gather(ask, list(range(200)), 2)
    assert filesystem.stop_recording() is None


@pytest.mark.skipif(not pool.can_copy(), reason="no fork here")
def test_the_modules_of_forked_processes_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay rests on a module that only a forked process imports."""
    original, list_dependencies = os.getpid(), filesystem._list_dependencies
    module = tmp_path / "only_in_a_copy.py"
    module.write_text("")
    here = str(tmp_path)  # modules of other tests may have changed since, which would drop the record
    monkeypatch.setattr(
        filesystem, "_list_dependencies", lambda: [p for p in list_dependencies() if p.startswith(here)]
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(filesystem, "TICK", 0)
    time.sleep(0.1)  # many times the tick of the clock that stamps files

    def load(items: Iterator[int]) -> list[int]:
        if os.getpid() != original:
            importlib.import_module(module.stem)
        return list(items)

    filesystem.start_recording()
    pool.gather(load, [1, 2], 2)
    question = f"s{module}"
    assert module.stem not in sys.modules
    answers = filesystem.stop_recording()
    assert answers is not None
    assert answers[question] == filesystem.ask(question)


def test_a_limit_of_time_leaves_no_report(folder: Path, stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cfglint_train.documents.shell import grammar

    (folder / "run.sh").write_text("axolotl train a.yaml\n" * 2000)
    grammar.parse.cache_clear()
    monkeypatch.setattr(grammar, "_SECONDS", -1e9)
    lint(folder)
    assert list_reports(stored) == []


def test_nor_does_one_in_work_on_a_cache() -> None:
    filesystem.start_recording()
    filesystem.run_unrecorded(lambda: filesystem.exists("/"))
    assert filesystem.get_answers() == {}
    with pytest.raises(deadline.OutOfTime):
        filesystem.run_unrecorded(lambda: deadline.run_within(lambda: 0.0, str, ""))
    filesystem.exists("/")
    assert filesystem.stop_recording() is None
    filesystem.start_recording()
    filesystem.run_unrecorded(lambda: filesystem.exists("/"))
    assert filesystem.stop_recording() == {}, "a new record is not dropped"


PROBE = """
import os, sys
sys.path[:0] = {path!r}
from cfglint_train.front import process, replay
from cfglint_train.foundation import filesystem
filesystem.TICK = 0
replay._find_record = lambda: {record!r}
def leave(code, leave=os._exit):
    with open({modules!r}, "w") as file:
        file.write(" ".join(sys.modules))
    leave(code)
os._exit = leave
process.main()
"""
LIGHT = {"cfglint_train", *(f"cfglint_train.{name}" for name in (
    "front", "front.process", "front.replay", "foundation", "foundation.cache_folder", "foundation.filesystem",
    "foundation.typed",
))}  # fmt: skip
"""All modules of cfglint that a replay imports."""


def start(folder: Path, tmp_path: Path, number: int = 0, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
    """Start cfglint in a process of its own."""
    packages = [path for path in sys.path if path]
    if not (tmp_path / "RECORD").exists():
        (tmp_path / "RECORD").touch()
    words = {"path": packages, "record": str(tmp_path / "RECORD"), "modules": str(tmp_path / f"modules{number}")}
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", PROBE.format(**words), "a.yaml"],
        cwd=folder, stdout=stdout, stderr=subprocess.PIPE, text=True,
        env={"CFGLINT_CACHE_DIR": str(tmp_path / "cache")},
    )  # fmt: skip


def test_processes_share_the_cache_and_a_replay_imports_little(folder: Path, tmp_path: Path) -> None:
    time.sleep(0.01)
    processes = [start(folder, tmp_path, number) for number in range(3)]
    outcomes = {(*process.communicate(), process.returncode) for process in processes}
    [(out, err, code)] = outcomes
    assert "SYN003" in out
    assert (err, code) == ("", 1)
    assert len(list_reports(tmp_path / "cache" / replay.KIND)) == 1
    last = start(folder, tmp_path, 3)
    assert (*last.communicate(), last.returncode) == (out, err, code)
    modules = set((tmp_path / "modules3").read_text().split())
    assert {module for module in modules if module.startswith(("cfglint_", "yaml"))} == LIGHT
    assert not modules & {"re", "enum", "hashlib", "contextlib", "json", "typing", "argparse"}


def test_a_reader_that_exits_and_a_full_disk_act_as_in_a_lint(folder: Path, tmp_path: Path) -> None:
    time.sleep(0.01)
    start(folder, tmp_path).communicate()
    process = start(folder, tmp_path)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait() == 1
    with open("/dev/full", "w") as full:
        for _ in range(2):
            process = start(folder, tmp_path, stdout=full.fileno())
            assert process.communicate()[1] == "cfglint: No space left on device\n"
            assert process.returncode == 2
            shutil.rmtree(tmp_path / "cache", ignore_errors=True)
