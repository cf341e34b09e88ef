"""What a program of the repository imports in the place of a framework: a copy of it under another name, or a package
of another kind.
"""

from __future__ import annotations

import os
import re

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.registry import FrameworkManifest, SourceLayout
from cfglint_train.mutations.fillers import Followed
from cfglint_train.repository.index import RepositoryIndex

_IMPORT: Final = re.compile(r"(?m)^[ \t]*(?:from|import)[ \t]+(\w+)")


def renamed_copy_of(file: str, index: RepositoryIndex, listed: FrameworkManifest) -> tuple[str, str] | None:
    """The folder that holds the copy, and the copy's name; None where a program's file imports the framework itself, or
    no copy of it.
    """
    assert listed.tree is not None
    names = _imports(file, index)
    if not names.keys().isdisjoint(listed.tree.packages):
        return None
    return next(
        ((root, name) for name in names for root in index.holding(name) if _is_renamed(root, name, listed.tree)), None
    )


def imports_another(file: str, index: RepositoryIndex, listed: FrameworkManifest) -> bool:
    """Whether a program of the repository imports a package of the repository, and neither of them the framework,
    directly or through others.
    """
    assert listed.tree is not None
    if not any(index.holding(name) for name in _imports(file, index)):
        return False
    from cfglint_train.mutations.imported import Imported

    own = {*listed.tree.packages}
    return all(own.isdisjoint(_imports(one, index)) for one in index.once(Imported).by(file))


def file_of(program: str, script: str, index: RepositoryIndex) -> str | None:
    """The file of a program that a script starts; None where the repository has none."""
    beside = regular_files.tidy(os.path.join(os.path.dirname(os.path.abspath(script)), program))
    return beside if beside in index.named(os.path.basename(program)) else index.by_tail(program, script)


def _imports(file: str, index: RepositoryIndex) -> dict[str, None]:
    """The packages that a file imports."""
    return dict.fromkeys(_IMPORT.findall(index.once(Followed).text(file)))


def _is_renamed(root: str, name: str, tree: SourceLayout) -> bool:
    """Whether a package below a folder has most of what a framework's is known by."""
    for package in tree.packages:
        tails = [mark.removeprefix(package) for mark in tree.marks if mark.startswith(f"{package}/")]
        if 2 * sum(os.path.exists(f"{root}/{name}{tail}") for tail in tails) > len(tails):
            return True
    return False
