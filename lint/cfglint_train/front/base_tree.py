"""The files of another commit, restored in a temporary folder, so that the same lint runs there.

The files that a run depends on cannot be listed: any model, pin, launch script or copy of a framework may matter,
including ones that a change adds or removes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import new as build_hash
from shutil import copyfile, rmtree
from tempfile import mkdtemp

from cfglint_train.foundation import filesystem, regular_files
from cfglint_train.foundation.git_index import find_git_folder
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.front import base_settings
from cfglint_train.front.git import Repository
from cfglint_train.front.git_changes import UnknownChange
from cfglint_train.repository.gitignore import GitIgnore

if TYPE_CHECKING:
    from cfglint_train.api import LintResult, Options
    from cfglint_train.foundation.budget import Budget

_MAX_CHANGED: Final = 500
"""Maximum number of changed files; git runs twice for each."""
_MAX_FILES: Final = 200_000
"""Maximum number of files in the checkout."""
_ENVIRONMENTS: Final = ("node_modules", "site-packages", "__pycache__", "pyvenv.cfg")
"""Names in a folder of installed packages; no configuration names a file there."""
OUT_OF_TIME: Final = UnknownChange("`max-cpu-seconds` leaves no time to lint the previous commit")


def lint_commit(
    repository: Repository,
    commit: str,
    paths: Sequence[str],
    options: Options,
    budget: Budget,
    *,
    is_clean: bool,
) -> LintResult | None:
    """Lint `paths` as they are in a commit; return None if none of them is there.

    `is_clean`: the checkout is exactly its HEAD, plus untracked files, which count as part of the commit. Otherwise the
    work tree may differ from every commit, and untracked files count as new unless git ignores them. Raise GitError if
    the commit cannot be restored, or linted within the budget.
    """
    from cfglint_train import api

    # The runner deletes its RUNNER_TEMP after the job, even if this process is killed.
    temporary = os.path.realpath(mkdtemp(prefix="cfglint-", dir=os.environ.get("RUNNER_TEMP") or None))
    folder = os.path.join(temporary, os.path.basename(repository.root))
    try:
        if regular_files.is_below(temporary, repository.root):
            raise UnknownChange("the temporary folder is inside the checkout")
        _restore_files(repository, commit, folder, budget, is_clean)
        working_folder = os.path.join(folder, os.path.relpath(os.path.realpath(os.curdir), repository.root))
        os.makedirs(working_folder, exist_ok=True)
        base_options = options.replace(
            max_cpu_seconds=budget.compute_limit(),
            config=_relocate(options.config, repository.root, folder),
            baseline=_relocate(options.baseline, repository.root, folder),
            model_config=_relocate(options.model_config, repository.root, folder),
            model_folders=[_relocate(requested, repository.root, folder) for requested in options.model_folders],
        )
        with _enter_folder(working_folder):
            base_paths = [
                path for requested in paths if os.path.lexists(path := _relocate(requested, repository.root, folder))
            ]
            result = api.lint(base_paths, base_options) if base_paths else None
    except OSError as error:
        raise UnknownChange(f"cannot restore the files before the change: {error.strerror}") from None
    finally:
        rmtree(temporary, ignore_errors=True)
    if result is not None and result.raw.is_cut_short:
        raise OUT_OF_TIME
    return result


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


def _restore_files(repository: Repository, commit: str, folder: str, budget: Budget, is_clean: bool) -> None:
    """Fill an empty folder with the files of a commit. Raise GitError and OSError."""
    root = repository.root
    before = base_settings.list_commit_files(repository, commit).objects
    if is_clean:
        current: Mapping[str, str] = base_settings.list_commit_files(repository, "HEAD").objects
    else:
        current = {path: _hash_file(os.path.join(root, path), object_id) for path, object_id in before.items()}
    changed = {path for path in before.keys() | current.keys() if before.get(path) != current.get(path)}
    if len(changed) > _MAX_CHANGED:
        raise UnknownChange(f"more than {_MAX_CHANGED} files changed")
    # Write first, while the folder has no link that could redirect a write.
    for path in sorted(changed & before.keys()):
        _check_budget(budget)
        _write_content(repository, before[path], os.path.join(folder, path))
    is_omitted = _build_filter(changed) if is_clean else _build_work_tree_filter(root, changed, before)
    _link_unchanged(root, folder, is_omitted, budget)
    for name in ("index", "info/exclude"):
        path = os.path.join(find_git_folder(root), name)
        if os.path.isfile(path):
            target = os.path.join(folder, ".git", name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            copyfile(path, target)


def _hash_file(path: str, object_id: str) -> str:
    """Return the object id of a regular file, hashed like `object_id`, or an empty string if it cannot be read."""
    try:
        if os.path.islink(path) or os.path.getsize(path) > regular_files.MAX_BYTES:
            return ""
        content = regular_files.read_anywhere(path)
    except OSError:
        return ""
    digest = build_hash("sha1" if len(object_id) == 40 else "sha256", usedforsecurity=False)
    digest.update(b"blob %d\0" % len(content) + content)
    return digest.hexdigest()


def _check_budget(budget: Budget) -> None:
    """Raise UnknownChange if no time is left."""
    if budget.compute_seconds_left() <= 0:
        raise OUT_OF_TIME


def _write_content(repository: Repository, content: str, path: str) -> None:
    """Write an object of the repository, or a sparse file of its size if it is too large for cfglint to read."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    size = int(repository.run_git("cat-file", "-s", content))
    with open(path, "xb") as file:
        if size > regular_files.MAX_BYTES:
            file.truncate(size)
        else:
            file.write(repository.run_git("cat-file", "blob", content))


