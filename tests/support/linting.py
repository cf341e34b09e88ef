"""Linting folders in tests as the command line does it, without a process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from cfglint_train.fixing import loop
from cfglint_train.fixing.write import write_all
from cfglint_train.judging import dispatch
from cfglint_train.judging.options import LintOptions
from cfglint_train.judging.remedies import attach
from cfglint_train.judging.result import Result
from cfglint_train.runs.run import Run
from cfglint_train.runs.statements import CommandLine
from cfglint_train.runs.workspace import Workspace
from cfglint_train.settings.settings import NAMES, Settings, load_settings
from tests.support.corpus import REPOSITORY

NEEDED = {"SYN005": ("MEM001", "SEC001")}
"""Rules that must be on for another to report its fixtures."""


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def options(select: Iterable[str] | None = None, **facts: str) -> LintOptions:
    """Isolated from every settings file but the folder's own; facts by their names, with underscores for dashes."""
    given = {name.replace("_", "-") if name != "olmo_core" else name: value for name, value in facts.items()}
    chosen = tuple(select) if select is not None else None
    return LintOptions(select=chosen, command_line=CommandLine(given), settings=Settings(os.getcwd()))


_COPIES = TemporaryDirectory()
FIXTURES = REPOSITORY / "fixtures"


@cache
def alone(folder: Path) -> Path:
    """A copy of a folder as a repository of its own, made once. In this one, each lint would first look through all
    scripts of all fixtures.
    """
    copy = copied(folder, Path(_COPIES.name) / str(len(list(Path(_COPIES.name).iterdir()))) / folder.name)
    (copy / ".git").mkdir()
    return copy


def _own(folder: Path) -> Path:
    return alone(folder) if folder.is_relative_to(FIXTURES) else folder


@cache
def runs_of_fixtures() -> tuple[Run, ...]:
    """The runs of all fixtures, unjudged."""
    return tuple(runs_in(FIXTURES))


def lint(folder: Path, chosen: LintOptions | None = None) -> Result:
    """Every finding of a folder, paths relative to it, fixes written out."""
    with working_in(_own(folder)):
        return attach(dispatch.lint(*_asked(chosen or options())))


def runs_in(folder: Path, **facts: str) -> list[Run]:
    """The runs of a folder, unjudged."""
    with working_in(_own(folder)):
        return list(dispatch.lint(*_asked(options((), **facts))).runs)


def _with_own(chosen: LintOptions) -> LintOptions:
    """The options with the settings of the working directory, if it has any."""
    own = NAMES[0]
    return chosen._replace(settings=load_settings(own)) if Path(own).exists() else chosen


def _asked(chosen: LintOptions) -> tuple[Workspace, list[str], LintOptions]:
    chosen = _with_own(chosen)
    workspace = dispatch.workspace_for(chosen)
    return workspace, workspace.collect(["."]), chosen


def fix(folder: Path, chosen: LintOptions | None = None, unsafe: bool = False) -> loop.Fixed:
    """Apply the fixes and write them."""
    with working_in(folder):
        chosen = _with_own(chosen or options())
        workspace = dispatch.workspace_for(chosen)
        fixed = loop.fix_all(workspace.collect(["."]), chosen, unsafe, {})
        assert write_all(fixed) == []
        return fixed


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def copied(source: Path, target: Path) -> Path:
    shutil.copytree(source, target)
    return target
