"""Consumers: the Python programs of a repository that receive a config, with the option that passes it."""

from __future__ import annotations

from cfglint_train.documents.document import Document
from cfglint_train.launches.launch_scripts import LaunchScripts


def find_consumers(path: str, scripts: LaunchScripts) -> tuple[tuple[Document | None, str], ...]:
    """Return, for each invocation that receives a file, its Python program and the word before the file's path.

    The program is None if the repository does not have it. The word, usually an option, is empty if the path comes
    first.
    """
    consumers = []
    for script, invocation, trailing in scripts.find_uses(path):
        from cfglint_train.launches.entries import resolve_program  # lazy: few files are passed to a program

        file = resolve_program(script, invocation, scripts.sources, scripts.repositories.get_index(script.path))
        before = invocation.words[: len(invocation.words) - len(trailing) - 1][-1:]
        consumers.append((None if file is None else scripts.read_program(file), before[0].text if before else ""))
    return tuple(consumers)