_Filter = Callable[[str, bool], bool]


def _build_filter(changed: set[str]) -> _Filter:
    """Return a function that returns whether a path of the checkout has another content in the commit."""
    return lambda path, is_folder: not is_folder and path in changed


def _build_work_tree_filter(root: str, changed: set[str], before: Mapping[str, str]) -> _Filter:
    """Return a function that returns whether a path of the work tree is not part of the commit.

    Files that git ignores are part of every commit, except installed packages.
    """
    ignore, inside = GitIgnore(root), set[str]()

    def is_omitted(path: str, is_folder: bool) -> bool:
        full = os.path.join(root, path)
        is_ignored = os.path.dirname(path) in inside or ignore.is_ignored(full, is_folder)
        if is_folder:
            if is_ignored:
                inside.add(path)
            return is_ignored and (
                os.path.basename(path) in _ENVIRONMENTS or os.path.exists(os.path.join(full, "pyvenv.cfg"))
            )
        return path in changed or (path not in before and not is_ignored)

    return is_omitted


def _link_unchanged(root: str, folder: str, is_omitted: _Filter, budget: Budget) -> None:
    """Link the files of a checkout into a folder, except those that are omitted."""
    count = 0
    pending = [""]
    while pending:
        _check_budget(budget)
        parent = pending.pop()
        os.makedirs(os.path.join(folder, parent), exist_ok=True)
        with os.scandir(os.path.join(root, parent)) as entries:
            for entry in entries:
                path = os.path.join(parent, entry.name)
                name = path.replace(os.sep, "/")
                count += 1
                if count > _MAX_FILES:
                    raise UnknownChange(f"the checkout has more than {_MAX_FILES} files")
                if entry.name in filesystem.MARKS:
                    os.makedirs(os.path.join(folder, path), exist_ok=True)
                elif entry.is_symlink():
                    os.symlink(os.readlink(entry.path), os.path.join(folder, path))
                elif entry.is_dir(follow_symlinks=False):
                    if not is_omitted(name, True):
                        pending.append(path)
                elif entry.is_file(follow_symlinks=False) and not is_omitted(name, False):
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
