"""What a push or a pull request changed, according to git: files and lines.

Works without a token and with the shallow checkout of `actions/checkout`: of a pull request that is the merge commit,
whose first parent is the base. What is missing is fetched; where git cannot determine it, the answer is the reason.
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
"""What a push names as the commit before the first one."""


class UnknownChange(GitError):
    """Git cannot determine what changed; the message gives the reason."""


class ChangedFiles:
    """The files of a range of commits; lines are asked for where they are needed."""

    def __init__(
        self,
        repository: Repository,
        base: str,
        files: Mapping[str, str],
        deleted: Mapping[str, str | None],
        has_indirect_changes: bool,
    ) -> None:
        self.repository = repository
        self.base = base
        self.files = files
        """Absolute paths of the files that are there and differ, and the object of the content now."""
        self.deleted = deleted
        """Absolute paths of the files that were there, and the object of the content; None of what was no file."""
        self.has_indirect_changes = has_indirect_changes
        """Whether a link or a submodule differs: what it leads to is in no list."""

    def has(self, path: str) -> bool:
        """Whether a file differs."""
        return os.path.realpath(path) in self.files

    def find_changed_lines(self, paths: Iterable[str]) -> dict[str, list[range]]:
        """The lines of some files that are new or changed, by path."""
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
        """The lines that differ, by the object of a content; what `.gitattributes` calls binary is text, too."""
        names = [os.path.relpath(path, self.repository.root).replace(os.sep, "/") for path in paths]
        try:
            text = self.repository.run_git(
                "--literal-pathspecs", "diff", "--text", "-U0", "--full-index", *_PLAIN, self.base, "HEAD", "--", *names
            )
        except GitError:
            return {}
        ranges: dict[str, list[range]] = {}
        current = ""
        # Lines of a content begin with a sign, so no content passes for one of these.
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
"""Paths of one command line, which has a bound."""
_DEPTH: Final = "2 for pull requests, 0 for pushes"
"""What makes a checkout hold the commit before; a private repository that keeps no token cannot fetch it later."""
REGULAR: Final = ("100644", "100755")
"""The modes of files in a tree of git; a link has another one."""
_ABSENT: Final = "000000"
"""The mode of what was not there."""


class _TreeDifference(Frozen):
    """One difference between two trees."""

    path: str
    mode: str
    """Before."""
    before: str
    """The object of the content, as `after`."""
    after: str
    kind: str
    """A letter of `git diff --diff-filter`."""


class _Event(Frozen):
    name: str
    payload: Mapping[str, Any]
    sha: str

    def get_text(self, *keys: str) -> str | None:
        """A text of the payload."""
        value: Any = self.payload
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value if isinstance(value, str) else None


def find_changes(folder: str, environment: Mapping[str, str], temporary: str) -> ChangedFiles:
    """What the event of a workflow changed, in the repository of a folder; `temporary` is an empty folder for git.

    Raises GitError; UnknownChange where the event is the reason.
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
    """What differs, by absolute path."""
    output = repository.run_git("diff", "--raw", "-z", "--no-abbrev", *_PLAIN, base, "HEAD")
    fields = iter(os.fsdecode(output).split("\0"))
    # ":100644 000000 <object before> <object after> D", then the path
    return [
        _TreeDifference(os.path.join(repository.root, check_name(path)), *_parse_difference(facts))
        for facts, path in zip(fields, fields, strict=False)
    ]


def check_name(path: str) -> str:
    """Return a path that a tree of git states. Raise UnknownChange if it may lead out of the folder that it is put in.

    git makes no such tree, but stores one that another program made.
    """
    if any(_is_special(part) for part in path.split("/")):
        raise UnknownChange(f"a tree of git has the name {path!r}, which git would not check out")
    return path


def _is_special(part: str) -> bool:
    if part in ("", ".", "..") or part.casefold() == ".git":
        return True
    # Windows has further separators and a short name of `.git`, and passes over dots and blanks at the end.
    return os.name == "nt" and re.search(r"[\\:]|[. ]$|^git~[0-9]$", part, re.I) is not None


def _parse_difference(text: str) -> tuple[str, str, str, str]:
    """The mode before, the objects before and after, and the kind of a difference."""
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
    """The commit that HEAD is compared with."""
    head = repository.run_git("rev-parse", "HEAD").decode().strip()
    if event.name == "pull_request" and head == event.sha:
        # The merge commit: its first parent is what it is merged into.
        return _ensure_commit(repository, "HEAD^1", head, 2)
    keys = {
        "pull_request": ("pull_request", "base", "sha"),
        "pull_request_target": ("pull_request", "base", "sha"),
        "merge_group": ("merge_group", "base_sha"),
        "push": ("before",),
    }.get(event.name)
    if keys is None:
        raise UnknownChange(f"the event {event.name or '(none)'} changes nothing")
    base = event.get_text(*keys)
    if base is None or re.fullmatch("[0-9a-f]{40,64}", base) is None:
        raise UnknownChange("the event does not name the commit before")
    if base == _NO_COMMIT:
        raise UnknownChange("it is the first push of the branch")
    if base == head:
        raise UnknownChange("the commit that is checked out is the one before the change")
    return _ensure_commit(repository, base, base, 1)


def _ensure_commit(repository: Repository, commit: str, fetch_name: str, depth: int) -> str:
    """The commit, fetched where a shallow checkout lacks it."""
    try:
        return repository.run_git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}").decode().strip()
    except GitError:
        try:
            repository.run_git("fetch", "--quiet", "--no-tags", f"--depth={depth}", "origin", fetch_name)
        except GitError as reason:
            raise UnknownChange(f"{reason}; set fetch-depth of actions/checkout: {_DEPTH}") from None
        return repository.run_git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}").decode().strip()
