"""Lint of the repository before a change, to find out which findings the change adds.

The files that a finding depends on cannot be listed: any model, pin, launch script or copy of a framework may matter,
including ones that a change adds or removes. So the files before the change are restored in a temporary folder, and the
same lint runs there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from shutil import copyfile, rmtree
from tempfile import mkdtemp

from cfglint_train.foundation import filesystem, regular_files
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.git_index import find_git_folder
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.front import base_settings
from cfglint_train.front.git import Repository
from cfglint_train.front.git_changes import ChangedFiles, UnknownChange

if TYPE_CHECKING:
    from cfglint_train.api import Options
    from cfglint_train.findings.finding import Finding
    from cfglint_train.foundation.budget import Budget
    from cfglint_train.judging.result import Result, Trouble
    from cfglint_train.runs.run import Run

_MAX_CHANGED: Final = 500
"""Maximum number of changed files; git runs twice for each."""
_MAX_FILES: Final = 200_000
"""Maximum number of files in the checkout."""
_OUT_OF_TIME: Final = UnknownChange("`max-cpu-seconds` leaves no time to lint the previous commit")


class BaseResult(Frozen):
    """Findings, troubles and runs of the commit before a change, as comparable keys."""

    findings: frozenset[tuple[Any, ...]]
    troubles: frozenset[tuple[Any, ...]]
    runs: tuple[tuple[Any, ...], ...]

    def has_finding(self, finding: Finding) -> bool:
        """Return whether the same finding existed before the change."""
        return _build_finding_key(finding) in self.findings

    def has_trouble(self, trouble: Trouble) -> bool:
        """Return whether the same trouble existed before the change."""
        return _build_trouble_key(trouble) in self.troubles

    def has_run(self, run: Run) -> bool:
        """Return whether the same run, with the same plan, model, hardware and releases, existed before the change."""
        return _build_run_key(run) in self.runs


def lint_base(changes: ChangedFiles, paths: list[str], options: Options, budget: Budget) -> BaseResult:
    """Lint the commit before a change. Raise GitError if it cannot be restored, or linted within the budget."""
    from cfglint_train import api

    # The runner deletes its RUNNER_TEMP after the job, even if this process is killed.
    temporary = os.path.realpath(mkdtemp(prefix="cfglint-", dir=os.environ.get("RUNNER_TEMP") or None))
    folder = os.path.join(temporary, os.path.basename(changes.repository.root))
    try:
        if regular_files.is_below(temporary, changes.repository.root):
            raise UnknownChange("the temporary folder is inside the checkout")
        _restore_files(changes, folder, budget)
        working_folder = os.path.join(folder, os.path.relpath(os.path.realpath(os.curdir), changes.repository.root))
        os.makedirs(working_folder, exist_ok=True)
        base_options = options.replace(
            max_cpu_seconds=budget.compute_limit(),
            config=_relocate(options.config, changes.repository.root, folder),
            baseline=_relocate(options.baseline, changes.repository.root, folder),
            model_config=_relocate(options.model_config, changes.repository.root, folder),
            model_folders=[
                _relocate(requested, changes.repository.root, folder) for requested in options.model_folders
            ],
        )
        with _enter_folder(working_folder):
            base_paths = [
                path
                for requested in paths
                if os.path.lexists(path := _relocate(requested, changes.repository.root, folder))
            ]
            result = api.lint(base_paths, base_options).raw if base_paths else None
    except OSError as error:
        raise UnknownChange(f"cannot restore the files before the change: {error.strerror}") from None
    finally:
        rmtree(temporary, ignore_errors=True)
    if result is None:
        return BaseResult(frozenset(), frozenset(), ())
    if result.is_cut_short:
        raise _OUT_OF_TIME
    return _build_base_result(result)


def _build_base_result(result: Result) -> BaseResult:
    return BaseResult(
        frozenset(map(_build_finding_key, result.findings)),
        frozenset(map(_build_trouble_key, result.troubles)),
        tuple(map(_build_run_key, result.runs)),
    )


def _build_finding_key(finding: Finding) -> tuple[Any, ...]:
    """Return the reported contents of a finding, with its position, which moves only if its own file changes."""
    item = finding
    related = tuple(related.message for related in item.related)
    return item.code, item.severity, item.certainty, item.path, item.start, item.message, item.help, item.notes, related


def _build_trouble_key(trouble: Trouble) -> tuple[Any, ...]:
    return trouble.path, trouble.message, trouble.position, trouble.rule


def _build_run_key(run: Run) -> tuple[Any, ...]:
    """Return the facts that the findings of a run can depend on, without source locations."""
    hardware = run.hardware
    sizes = hardware.gpu, hardware.gpu_bytes, hardware.gpu_others, hardware.host_bytes, hardware.disk_bytes
    releases = {name: (release.version, release.origin.kind) for name, release in run.releases.by_package.items()}
    return run.main.document.path, run.main.root, run.plan, run.architecture, sizes, releases


def _relocate(path: Any, root: str, folder: str) -> Any:
    """Return the corresponding path in `folder` for a path below `root`; other paths are unchanged."""
    if path is None or not os.path.isabs(path) or not regular_files.is_below(path, root):
        return path
    return os.path.join(folder, os.path.relpath(os.path.realpath(path), root))


@contextmanager
def _enter_folder(folder: str) -> Iterator[None]:
    """Change the working directory temporarily, so that findings have the same relative paths as in the checkout."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _restore_files(changes: ChangedFiles, folder: str, budget: Budget) -> None:
    """Fill an empty folder with the files before the change. Raise GitError and OSError."""
    repository, root = changes.repository, changes.repository.root
    before, current = (base_settings.list_commit_files(repository, commit).objects for commit in (changes.base, "HEAD"))
    changed = {path for path in before.keys() | current.keys() if before.get(path) != current.get(path)}
    if len(changed) > _MAX_CHANGED:
        raise UnknownChange(f"more than {_MAX_CHANGED} files changed")
    # Write first, while the folder has no link that could redirect a write.
    for path in sorted(changed & before.keys()):
        _check_budget(budget)
        _write_content(repository, before[path], os.path.join(folder, path))
    _link_unchanged(root, folder, changed, budget)
    for name in ("index", "info/exclude"):
        path = os.path.join(find_git_folder(root), name)
        if os.path.isfile(path):
            target = os.path.join(folder, ".git", name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            copyfile(path, target)


def _check_budget(budget: Budget) -> None:
    """Raise UnknownChange if no time is left."""
    if budget.compute_seconds_left() <= 0:
        raise _OUT_OF_TIME


def _write_content(repository: Repository, content: str, path: str) -> None:
    """Write an object of the repository, or a sparse file of its size if it is too large for cfglint to read."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    size = int(repository.run_git("cat-file", "-s", content))
    with open(path, "xb") as file:
        if size > regular_files.MAX_BYTES:
            file.truncate(size)
        else:
            file.write(repository.run_git("cat-file", "blob", content))


def _link_unchanged(root: str, folder: str, changed: set[str], budget: Budget) -> None:
    """Link the unchanged files of a checkout into a folder, including those that git does not track."""
    count = 0
    pending = [""]
    while pending:
        _check_budget(budget)
        parent = pending.pop()
        os.makedirs(os.path.join(folder, parent), exist_ok=True)
        with os.scandir(os.path.join(root, parent)) as entries:
            for entry in entries:
                path = os.path.join(parent, entry.name)
                count += 1
                if count > _MAX_FILES:
                    raise UnknownChange(f"the checkout has more than {_MAX_FILES} files")
                if entry.name in filesystem.MARKS:
                    os.makedirs(os.path.join(folder, path), exist_ok=True)
                elif entry.is_symlink():
                    os.symlink(os.readlink(entry.path), os.path.join(folder, path))
                elif entry.is_dir(follow_symlinks=False):
                    pending.append(path)
                elif entry.is_file(follow_symlinks=False) and path.replace(os.sep, "/") not in changed:
                    _link_or_copy(entry.path, os.path.join(folder, path))


def _link_or_copy(path: str, target: str) -> None:
    """Link a file. If the file system cannot link it, copy it, or create a sparse file of its size if it is large."""
    try:
        os.link(path, target, follow_symlinks=False)
        return
    except FileExistsError:
        raise
    except OSError:
        size = os.path.getsize(path)
    if size <= regular_files.MAX_BYTES:
        copyfile(path, target)
    else:
        with open(target, "xb") as file:
            file.truncate(size)
