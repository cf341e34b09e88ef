"""Files that a script starts: Python programs, scripts and the configuration files that it passes to programs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import islice

from cfglint_train.documents.shell.composed import find_composed_file
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.folders import resolve_working_folder
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final
from cfglint_train.launches.entries import resolve_program
from cfglint_train.launches.launches import find_trailing_words, find_trailing_words_elsewhere, resolve_script
from cfglint_train.launches.named_by_variables import find_variable_uses
from cfglint_train.launches.turns import find_loop_uses, list_loop_patterns
from cfglint_train.repository import files
from cfglint_train.repository.index import RepositoryIndex
from cfglint_train.repository.sources import Sources

_EXPANSION: Final = compile_on_use(r"\$(?:\{[^}]*\}|\w+|\([^)]*\))|`[^`]*`")
_MAX_SCRIPTS: Final = 20
"""Maximum number of scripts to follow that start each other."""
_MAX_CANDIDATES: Final = 200
"""Maximum number of files to compare with the words of one script."""


def list_started_files(
    document: ShellDocument,
    sources: Sources,
    index: RepositoryIndex,
    read_script: Callable[[str, str], ShellDocument | None],
) -> Iterator[str]:
    """Yield the Python programs, the other scripts and the configuration files that a script starts or passes."""
    waiting, seen = [document], {os.path.abspath(document.path)}
    while waiting:
        script = waiting.pop(0)
        for invocation in script.invocations:
            program = resolve_program(script, invocation, sources, index)
            if program is not None:
                yield program
            inner = resolve_script(script, invocation, index)
            if inner is not None and os.path.abspath(inner) not in seen and len(seen) < _MAX_SCRIPTS:
                seen.add(os.path.abspath(inner))
                inner_script = read_script(inner, script.path)
                if inner_script is not None:
                    waiting.append(inner_script)
                    yield inner_script.path
            yield from _find_stated_files(script, invocation, sources)
        for path in islice(_list_candidates(script, index), _MAX_CANDIDATES):
            if _is_passed(script, path, index):
                yield sources.format_path(path, script.path)


def _find_stated_files(script: ShellDocument, invocation: Invocation, sources: Sources) -> Iterator[str]:
    """Yield the configuration files that an invocation names by a path that exists in its working folder."""
    folder = resolve_working_folder(script, invocation)
    for word in invocation.words:
        path = word.text.rpartition("=")[2]
        if path.endswith(files.CONFIGURATIONS):
            paths = (sources.find(os.path.join(folder, path), script.path), sources.find(path, script.path))
            yield from (file for file in paths if file is not None)


def _list_candidates(script: ShellDocument, index: RepositoryIndex) -> Iterator[str]:
    """Yield the configuration files with a name that a word of the script may expand to, each once."""
    names = dict.fromkeys(_list_names(script))
    loops = dict(index.compute_once(list_loop_patterns)).get(_normalize_path(script.path), frozenset())
    patterns = [name for name in (*names, *loops) if set("*?[") & set(name)]
    yielded = set[str]()
    for name in names:
        for path in index.find_by_name(name) if name not in patterns else ():
            if path not in yielded:
                yielded.add(path)
                yield path
    for path in index.find_by_extension(files.CONFIGURATIONS) if patterns or loops else ():
        basename = os.path.basename(path)
        if path not in yielded and (basename in loops or any(fnmatchcase(basename, item) for item in patterns)):
            yielded.add(path)
            yield path


def _list_names(script: ShellDocument) -> Iterator[str]:
    """Yield the file names at the end of the script's words, with `*` for expansions, and those that Hydra composes."""
    for invocation in script.invocations:
        composed = find_composed_file(invocation)
        if composed is not None:
            yield composed.name
        for word in invocation.words:
            text = word.text if word.is_known else _EXPANSION.sub("*", word.text)
            name = text.rpartition("=")[2].rpartition("/")[2]
            if name.endswith(files.CONFIGURATIONS) and name.partition(".")[0] != "*":
                yield name


def _is_passed(script: ShellDocument, path: str, index: RepositoryIndex) -> bool:
    """Return whether a script passes a file to a program, by a path that may contain variables."""
    uses: Iterable[object] = find_loop_uses(script, path, index)
    return (
        any(
            find(script, invocation, path, index) is not None
            for invocation in script.invocations
            for find in (find_trailing_words, find_trailing_words_elsewhere)
        )
        or any(True for _ in uses)
        or any(True for _ in find_variable_uses(script, path, index))
    )


def _normalize_path(path: str) -> str:
    return os.path.abspath(path).replace(os.sep, "/")
