"""A lint asks the file system in one module, which records the answers: a replayed report rests on nothing else."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from cfglint_train.front.replay import VARIABLES
from cfglint_train.settings.settings import FORMATS
from tests.house.test_reading import OWN_DATA
from tests.support.command import run_cfglint
from tests.support.configs import UNKNOWN_MODEL
from tests.support.corpus import REPOSITORY

DIRECT = {
    "os": {"stat", "lstat", "access", "readlink", "scandir", "listdir", "walk", "fwalk", "open", "statvfs", "getxattr"},
    "os.path": {
        "exists", "lexists", "isfile", "isdir", "islink", "ismount", "realpath", "samefile", "getsize", "getmtime",
        "getctime", "expanduser",
    },
}  # fmt: skip
"""Functions that ask the file system."""
METHODS = {
    "is_dir", "is_file", "is_symlink", "iterdir", "rglob", "read_text", "read_bytes", "readlink", "expanduser", "iglob",
}  # fmt: skip
"""Methods of paths and folder entries that ask it. An entry may say what it is, without following links."""

ASKING = {
    "lint/cfglint_train/foundation/filesystem.py": "records the answers",
    "lint/cfglint_train/foundation/regular_files.py": "opens files after it asked for their status",
    "lint/cfglint_train/foundation/cache.py": "the cache, on which no report rests",
    "lint/cfglint_train/foundation/cache_folder.py": "the cache, on which no report rests",
    "lint/cfglint_train/front/replay.py": "the cache, on which no report rests",
    "lint/cfglint_train/foundation/git_index.py": "compares the cache folder with tracked folders",
    "lint/cfglint_train/foundation/atomic.py": "writes, so that no report is stored",
    "lint/cfglint_train/fixing/write.py": "writes, so that no report is stored",
    "lint/cfglint_train/api.py": "`accept`, which writes a baseline",
    "lint/cfglint_train/front/commands/accepted.py": "writes, so that no report is stored",
    "lint/cfglint_train/front/commands/output.py": "only opens the null device",
    "lint/cfglint_train/front/cli.py": "only opens the null device",
    "lint/cfglint_train/front/process.py": "only opens the null device",
    "lint/cfglint_train/models/online.py": "the network, so that no report is stored",
}
OTHER_COMMANDS = (
    "lint/cfglint_train/calibration/", "lint/cfglint_train/front/action.py", "lint/cfglint_train/front/base_",
    "lint/cfglint_train/front/git", "lint/cfglint_train/front/init/", "lint/cfglint_train/front/migrate/",
    "lint/cfglint_train/front/programs.py", "lint/cfglint_train/front/question.py",
    "lint/cfglint_train/front/commands/calibrate.py", "lint/cfglint_train/front/commands/completion.py",
    "lint/cfglint_train/front/commands/demo.py", "lint/cfglint_train/front/commands/diff.py",
    "lint/cfglint_train/front/commands/estimation.py", "lint/cfglint_train/front/commands/init.py",
    "lint/cfglint_train/front/commands/preflight.py",
)  # fmt: skip
"""Modules of commands whose output is not stored."""


def find_direct(tree: ast.AST) -> Iterator[str]:
    """Yield the functions in a module that ask the file system without a record."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in DIRECT.get(ast.unparse(node.value), ()):
            yield ast.unparse(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
            words = {word.arg: word.value for word in node.keywords}
            follows = words.get("follow_symlinks")
            is_own = isinstance(node.func.value, ast.Name) and node.func.value.id == "filesystem"
            if not is_own and not (isinstance(follows, ast.Constant) and follows.value is False):
                yield f"{node.func.attr}()"
        if isinstance(node, ast.ImportFrom):
            functions = DIRECT.get(node.module or "", {"Path", "glob", "iglob"})
            yield from (f"{node.module}.{name.name}" for name in node.names if name.name in functions)


def test_a_lint_asks_the_file_system_in_one_module() -> None:
    found = {}
    for path in (path for root in ("lint", "rules", "schemas") for path in (REPOSITORY / root).rglob("*.py")):
        name = path.relative_to(REPOSITORY).as_posix()
        if name not in OWN_DATA and name not in ASKING and not name.startswith(OTHER_COMMANDS):
            functions = sorted(set(find_direct(ast.parse(path.read_text()))))
            if functions:
                found[name] = functions
    assert found == {}


def test_a_lint_reads_the_environment_that_a_replay_compares(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(UNKNOWN_MODEL + "deepspeed: ~/ds.json\n")
    names: set[str] = set()
    get = type(os.environ).__getitem__

    def note(environment: os._Environ[str], name: str) -> str:
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_globals["__name__"] in ("collections.abc", "os", "posixpath"):
            frame = frame.f_back
        if frame.f_globals["__name__"].startswith("cfglint_"):
            names.add(name)
        return get(environment, name)

    with mock.patch.object(type(os.environ), "__getitem__", note):
        for output_format in FORMATS:
            run_cfglint("--output-format", output_format, "a.yaml", cwd=tmp_path, terminal=True)
    assert {"HOME", "HF_HUB_CACHE", "TERM", "CI_PROJECT_DIR"} <= names <= {*VARIABLES, "CFGLINT_CACHE_DIR"}


def test_no_other_module_reads_the_environment() -> None:
    """Find reads that the configuration of the other test does not reach."""
    modules = (path for root in ("lint", "rules", "schemas") for path in (REPOSITORY / root).rglob("*.py"))
    readers = {path.relative_to(REPOSITORY).as_posix() for path in modules if is_reading_environment(path)}
    assert {name for name in readers if not name.startswith((*OTHER_COMMANDS, *ASKING))} == {
        "lint/cfglint_train/front/terminal.py",
        "lint/cfglint_train/models/local.py",
        "lint/cfglint_train/reports/github.py",
        "lint/cfglint_train/reports/gitlab.py",
        "lint/cfglint_train/reports/rdjson.py",
        "lint/cfglint_train/reports/sarif.py",
    }


def is_reading_environment(path: Path) -> bool:
    nodes = ast.walk(ast.parse(path.read_text()))
    return any(isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv") for node in nodes)
