"""Scheduling of files among processes: the process that checks a configuration also checks its scripts."""

from __future__ import annotations

import os
from collections.abc import Sequence

from cfglint_train.foundation import regular_files
from cfglint_train.repository.index import Repositories, RepositoryIndex

Turn = tuple[int, str]
"""Number and path of a file."""


def sort_turns(turns: Sequence[Turn], repositories: Repositories) -> list[Turn]:
    """Sort the files so that each script directly follows a file that it names.

    A script that names several files follows the file that the fewest scripts name. That is usually the configuration,
    because many scripts share the launcher's file.
    """
    numbers = {regular_files.normalize_path(os.path.abspath(path)): number for number, path in turns}
    numbers_by_name: dict[tuple[RepositoryIndex, str], int] = {}
    for number, path in turns:
        numbers_by_name.setdefault((repositories.get_index(path), os.path.basename(path)), number)
    scripts_by_number = [(index.find_scripts_naming(name), number) for (index, name), number in numbers_by_name.items()]
    predecessors: dict[int, int] = {}
    for scripts, number in sorted(scripts_by_number, key=lambda pair: len(pair[0])):
        for script in scripts:
            script_number = numbers.get(script, number)
            if script_number != number:
                predecessors.setdefault(script_number, number)
    return sorted(turns, key=lambda turn: (predecessors.get(turn[0], turn[0]), turn))
