"""Assigned arguments: arguments that a program overwrites after parsing, and other words of its code.

Programs are read as text and never run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.mutations.fillers import PythonSources

if TYPE_CHECKING:
    from cfglint_train.documents.shell.document import ShellDocument
    from cfglint_train.documents.shell.script import Invocation
    from cfglint_train.launches.launch_scripts import LaunchScripts

_HOLDERS: Final = r"(?<![\w.])\w*(?:arg|cfg|conf|opt|param)\w*"
"""Pattern for the names of objects that a parser returns: `model_args`, `cfg`."""


def find_programs(invocations: Iterable[tuple[ShellDocument, Invocation]], scripts: LaunchScripts) -> tuple[str, ...]:
    """Return the paths of the repository's Python programs that `invocations` start."""
    programs = dict[str, None]()
    for document, invocation in invocations:
        from cfglint_train.launches.entries import resolve_program  # few files are passed to a program

        index = scripts.repositories.get_index(document.path)
        path = resolve_program(document, invocation, scripts.sources, index) if index.is_repository else None
        if path is not None:
            programs[path] = None
    return tuple(programs)


def has_word_in_programs(words: Iterable[str], programs: Iterable[str], scripts: LaunchScripts) -> bool:
    """Return whether any of `programs` or their imports has one of `words` in its code; copies do not count."""
    from cfglint_train.documents.python.syntax import has_word  # few findings need the imports
    from cfglint_train.mutations.imported import ImportGraph

    for program in programs:
        index = scripts.repositories.get_index(program)
        sources = index.compute_once(PythonSources)
        for path in index.compute_once(ImportGraph).find_imports(program):
            if not path.startswith(sources.copies) and has_word(sources.read_source(path), words):
                return True
    return False


def is_argument_assigned(name: str, programs: Iterable[str], scripts: LaunchScripts) -> bool:
    """Return whether any of `programs` assigns the argument (`model_args.lora_target_modules = ...`)."""
    pattern = re.compile(rf"{_HOLDERS}\.{re.escape(name)}[ \t]*(?::[^\n=]+)?=(?!=)")
    indexes = ((program, scripts.repositories.get_index(program)) for program in programs)
    return any(pattern.search(index.compute_once(PythonSources).read_source(program)) for program, index in indexes)
