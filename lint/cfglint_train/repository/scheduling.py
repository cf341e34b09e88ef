"""The order in which processes share the files of a lint: one that reads a configuration reads its scripts, too."""

from __future__ import annotations

import os
from collections.abc import Sequence

from cfglint_train.foundation import regular_files
from cfglint_train.repository.index import Repositories, RepositoryIndex

Turn = tuple[int, str]
"""A file with its number."""


def neighbours(turns: Sequence[Turn], repositories: Repositories) -> list[Turn]:
    """The files with each script behind the one that it names; of several, behind that which the fewest scripts name:
    many name the launcher's file, few the configuration.
    """
    numbers = {regular_files.tidy(os.path.abspath(path)): number for number, path in turns}
    named: dict[tuple[RepositoryIndex, str], int] = {}
    for number, path in turns:
        named.setdefault((repositories.index(path), os.path.basename(path)), number)
    naming = [(index.scripts_naming(name), number) for (index, name), number in named.items()]
    behind: dict[int, int] = {}
    for scripts, number in sorted(naming, key=lambda one: len(one[0])):
        for script in scripts:
            own = numbers.get(script, number)
            if own != number:
                behind.setdefault(own, number)
    return sorted(turns, key=lambda turn: (behind.get(turn[0], turn[0]), turn))
