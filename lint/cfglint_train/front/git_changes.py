"""Files and lines changed by a push or a pull request, according to git.

This works without a token and with the shallow checkout of `actions/checkout`: for a pull request, HEAD is the merge
commit, whose first parent is the base. Missing commits are fetched. If git cannot determine the changes, the exception
gives the reason.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.regular_files import MAX_BYTES
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.front.git import GitError, Repository, open_repository

_NO_COMMIT: Final = "0" * 40
"""Hash that a push event states as the previous commit if the push creates the branch."""


class UnknownChange(GitError):
    """Failure to determine the changes; the message gives the reason."""


class ChangedFiles:
    """The files that a range of commits changed; lines are read on demand."""

    def __init__(
        self,
        repository: Repository,
        base: str,
        files: Mapping[str, str],
        deleted: Mapping[str, str | None],
        has_indirect_changes: bool,
    ) -> None:
        """Store the repository and the changed files."""
        self.repository = repository
        self.base = base
        self.files = files
        """Absolute paths of the existing files that differ, with the object of the current content."""
        self.deleted = deleted
        """Absolute paths of deleted files, with the object of the old content; None if it was not a regular file."""
        self.has_indirect_changes = has_indirect_changes
        """True if a link or a submodule differs; the files behind it are not listed."""

    def has(self, path: str) -> bool:
        """Return whether an existing file differs from the commit before the change."""
        return os.path.realpath(path) in self.files

    def find_changed_lines(self, paths: Iterable[str]) -> dict[str, list[range]]:
        """Return the new or changed line ranges of some files, by path."""
        real_paths = {path: os.path.realpath(path) for path in paths}
        readable = (
            real_path
            for real_path in real_paths.values()
            if os.path.isfile(real_path) and os.path.getsize(real_path) <= MAX_BYTES
        )
        changed_paths = sorted(self.files.keys() & set(readable))
        ranges: dict[str, list[range]] = {}
        for start in range(0, len(changed_paths), _MOST_PATHS):
            ranges.update(self._diff_lines(changed_paths[start : start + _MOST_PATHS]))
        return {path: ranges.get(self.files.get(real_path, ""), []) for path, real_path in real_paths.items()}

    def _diff_lines(self, paths: list[str]) -> dict[str, list[range]]:
        """Return the changed line ranges by object id; binary files are compared as text."""
        names = [os.path.relpath(path, self.repository.root).replace(os.sep, "/") for path in paths]
        try:
            text = self.repository.run_git(
                "--literal-pathspecs", "diff", "--text", "-U0", "--full-index", *_PLAIN, self.base, "HEAD", "--", *names
            )
        except GitError:
            return {}
        ranges: dict[str, list[range]] = {}
        current = ""
        # Lines of file contents begin with a sign, so they cannot match.
        for object_id, start, count in re.findall(
            rb"^(?:index [0-9a-f]+\.\.([0-9a-f]+)|@@ -[\d,]+ \+(\d+)(?:,(\d+))? @@)", text, re.M
        ):
            if object_id:
                current = object_id.decode()
            else:
                ranges.setdefault(current, []).append(range(int(start), int(start) + int(count or 1)))
        return ranges


_PLAIN: Final = ("--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--ignore-submodules=none")
_MOST_PATHS: Final = 200
"""Maximum number of paths per command, because the length of a command line is limited."""
_DEPTH: Final = "2 for pull requests, 0 for pushes"
"""A checkout of this depth includes the previous commit; a private repository without a stored token cannot fetch it
later.
"""
REGULAR: Final = ("100644", "100755")
"""Modes of regular files in a git tree; links have another mode."""
_ABSENT: Final = "000000"
"""Mode of a file that did not exist."""


class _TreeDifference(Frozen):
    """One difference between two trees."""

    path: str
    mode: str
    """Mode before the change."""
    before: str
    """Object id of the old content; `after` is that of the new content."""
    after: str
    kind: str
    """Letter as in `git diff --diff-filter`."""


class _Event(Frozen):
    """The GitHub event that started the workflow."""

    name: str
    payload: Mapping[str, Any]
    sha: str

    def get_text(self, *keys: str) -> str | None:
        """Return a string from the payload, or None if it is missing or not a string."""
        value: Any = self.payload
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value if isinstance(value, str) else None


def find_changes(folder: str, environment: Mapping[str, str], temporary: str) -> ChangedFiles:
    """Return the files that a workflow event changed in a folder's repository; `temporary` is an empty folder for git.

    Raise GitError; raise UnknownChange if the event does not determine the changes.
    """
    repository = open_repository(folder, environment.get("GITHUB_WORKSPACE", ""), temporary)
    base = _find_base(repository, _read_event(environment))
    entries = _list_differences(repository, base)
    present = {entry.path: entry.after for entry in entries if entry.kind != "D"}
    deleted = {entry.path: entry.before if entry.mode in REGULAR else None for entry in entries if entry.kind == "D"}
    is_indirect = any(os.path.islink(path) or not os.path.isfile(path) for path in present) or any(
        entry.mode not in (*REGULAR, _ABSENT) for entry in entries
    )
    return ChangedFiles(
        repository, base, {os.path.realpath(path): after for path, after in present.items()}, deleted, is_indirect
    )


def _list_differences(repository: Repository, base: str) -> list[_TreeDifference]:
    """Return the differences between two commits, with absolute paths."""
    output = repository.run_git("diff", "--raw", "-z", "--no-abbrev", *_PLAIN, base, "HEAD")
    fields = iter(os.fsdecode(output).split("\0"))
    # Format: ":100644 000000 <object before> <object after> D", then the path.
    return [
        _TreeDifference(os.path.join(repository.root, check_name(path)), *_parse_difference(facts))
        for facts, path in zip(fields, fields, strict=False)
    ]


def check_name(path: str) -> str:
    """Return a path from a git tree. Raise UnknownChange if it could lead outside its folder.

    git itself does not create trees with these names, but it stores trees that other programs created.
    """
    if any(_is_special(part) for part in path.split("/")):
        raise UnknownChange(f"a git tree contains the name {path!r}, which git would not check out")
    return path


def _is_special(part: str) -> bool:
    if part in ("", ".", "..") or part.casefold() == ".git":
        return True
    # Windows has more separators and a short name for `.git`, and ignores trailing dots and spaces.
    return os.name == "nt" and re.search(r"[\\:]|[. ]$|^git~[0-9]$", part, re.I) is not None


def _parse_difference(text: str) -> tuple[str, str, str, str]:
    """Parse the old mode, the old and new object ids, and the kind of a difference."""
    mode, _, before, after, kind = text.removeprefix(":").split(" ")
    return mode, before, after, kind


def _read_event(environment: Mapping[str, str]) -> _Event:
    from json import loads

    path = environment.get("GITHUB_EVENT_PATH", "")
    try:
        payload = loads(regular_files.read(path))
    except (OSError, ValueError):
        payload = {}
    name = environment.get("GITHUB_EVENT_NAME", "")
    return _Event(name, payload if isinstance(payload, dict) else {}, environment.get("GITHUB_SHA", ""))


def _find_base(repository: Repository, event: _Event) -> str:
    """Return the commit that HEAD is compared with."""
    head = repository.run_git("rev-parse", "HEAD").decode().strip()
    if event.name == "pull_request" and head == event.sha:
        # HEAD is the merge commit; its first parent is the target branch.
        return _ensure_commit(repository, "HEAD^1", head, 2)
    keys = {
        "pull_request": ("pull_request", "base", "sha"),
        "pull_request_target": ("pull_request", "base", "sha"),
        "merge_group": ("merge_group", "base_sha"),
        "push": ("before",),
    }.get(event.name)
    if keys is None:
        raise UnknownChange(f"the event {event.name or '(none)'} has no commits to compare")
    base = event.get_text(*keys)
    if base is None or re.fullmatch("[0-9a-f]{40,64}", base) is None:
        raise UnknownChange("the event does not name the previous commit")
    if base == _NO_COMMIT:
        raise UnknownChange("this is the first push of the branch")
    if base == head:
        raise UnknownChange("the checked-out commit is the one before the change")
    return _ensure_commit(repository, base, base, 1)


def _ensure_commit(repository: Repository, commit: str, fetch_name: str, depth: int) -> str:
    """Return the id of a commit, fetching it if a shallow checkout lacks it."""
    try:
        return repository.run_git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}").decode().strip()
    except GitError:
        try:
            repository.run_git("fetch", "--quiet", "--no-tags", f"--depth={depth}", "origin", fetch_name)
        except GitError as reason:
            raise UnknownChange(f"{reason}; set `fetch-depth` of actions/checkout to {_DEPTH}") from None
        return repository.run_git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}").decode().strip()
