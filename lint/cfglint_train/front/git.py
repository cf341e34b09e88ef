"""Git commands on a checkout, which is only read and cannot influence what git executes.

git obeys the configuration of its repository, which can start programs in many ways: an ssh command, a file system
monitor, hooks, filters, helpers. So cfglint runs git in its own repository in a temporary folder, which borrows the
objects of the checkout and copies the few settings of `_SETTINGS`. That repository has no work tree, so git reads
neither attributes nor submodules, and a fetch does not change the checkout.

Sources: git 2.39 Documentation/config, gitrepository-layout(5), git(1) "Environment variables".
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from subprocess import TimeoutExpired

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.front import programs

_SETTINGS: Final = compile_on_use(
    r"extensions\.(objectformat|partialclone)|remote\.origin\.(url|promisor|partialclonefilter)"
    r"|http\.(.*\.)?extraheader",
    re.DOTALL,
)
"""Copied settings: the object format, the promisor remote, and the token that actions/checkout leaves."""

_OPTIONS: Final = (
    "safe.bareRepository=explicit", "core.fsmonitor=false", f"core.hooksPath={os.devnull}", "gc.auto=0",
    "maintenance.auto=false", "fetch.recurseSubmodules=false", "fetch.fsckObjects=true",
    # Otherwise git queries the repository whose objects are borrowed.
    "core.alternateRefsCommand=true",
)  # fmt: skip
_PROTOCOLS: Final = "file:http:https:ssh"

_LOCATION_VARIABLES: Final = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_SHALLOW_FILE",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_GRAFT_FILE", "GIT_NAMESPACE", "GIT_PREFIX", "GIT_ATTR_SOURCE",
)  # fmt: skip
"""Environment variables that point to another repository, for example inside a git hook."""


class GitError(Exception):
    """Failure of a git command; the message quotes git or states the reason."""


class Repository(Frozen):
    """A checkout and our own repository, through which git reads it."""

    root: str
    """Folder of the checkout, with links resolved."""
    git_dir: str

    def run_git(self, *arguments: str) -> bytes:
        """Return the output of a git command. Raise GitError."""
        return run({"GIT_DIR": self.git_dir}, *arguments)


def run(places: Mapping[str, str], *arguments: str) -> bytes:
    """Return the output of a git command; without `GIT_DIR` in `places`, it uses no repository. Raise GitError."""
    inherited = {name: value for name, value in os.environ.items() if name not in _LOCATION_VARIABLES}
    # Fail instead of asking for a password.
    overrides = {"GIT_ALLOW_PROTOCOL": _PROTOCOLS, "GIT_TERMINAL_PROMPT": "0", "GIT_DIR": os.devnull}
    options = [word for option in _OPTIONS for word in ("-c", option)]
    try:
        completed = programs.run("git", *options, *arguments, environment={**inherited, **overrides, **places})
    except FileNotFoundError:
        raise GitError("git is not installed") from None
    except TimeoutExpired:
        raise GitError(f"git {arguments[0]} timed out") from None
    if completed.returncode:
        errors = completed.stderr.decode("utf-8", "replace").strip().splitlines()
        raise GitError(f"git {arguments[0]}: {errors[-1] if errors else f'exit code {completed.returncode}'}")
    return completed.stdout


def resolve_revision(repository: Repository, revision: str) -> str:
    """Return the commit that a name in the checkout stands for: a branch, a tag, a hash, `HEAD~2`. Raise GitError."""
    # Without a protocol, git fetches nothing, so it starts no program that the checkout's configuration names.
    places = {
        "GIT_DIR": os.path.join(repository.root, ".git"), "GIT_WORK_TREE": repository.root, "GIT_ALLOW_PROTOCOL": "none"
    }  # fmt: skip
    try:
        output = run(places, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    except GitError:
        raise GitError(f"no revision {revision} in {repository.root}") from None
    return output.decode().strip()


def open_repository(folder: str, workspace: str, temporary: str) -> Repository:
    """Return the repository of a folder in a checkout; `temporary`, an empty folder, will hold our repository.

    Raise GitError.
    """
    root = _find_root(os.path.realpath(folder), os.path.realpath(workspace or os.sep))
    # Both commands read the checkout's configuration but start no program from it. With GIT_DIR set, git does not check
    # who owns the checkout; in a container, that is another user.
    places = {"GIT_DIR": os.path.join(root, ".git"), "GIT_WORK_TREE": root}
    head, _, common = os.fsdecode(run(places, "rev-parse", "HEAD", "--git-common-dir")).partition("\n")
    common = os.path.join(root, common.rstrip("\n"))
    settings = run(places, "config", "--local", "--includes", "--null", "--list")
    texts = {
        "HEAD": f"{head}\n",
        "refs/heads/checkout": f"{head}\n",  # a fetch can skip this commit
        "objects/info/alternates": os.path.join(common, "objects") + "\n",
        "config": "".join(_render_config(os.fsdecode(settings).split("\0"))),
    }
    with suppress(FileNotFoundError):
        texts["shallow"] = os.fsdecode(regular_files.read_anywhere(os.path.join(common, "shallow")))
    for name, text in texts.items():
        path = os.path.join(temporary, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            file.write(text)
    return Repository(root, temporary)


def _find_root(folder: str, workspace: str) -> str:
    """Return the nearest folder with a `.git` folder, or else the outermost with a `.git` file. Raise GitError.

    The search ends at the workspace. A git tree cannot contain `.git`, so a change cannot add one, except for a
    submodule. There `.git` is a file, so the repository around it counts. A folder that merely looks like a bare
    repository does not count.
    """
    if folder != workspace and not regular_files.is_below(folder, workspace):
        raise GitError("the working directory is outside of GITHUB_WORKSPACE")
    linked = None
    while True:
        git_path = os.path.join(folder, ".git")
        if os.path.isdir(git_path):
            return folder
        linked = folder if os.path.isfile(git_path) else linked
        if folder in (workspace, os.path.dirname(folder)):
            break
        folder = os.path.dirname(folder)
    if linked is None:
        raise GitError("not a git repository")
    return linked


def _render_config(entries: Iterable[str]) -> Iterator[str]:
    """Yield the configuration of our repository, given the entries of the checkout's configuration."""
    yield "[core]\n\trepositoryformatversion = 1\n\tbare = true\n"
    for entry in entries:
        key, has_value, value = entry.partition("\n")
        if _SETTINGS.fullmatch(key):
            section, _, name = key.rpartition(".")
            section, _, subsection = section.partition(".")
            yield f'[{section} "{_escape(subsection)}"]\n' if subsection else f"[{section}]\n"
            yield f'\t{name} = "{_escape(value)}"\n' if has_value else f"\t{name}\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
