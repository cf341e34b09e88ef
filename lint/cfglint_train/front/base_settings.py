"""Settings files as a commit has them: on a pull request, those that the change under test is not the author of."""

from __future__ import annotations

import errno
import os

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.front.git import GitError, Repository
from cfglint_train.front.git_changes import REGULAR, check_name
from cfglint_train.settings.files import DISK


class CommitFiles(Frozen):
    """The files of one commit, by the paths that they have in the checkout. What is elsewhere is read from the disk.

    Folders are compared with links followed: what a change calls a folder is none of the commit.
    """

    repository: Repository
    commit: str
    objects: dict[str, str]
    """Paths below the root, and the objects of their content."""

    def has(self, path: str) -> bool:
        """Whether the commit has such a file."""
        name = self._get_name(path)
        return DISK.has(path) if name is None else name in self.objects

    def read(self, path: str) -> bytes:
        """Its content. Raises OSError."""
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
        """The path below the root; None outside."""
        folder, name = os.path.split(os.path.abspath(path))
        relative = os.path.relpath(os.path.join(os.path.realpath(folder), name), self.repository.root).replace(
            os.sep, "/"
        )
        return None if relative.startswith("../") else relative


def list_commit_files(repository: Repository, commit: str) -> CommitFiles:
    """The files of a commit of a checkout. Raises GitError."""
    objects = {}
    for entry in repository.run_git("ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0"):
        facts, _, name = os.fsdecode(entry).partition("\t")
        mode, _, object_id = facts.partition(" blob ")
        if mode in REGULAR:
            objects[check_name(name)] = object_id
    return CommitFiles(repository, commit, objects)
