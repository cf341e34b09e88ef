"""Changes that `cfglint init` proposes: shown as a diff, written all or none, without replacing existing content."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from cfglint_train.documents.document import CannotEdit
from cfglint_train.foundation import atomic, regular_files, toml
from cfglint_train.front.init import hook, settings_table, workflow
from cfglint_train.front.init.questions import Answers
from cfglint_train.front.init.source import PLACEHOLDER
from cfglint_train.front.init.survey import Survey
from cfglint_train.reports.addresses import find_address
from cfglint_train.reports.escape import escape_diff_line, escape_text
from cfglint_train.settings.settings import NAMES


class Change(NamedTuple):
    """A file to create (`before` is None) or to extend."""

    path: str
    """Path from the root, with forward slashes."""
    before: bytes | None
    after: bytes


class KeptFile(NamedTuple):
    """A file that stays unchanged, and the reason."""

    path: str
    reason: str


class Proposal(NamedTuple):
    """Changes below a folder, and the files that stay unchanged."""

    root: str
    changes: tuple[Change, ...]
    kept: tuple[KeptFile, ...]


Requirement = Callable[[], str]
"""Function that returns the requirement that installs cfglint, or raises UsageError if there is none.

It is called only if the requirement is written to a file.
"""


def plan_changes(
    survey: Survey, answers: Answers, requirement: Requirement, *, with_hook: bool = True, with_workflow: bool = True
) -> Proposal:
    """Plan the changes for a survey. Raise OSError if an existing file cannot be read."""
    steps: list[Callable[[Survey], Change | KeptFile]] = [partial(_plan_settings, answers=answers)]
    if with_hook:
        steps.append(partial(_plan_hook, requirement=requirement))
    if with_workflow:
        steps.append(partial(_plan_workflow, requirement=requirement))
    outcomes = [step(survey) for step in steps]
    return Proposal(
        survey.root,
        tuple(outcome for outcome in outcomes if isinstance(outcome, Change)),
        tuple(outcome for outcome in outcomes if isinstance(outcome, KeptFile)),
    )


def _plan_settings(survey: Survey, answers: Answers) -> Change | KeptFile:
    for name in NAMES[:2]:
        if os.path.lexists(os.path.join(survey.root, name)):
            return KeptFile(name, "it already exists")
    path = os.path.join(survey.root, "pyproject.toml")
    separate_file = Change(NAMES[0], None, _encode_lines(settings_table.render_table(survey, "", answers)))
    if not os.path.lexists(path):
        return separate_file
    before = _read_file(path)
    try:
        tables = toml.parse(before.decode("utf-8-sig"))
    except ValueError:
        return separate_file
    tool = tables.get("tool", {})
    if not isinstance(tool, dict):
        return separate_file
    if "cfglint" in tool:
        return KeptFile("pyproject.toml", "it already has [tool.cfglint]")
    after = _append_table(before, settings_table.render_table(survey, "tool.cfglint", answers))
    return Change("pyproject.toml", before, after) if _is_pure_addition(tables, after) else separate_file


def _read_file(path: str) -> bytes:
    """Read a whole file. Raise OSError if it cannot be read or is implausibly large."""
    source = regular_files.read(path)
    if len(source) > regular_files.MAX_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    return source


def _encode_lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _append_table(before: bytes, lines: Iterable[str]) -> bytes:
    """Append a table to a TOML file after one empty line, with the line endings of the file."""
    newline = b"\r\n" if b"\r\n" in before else b"\n"
    gap = b"" if not before.strip() else newline if before.endswith(b"\n") else newline * 2
    return before + gap + _encode_lines(lines).replace(b"\n", newline)


def _is_pure_addition(before: dict[str, Any], after: bytes) -> bool:
    """Return whether `after` is the old TOML file plus the new table.

    False if `tool` is an inline table, to which no table can be appended.
    """
    try:
        tables = toml.parse(after.decode("utf-8-sig"))
        tables["tool"].pop("cfglint")
    except (ValueError, KeyError, AttributeError):
        return False
    return tables == {**before, "tool": before.get("tool", {})}


def _plan_hook(survey: Survey, requirement: Requirement) -> Change | KeptFile:
    path = os.path.join(survey.root, hook.NAME)
    if not os.path.lexists(path):
        return Change(hook.NAME, None, hook.create_config(requirement()))
    before = _read_file(path)
    try:
        if hook.has_hook(before):
            return _fill_placeholder(hook.NAME, before, requirement) or KeptFile(hook.NAME, "it already has the hook")
        after = hook.append_hook(before, requirement())
    except CannotEdit as refusal:
        return KeptFile(hook.NAME, f"{refusal}; add the hook by hand")
    return Change(hook.NAME, before, after)


def _fill_placeholder(path: str, before: bytes, requirement: Requirement) -> Change | None:
    """Return the change that fills in placeholders, or None if the file has none or the source is still unknown."""
    placeholder = PLACEHOLDER.encode()
    if placeholder not in before or requirement() == PLACEHOLDER:
        return None
    return Change(path, before, before.replace(placeholder, requirement().encode()))


def _plan_workflow(survey: Survey, requirement: Requirement) -> Change | KeptFile:
    existing = workflow.find_workflow(survey.root)
    if existing is not None:
        before = _read_file(os.path.join(survey.root, existing))
        return _fill_placeholder(existing, before, requirement) or KeptFile(existing, "it already runs cfglint")
    if os.path.lexists(os.path.join(survey.root, workflow.NAME)):
        return KeptFile(workflow.NAME, "it already exists")
    if not os.path.isdir(os.path.join(survey.root, ".github")) and os.path.lexists(
        os.path.join(survey.root, ".gitlab-ci.yml")
    ):
        return KeptFile(".gitlab-ci.yml", "the workflow is for GitHub; docs/ci.md has a job for GitLab")
    return Change(workflow.NAME, None, workflow.render_workflow(requirement(), find_address("Homepage")).encode())


def render_summary(survey: Survey, changes: Proposal) -> Iterator[str]:
    """Yield a line for each fact of the survey and each unchanged file; no line can be mistaken for a diff line."""
    yield f"Repository: {escape_text(survey.root)}"
    configurations = ", ".join(f"{title} ({count})" for title, count in survey.frameworks.items())
    yield f"Configurations: {configurations or 'none'}"
    for script, facts in survey.launches.items():
        yield f"Launch script: {escape_text(script)} ({', '.join(facts)})"
    for name, releases in survey.releases.items():
        for release in releases:
            yield f"Release: {name} {release.release} ({settings_table.describe_source(release)})"
    for hint in survey.hints:
        yield f"Hardware: {hint.fact} {hint.value} ({escape_text(hint.path)}:{hint.line})"
    for kept in changes.kept:
        yield f"Unchanged: {escape_text(kept.path)}: {kept.reason}"
    if not changes.changes:
        yield "Nothing to write."


def render_diff(changes: Proposal) -> Iterator[str]:
    """Yield the changes as unified diffs, safe to print."""
    from difflib import unified_diff

    for change in changes.changes:
        name = escape_text(change.path)
        before = "/dev/null" if change.before is None else name
        for line in unified_diff(
            _decode_lines(change.before or b""), _decode_lines(change.after), before, name, lineterm=""
        ):
            yield escape_diff_line(line)


def _decode_lines(source: bytes) -> list[str]:
    return source.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")[:-1]


def write_changes(changes: Proposal) -> None:
    """Write all changes, or none: if one fails, undo the previous ones. Raise OSError."""
    for folder in ("", workflow.FOLDER):
        atomic.remove_stale_files(os.path.join(changes.root, folder))  # remove leftovers of killed processes
    undo: list[Callable[[], None]] = []
    staged: list[tuple[Change, atomic.StagedFile]] = []
    try:
        for change in changes.changes:
            path = os.path.join(changes.root, change.path)
            regular_files.check_links(path)  # before folders are created
            if change.before is None:
                for folder in _list_missing_folders(os.path.dirname(path)):
                    os.mkdir(folder)
                    undo.append(partial(os.rmdir, folder))
                staged_file = atomic.stage_new(path, change.after)
            else:
                staged_file = atomic.stage(path, change.after, change.before)
            undo.append(partial(atomic.discard, staged_file))
            staged.append((change, staged_file))
        for change, staged_file in staged:
            atomic.commit(staged_file)
            undo.append(partial(_undo_change, change, staged_file))
    except BaseException:
        for step in reversed(undo):
            with suppress(OSError):
                step()
        raise


def _list_missing_folders(folder: str) -> list[str]:
    """Return the folders that must be created for a folder to exist, the outermost first."""
    missing: list[str] = []
    while not os.path.isdir(folder):
        missing.insert(0, folder)
        folder = os.path.dirname(folder)
    return missing


def _undo_change(change: Change, staged_file: atomic.StagedFile) -> None:
    if change.before is None:
        os.unlink(staged_file.target)
    else:
        atomic.commit(atomic.stage(staged_file.target, change.before, change.after))
