"""What a program of the repository imports in the place of a framework: a copy of it under another name."""

from __future__ import annotations

import os
import re

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.registry import Listed, Tree
from cfglint_train.project.fillers import Followed
from cfglint_train.project.index import RepositoryIndex

_IMPORT: Final = re.compile(r"(?m)^[ \t]*(?:from|import)[ \t]+(\w+)")


def renamed_copy_of(program: str, script: str, index: RepositoryIndex, listed: Listed) -> tuple[str, str] | None:
    """The folder that holds the copy, and the copy's name; None where the program, which a script starts, is not found,
    or imports the framework itself, or no copy of it.
    """
    assert listed.tree is not None
    beside = regular_files.tidy(os.path.join(os.path.dirname(os.path.abspath(script)), program))
    file = beside if beside in index.named(os.path.basename(program)) else index.by_tail(program, script)
    names = {} if file is None else dict.fromkeys(_IMPORT.findall(index.once(Followed).text(file)))
    if not names.keys().isdisjoint(listed.tree.packages):
        return None
    return next(
        ((root, name) for name in names for root in index.holding(name) if _is_renamed(root, name, listed.tree)), None
    )


def _is_renamed(root: str, name: str, tree: Tree) -> bool:
    """Whether a package below a folder has most of what a framework's is known by."""
    for package in tree.packages:
        tails = [mark.removeprefix(package) for mark in tree.marks if mark.startswith(f"{package}/")]
        if 2 * sum(os.path.exists(f"{root}/{name}{tail}") for tail in tails) > len(tails):
            return True
    return False
