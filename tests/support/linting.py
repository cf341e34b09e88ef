"""Folders linted in tests as the command line does it, without starting a process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from cfglint_train.findings.finding import Finding
from cfglint_train.fixing import loop
from cfglint_train.fixing.write import write_sources
from cfglint_train.judging import dispatch
from cfglint_train.judging.options import LintOptions
from cfglint_train.judging.remedies import attach_edits
from cfglint_train.judging.result import Result
from cfglint_train.runs.run import Run
from cfglint_train.runs.statements import CommandLine
from cfglint_train.runs.workspace import Workspace
from cfglint_train.settings.settings import NAMES, Settings, load_settings
from tests.support.corpus import REPOSITORY

NEEDED_RULES = {"SYN005": ("MEM001", "SEC001")}
"""Rules that must be on for another rule to report its fixtures."""


@contextmanager
def change_directory(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def build_options(select: Iterable[str] | None = None, **facts: str) -> LintOptions:
    """Return options that read only the folder's own settings file; facts have underscores in place of dashes."""
    flags = {name.replace("_", "-") if name != "olmo_core" else name: value for name, value in facts.items()}
    selected = tuple(select) if select is not None else None
    return LintOptions(select=selected, command_line=CommandLine(flags), settings=Settings(os.getcwd()))


_COPIES = TemporaryDirectory()
FIXTURES = REPOSITORY / "fixtures"


@cache
def isolate_folder(folder: Path) -> Path:
    """Return a copy of a folder as its own repository; the copy is made once.

    Inside this repository, each lint would first read all scripts of all fixtures.
    """
    copy = copy_folder(folder, Path(_COPIES.name) / str(len(list(Path(_COPIES.name).iterdir()))) / folder.name)
    (copy / ".git").mkdir()
    return copy


def _isolate_fixture(folder: Path) -> Path:
    return isolate_folder(folder) if folder.is_relative_to(FIXTURES) else folder


@cache
def list_fixture_runs() -> tuple[Run, ...]:
    """Return the runs of all fixtures, without findings."""
    return tuple(list_runs(FIXTURES))


def lint(folder: Path, lint_options: LintOptions | None = None) -> Result:
    """Return every finding of a folder, with relative paths and with edits attached to the fixes."""
    with change_directory(_isolate_fixture(folder)):
        return attach_edits(dispatch.lint(*_build_lint_arguments(lint_options or build_options())))


def list_parts(result: Result) -> list[Finding]:
    """Return all findings, and those that were merged into them with the fix that settles both."""
    merged = (
        part._replace(fix=finding.fix, intent=finding.intent, run=finding.run)
        for finding in result.findings
        for part in finding.parts
    )
    return sorted((*result.findings, *merged), key=lambda finding: finding.sort_key)


def list_runs(folder: Path, **facts: str) -> list[Run]:
    """Return the runs of a folder, without findings."""
    with change_directory(_isolate_fixture(folder)):
        return list(dispatch.lint(*_build_lint_arguments(build_options((), **facts))).runs)


def _add_folder_settings(lint_options: LintOptions) -> LintOptions:
    """Return the options with the settings of the working directory, if it has any."""
    settings_file = NAMES[0]
    return (
        lint_options._replace(settings=load_settings(settings_file)) if Path(settings_file).exists() else lint_options
    )


def _build_lint_arguments(lint_options: LintOptions) -> tuple[Workspace, list[str], LintOptions]:
    lint_options = _add_folder_settings(lint_options)
    workspace = dispatch.open_workspace(lint_options)
    return workspace, workspace.collect(["."]), lint_options


def fix(folder: Path, lint_options: LintOptions | None = None, unsafe: bool = False) -> loop.FixOutcome:
    """Apply the fixes and write them to the files."""
    with change_directory(folder):
        lint_options = _add_folder_settings(lint_options or build_options())
        workspace = dispatch.open_workspace(lint_options)
        fixed = loop.fix_all(workspace.collect(["."]), lint_options, unsafe, {})
        assert write_sources(fixed) == []
        return fixed


def read_contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def copy_folder(source: Path, target: Path) -> Path:
    shutil.copytree(source, target)
    return target
