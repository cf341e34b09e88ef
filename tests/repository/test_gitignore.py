"""Files that git ignores and a walk leaves out, checked against git itself."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from cfglint_train.foundation.git_index import read_index
from cfglint_train.repository import files
from cfglint_train.repository.gitignore import MAX_PATTERNS, GitIgnore
from cfglint_train.settings.settings import Settings
from tests.support.command import run_cfglint
from tests.support.pace import measure_block

NAMES = ("a.yaml", "b.yaml", "ds.json", "run.sh", "x y.yaml")
FOLDERS = ("", "out", "configs", "configs/out", "configs/deep/er", "logs")
PATTERNS = (
    "*.json", "!ds.json", "/out/", "out", "logs/", "configs/*.yaml", "!configs/a.yaml", "**/er/", "deep/**", "# no",
    "a.yaml", "!a.yaml", "*.ya?l", "[ab].yaml", "x\\ y.yaml", "trailing.yaml  ", "\\!a", "/configs/deep", "\\",
    "*.y*a*l", "!*a*.y*ml", "**/*o*t*/**", "c*o*n*/*.*s*n", "/*o*/**/*r*/*.y*",
)  # fmt: skip

BROKEN = """base_model: NousResearch/Meta-Llama-3-8B
datasets: [{path: tatsu-lab/alpaca, type: alpaca}]
micro_batch_size: 1
sequence_length: 5
"""


def run_git(here: Path, *arguments: str) -> bytes:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    process = subprocess.run(["git", *arguments], cwd=here, capture_output=True, check=True, env=environment)
    return process.stdout


def create_checkout(here: Path, seed: int, version: str) -> Path:
    """Initialise a repository with patterns at three levels and some tracked files that are ignored."""
    dice = random.Random(seed)
    run_git(here, "init", "-q")
    run_git(here, "config", "index.version", version)
    for folder in FOLDERS:
        (here / folder).mkdir(parents=True, exist_ok=True)
        for name in NAMES:
            (here / folder / name).write_text("")
    for folder in ("", "configs", "configs/deep"):
        (here / folder / ".gitignore").write_text("\n".join(dice.sample(PATTERNS, 4)) + "\n")
    (here / ".git" / "info" / "exclude").write_text(dice.choice(PATTERNS) + "\n")
    for _ in range(dice.randrange(4)):
        run_git(here, "add", "-f", str(Path(dice.choice(FOLDERS)) / dice.choice(NAMES)))
    return here


@pytest.mark.parametrize("seed", range(12))
def test_the_same_files_as_git(tmp_path, seed):
    here = create_checkout(tmp_path, seed, "4" if seed % 2 else "2")
    listed = run_git(here, "ls-files", "-z", "--cached", "--others", "--exclude-standard").decode().split("\0")
    expected = {path for path in listed if os.path.splitext(path)[1] in files.SYNTAXES}
    settings = Settings(str(here), exclude=())
    walked = files.walk(str(here), lambda _: settings, GitIgnore(str(here)).is_ignored)
    walked_files = {os.path.relpath(path, here) for path in walked if f"{os.sep}.git{os.sep}" not in path}
    assert walked_files == expected


@pytest.mark.parametrize("version", ["2", "3", "4"])
@pytest.mark.parametrize("kind", ["sha1", "sha256"])
def test_the_index_of_git(tmp_path, version, kind):
    run_git(tmp_path, "init", "-q", f"--object-format={kind}")
    run_git(tmp_path, "config", "index.version", version)
    names = ["a", "a/b", "configs/deep/one.yaml", "configs/deep/two.yaml", "x" * 200, "ü.yaml"]
    for name in names[1:]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    run_git(tmp_path, "add", "-A")
    if version == "3":
        (tmp_path / "later").write_text("")
        run_git(tmp_path, "add", "-N", "later")
    listed = run_git(tmp_path, "ls-files", "-z").split(b"\0")[:-1]
    assert list(read_index(str(tmp_path)).paths) == sorted(listed)
    assert read_index(str(tmp_path)).has_path("configs")
    assert not read_index(str(tmp_path)).has_path("config")


@pytest.mark.parametrize(
    "source", [b"", b"DIRC", b"DIRC\0\0\0\2\0\0\0\5", b"DIRC\0\0\0\4\0\0\0\1" + b"\xff" * 70, b"x" * 99]
)
def test_what_is_no_index(tmp_path, source):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "index").write_bytes(source)
    assert read_index(str(tmp_path)) is None


def test_a_lint_leaves_out_what_is_ignored(tmp_path):
    run_git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("local/\n")
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "mine.yaml").write_text(BROKEN)
    assert run_cfglint("--select", "KEY", cwd=tmp_path).code == 0
    assert run_cfglint("--select", "KEY", "local/mine.yaml", cwd=tmp_path).code == 1
    assert run_cfglint("--select", "KEY", "local", cwd=tmp_path).code == 1
    (tmp_path / "cfglint.toml").write_text("respect-gitignore = false\n")
    assert run_cfglint("--select", "KEY", cwd=tmp_path).code == 1
    (tmp_path / "cfglint.toml").unlink()
    run_git(tmp_path, "add", "-f", "local/mine.yaml")
    assert run_cfglint("--select", "KEY", cwd=tmp_path).code == 1


def test_patterns_without_a_checkout_do_nothing(tmp_path):
    (tmp_path / ".gitignore").write_text("*.yaml\n")
    (tmp_path / "a.yaml").write_text(BROKEN)
    assert run_cfglint("--select", "KEY", cwd=tmp_path).code == 1


def test_no_pattern_takes_long(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("**/*a*a*a*a*a*a*a*b/**/*\n**/" + "*/**/" * 20 + "x\n")
    deep = tmp_path / "/".join(["a" * 100] * 20)
    deep.mkdir(parents=True)
    (deep / "a.yaml").write_text(BROKEN)
    with measure_block() as watch:
        assert run_cfglint(cwd=tmp_path).code == 1
    assert watch.seconds < 2


def test_patterns_beyond_the_bound_are_named(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("x.json\n" * MAX_PATTERNS + "a.yaml\n")
    (tmp_path / "a.yaml").write_text(BROKEN)
    outcome = run_cfglint("--verbose", cwd=tmp_path)
    assert outcome.code == 1
    assert ".gitignore: only its first 5,000 patterns are used" in outcome.err
