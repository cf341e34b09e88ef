"""What `cfglint init` would write: shown as a diff, written all or not at all. What is there is never overwritten."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from cfglint_train.documents.document import CannotEdit
from cfglint_train.foundation import atomic, regular_files, toml
from cfglint_train.front.addresses import address
from cfglint_train.front.init import hook, settings_table, workflow
from cfglint_train.front.init.questions import Answers
from cfglint_train.front.init.source import PLACEHOLDER
from cfglint_train.front.init.survey import Survey
from cfglint_train.reports.escape import diff_line, printable
from cfglint_train.settings.settings import NAMES


class Change(NamedTuple):
    """One file: new (`before` is None), or with more in it than before."""

    path: str
    """From the root, with forward slashes."""
    before: bytes | None
    after: bytes


class Kept(NamedTuple):
    """Something that is left alone, and why."""

    path: str
    reason: str


class Proposal(NamedTuple):
    """What would be written below a folder, and what is left alone."""

    root: str
    changes: tuple[Change, ...]
    kept: tuple[Kept, ...]


Requirement = Callable[[], str]
"""What installs cfglint: only asked for where it is written. Raises UsageError where that is not possible."""


def plan(
    survey: Survey, answers: Answers, requirement: Requirement, *, with_hook: bool = True, with_workflow: bool = True
) -> Proposal:
    """What a survey leads to. Raises OSError for a file that is there and cannot be read."""
    steps: list[Callable[[Survey], Change | Kept]] = [partial(_settings, answers=answers)]
    if with_hook:
        steps.append(partial(_hook, requirement=requirement))
    if with_workflow:
        steps.append(partial(_workflow, requirement=requirement))
    done = [step(survey) for step in steps]
    return Proposal(
        survey.root,
        tuple(one for one in done if isinstance(one, Change)),
        tuple(one for one in done if isinstance(one, Kept)),
    )


def _settings(survey: Survey, answers: Answers) -> Change | Kept:
    for name in NAMES[:2]:
        if os.path.lexists(os.path.join(survey.root, name)):
            return Kept(name, "it exists already")
    path = os.path.join(survey.root, "pyproject.toml")
    alone = Change(NAMES[0], None, _text(settings_table.lines(survey, "", answers)))
    if not os.path.lexists(path):
        return alone
    before = _read(path)
    try:
        tables = toml.loads(before.decode("utf-8-sig"))
    except ValueError:
        return alone
    tool = tables.get("tool", {})
    if not isinstance(tool, dict):
        return alone
    if "cfglint" in tool:
        return Kept("pyproject.toml", "it has [tool.cfglint] already")
    after = _appended(before, settings_table.lines(survey, "tool.cfglint", answers))
    return Change("pyproject.toml", before, after) if _only_added(tables, after) else alone


def _read(path: str) -> bytes:
    """A whole file. Raises OSError; also for one that is too large to be what its name says."""
    source = regular_files.read(path)
    if len(source) > regular_files.MAX_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    return source


def _text(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _appended(before: bytes, lines: Iterable[str]) -> bytes:
    """A TOML file with a table at its end, one empty line before it, in the line ends of the file."""
    newline = b"\r\n" if b"\r\n" in before else b"\n"
    gap = b"" if not before.strip() else newline if before.endswith(b"\n") else newline * 2
    return before + gap + _text(lines).replace(b"\n", newline)


def _only_added(before: dict[str, Any], after: bytes) -> bool:
    """Whether a TOML file holds what it held, and the table; not so where `tool` is in a form that is closed."""
    try:
        tables = toml.loads(after.decode("utf-8-sig"))
        tables["tool"].pop("cfglint")
    except (ValueError, KeyError, AttributeError):
        return False
    return tables == {**before, "tool": before.get("tool", {})}


def _hook(survey: Survey, requirement: Requirement) -> Change | Kept:
    path = os.path.join(survey.root, hook.NAME)
    if not os.path.lexists(path):
        return Change(hook.NAME, None, hook.created(requirement()))
    before = _read(path)
    try:
        if hook.is_there(before):
            return _filled_in(hook.NAME, before, requirement) or Kept(hook.NAME, "it has the hook already")
        after = hook.added(before, requirement())
    except CannotEdit as refusal:
        return Kept(hook.NAME, f"{refusal}; add the hook by hand")
    return Change(hook.NAME, before, after)


def _filled_in(path: str, before: bytes, requirement: Requirement) -> Change | None:
    """Return the file with its placeholders filled in, or None if it has none or the source is still unknown."""
    placeholder = PLACEHOLDER.encode()
    if placeholder not in before or requirement() == PLACEHOLDER:
        return None
    return Change(path, before, before.replace(placeholder, requirement().encode()))


def _workflow(survey: Survey, requirement: Requirement) -> Change | Kept:
    known = workflow.present(survey.root)
    if known is not None:
        before = _read(os.path.join(survey.root, known))
        return _filled_in(known, before, requirement) or Kept(known, "it runs cfglint already")
    if os.path.lexists(os.path.join(survey.root, workflow.NAME)):
        return Kept(workflow.NAME, "it exists already")
    if not os.path.isdir(os.path.join(survey.root, ".github")) and os.path.lexists(
        os.path.join(survey.root, ".gitlab-ci.yml")
    ):
        return Kept(".gitlab-ci.yml", "the workflow is for GitHub; docs/ci.md has a job for GitLab")
    return Change(workflow.NAME, None, workflow.text(requirement(), address("Homepage")).encode())


def summary(survey: Survey, changes: Proposal) -> Iterator[str]:
    """What was found and what is left alone, a line each; lines that no diff begins with."""
    yield f"Repository: {printable(survey.root)}"
    found = ", ".join(f"{title} ({count})" for title, count in survey.frameworks.items())
    yield f"Configurations: {found or 'none'}"
    for script, stated in survey.launches.items():
        yield f"Launch script: {printable(script)} ({', '.join(stated)})"
    for name, known in survey.releases.items():
        for one in known:
            yield f"Release: {name} {one.release} ({settings_table.source_of(one)})"
    for hint in survey.hints:
        yield f"Hardware: {hint.fact} {hint.value} ({printable(hint.path)}:{hint.line})"
    for kept in changes.kept:
        yield f"Left alone: {printable(kept.path)}: {kept.reason}"
    if not changes.changes:
        yield "Nothing to write."


def diff(changes: Proposal) -> Iterator[str]:
    """The changes as unified diffs, safe to print."""
    from difflib import unified_diff

    for change in changes.changes:
        name = printable(change.path)
        before = "/dev/null" if change.before is None else name
        for line in unified_diff(_lines(change.before or b""), _lines(change.after), before, name, lineterm=""):
            yield diff_line(line)


def _lines(source: bytes) -> list[str]:
    return source.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")[:-1]


def write(changes: Proposal) -> None:
    """Write all changes, or none: what was written is taken back where a later one fails. Raises OSError."""
    for folder in ("", workflow.FOLDER):
        atomic.clean(os.path.join(changes.root, folder))  # what was killed may have left some, also with nothing to do
    undo: list[Callable[[], None]] = []
    staged: list[tuple[Change, atomic.Staged]] = []
    try:
        for change in changes.changes:
            path = os.path.join(changes.root, change.path)
            regular_files.stay(path)  # before folders are made there
            if change.before is None:
                for folder in _missing(os.path.dirname(path)):
                    os.mkdir(folder)
                    undo.append(partial(os.rmdir, folder))
                one = atomic.stage_new(path, change.after)
            else:
                one = atomic.stage(path, change.after, change.before)
            undo.append(partial(atomic.discard, one))
            staged.append((change, one))
        for change, one in staged:
            atomic.commit(one)
            undo.append(partial(_take_back, change, one))
    except BaseException:
        for step in reversed(undo):
            with suppress(OSError):
                step()
        raise


def _missing(folder: str) -> list[str]:
    """The folders that have to be made for a folder to be there, the outermost first."""
    found: list[str] = []
    while not os.path.isdir(folder):
        found.insert(0, folder)
        folder = os.path.dirname(folder)
    return found


def _take_back(change: Change, done: atomic.Staged) -> None:
    if change.before is None:
        os.unlink(done.target)
    else:
        atomic.commit(atomic.stage(done.target, change.before, change.after))
