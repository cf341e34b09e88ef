"""The Python programs of a repository that a configuration is given to, each with the option that gives it."""

from __future__ import annotations

from cfglint_train.documents.document import Document
from cfglint_train.launches.launch_scripts import LaunchScripts


def given_programs(path: str, scripts: LaunchScripts) -> tuple[tuple[Document | None, str], ...]:
    """The program of each invocation that is given a file, None where the repository has none, and the word before the
    file's path; empty where that is the first one.
    """
    found = []
    for script, one, behind in scripts.handed(path):
        from cfglint_train.launches.entries import file_of  # few files are given to a program

        file = file_of(script, one, scripts.sources, scripts.repositories.index(script.path))
        before = one.words[: len(one.words) - len(behind) - 1][-1:]
        found.append((None if file is None else scripts.program(file), before[0].text if before else ""))
    return tuple(found)
