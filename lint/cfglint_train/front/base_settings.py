"""Settings files of a commit: a pull request is checked with settings that it cannot change."""

from __future__ import annotations

import errno
import os

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.front.git import GitError, Repository
from cfglint_train.front.git_changes import check_name
from cfglint_train.settings.files import DISK

_REGULAR: Final = "100"
_LINK: Final = "120"
_SUBMODULE: Final = "160"
"""Types of the entries of a git tree: the first digits of their modes."""


class CommitFiles(Frozen):
    """The files of one commit, by their paths in the checkout; files elsewhere are read from disk.

    Folder links are resolved before paths are compared, so a link that a change adds cannot pose as a folder of the
    commit.
    """

    repository: Repository
    commit: str
    objects: dict[str, str]
    """Object ids of the contents of regular files, by path below the root."""
    links: dict[str, str]
    """Object ids of the targets of symbolic links, by path below the root."""
    submodules: dict[str, str]
    """Commits of the submodules, by path below the root."""

    def has(self, path: str) -> bool:
        """Return whether the commit has a regular file at a path."""
        name = self._get_name(path)
        return DISK.has(path) if name is None else name in self.objects

    def read(self, path: str) -> bytes:
        """Return the content of a file. Raise OSError if it cannot be read."""
        name = self._get_name(path)
        if name is None:
            return DISK.read(path)
        if name not in self.objects:
            raise FileNotFoundError(errno.ENOENT, f"not in the base ({self.commit[:12]})", path)
        try:
            return self.repository.run_git("cat-file", "blob", self.objects[name])
        except GitError as reason:
            raise OSError(errno.EIO, str(reason), path) from None

    def _get_name(self, path: str) -> str | None:
        """Return the path below the root, or None if it is outside."""
        folder, name = os.path.split(os.path.abspath(path))
        relative = os.path.relpath(os.path.join(os.path.realpath(folder), name), self.repository.root).replace(
            os.sep, "/"
        )
        return None if relative.startswith("../") else relative


def list_commit_files(repository: Repository, commit: str) -> CommitFiles:
    """Return the files, links and submodules of a commit. Raise GitError if git cannot list them."""
    objects, links, submodules = dict[str, str](), dict[str, str](), dict[str, str]()
    by_type = {_REGULAR: objects, _LINK: links, _SUBMODULE: submodules}
    for entry in repository.run_git("ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0"):
        facts, _, name = os.fsdecode(entry).partition("\t")
        if name:
            mode, _, object_id = facts.split(" ")
            by_type[mode[:3]][check_name(name)] = object_id
    return CommitFiles(repository, commit, objects, links, submodules)
