"""The Python programs of a repository that a configuration is given to, each with the option that gives it."""

from __future__ import annotations

from cfglint_train.documents.document import Document
from cfglint_train.launches.launch_scripts import LaunchScripts


def find_consumers(path: str, scripts: LaunchScripts) -> tuple[tuple[Document | None, str], ...]:
    """The program of each invocation that is given a file, None where the repository has none, and the word before the
    file's path; empty where that is the first one.
    """
    consumers = []
    for script, invocation, trailing in scripts.find_uses(path):
        from cfglint_train.launches.entries import resolve_program  # few files are given to a program

        file = resolve_program(script, invocation, scripts.sources, scripts.repositories.get_index(script.path))
        before = invocation.words[: len(invocation.words) - len(trailing) - 1][-1:]
        consumers.append((None if file is None else scripts.read_program(file), before[0].text if before else ""))
    return tuple(consumers)
