"""The runs that a script, a Python program or a notebook starts and that are not read: each is named where it is
started.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

from cfglint_train.documents.document import DocumentError, Span
from cfglint_train.documents.notebooks import read
from cfglint_train.documents.python.document import PythonDocument
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.registry import candidates
from cfglint_train.launches.absent import absent, argued, miscased, started_with, written
from cfglint_train.launches.examples import scripts_in
from cfglint_train.launches.launch_scripts import LaunchScripts
from cfglint_train.launches.python_launches import commands
from cfglint_train.launches.unread_launches import unread_launches
from cfglint_train.repository import files
from cfglint_train.repository.documents import Documents, UnreadFile
from cfglint_train.repository.index import RepositoryIndex
from cfglint_train.repository.lookalikes import looks_like

_HOLDING: Final = (".ipynb", ".mk", ".py", ".yaml", ".yml")
"""Ends of the names of files that hold commands among other things."""
_TESTS: Final = ("test", "tests")
"""Folders with programs that start others to try them."""


def note_starts(
    path: str,
    configs: list[Config],
    documents: Documents,
    scripts: LaunchScripts,
    index: RepositoryIndex,
    reads: Callable[[str], bool],
) -> None:
    """Note what a file starts and that is not read. `configs` are its own; `reads`: whether another one is the main
    configuration of a run, or is named as one that is not read.
    """
    name = os.path.basename(path)
    sources, is_script = documents.sources, not path.endswith(_HOLDING) and name not in files.RECIPES
    own = [int(config.root[0]) for config in configs] if is_script else []
    for script in _scripts(path, documents, scripts, index):
        started = started_with(script, own, sources, index)
        missing = (*absent(script, started, sources), *miscased(script, sources, index, reads))
        documents.unread.extend(UnreadFile(path, at, told, "absent") for at, told in missing)
        for span, why in (*written(script, started), *argued(script, own, index, reads)):
            documents.note_run(script, span, why)
        options = [] if is_script else list(_in_options(script))
        if path in documents.launching and not configs and not options and not looks_like(path, script.source):
            options = list(unread_launches(script, sources, index, reads))
        for span, why in options:
            documents.note_run(script, span, why)


def _scripts(
    path: str, documents: Documents, scripts: LaunchScripts, index: RepositoryIndex
) -> Iterator[ShellDocument]:
    """The commands that a file starts, as scripts."""
    texts: Iterable[str] = ()
    if path.endswith(".ipynb"):
        texts = _of_notebook(path, documents)
    elif path.endswith(_HOLDING) or os.path.basename(path) in files.RECIPES:
        whole = os.path.abspath(path)
        if not os.path.basename(path).startswith("test_") and set(_TESTS).isdisjoint(path.split("/")):
            texts = scripts_in(whole, documents.sources.read(path).decode("utf-8", "replace"), index)
    else:
        script = scripts.script(path, path)
        if script is not None:
            yield script
    for text in texts:
        try:
            found = files.parse(path, text.encode(), "shell") if text.strip() else None
        except DocumentError:
            continue
        if isinstance(found, ShellDocument):
            yield found


def _of_notebook(path: str, documents: Documents) -> Iterator[str]:
    """The commands of a notebook. The run of its Python code is noted."""
    notebook = read(documents.sources.read(path).decode("utf-8", "replace"))
    if notebook is None:
        return
    try:
        program = files.parse(path, notebook.python.encode(), "python")
    except DocumentError:
        program = None
    if isinstance(program, PythonDocument):
        found = (one for name in candidates(program.source, "python") for one in frameworks.recognise(name, program))
        run = next((one for one in found if one.role in (None, "unread", "program")), None)
        if run is not None:
            at = next((program.span(call) for call in program.calls("train") if run.at is None), run.at)
            documents.note_run(
                program, at, "it is in a notebook; export it as a script (`jupyter nbconvert --to script`)"
            )
    yield commands(notebook.python)
    yield notebook.commands


def _in_options(script: ShellDocument) -> Iterator[tuple[Span, str]]:
    """Where a program or a notebook trains with options alone."""
    for name in candidates(script.source, "shell"):
        for found in frameworks.recognise(name, script):
            if found.role != "other" and found.root:
                started = script.invocations[int(found.root[0])]
                yield started.head[-1].span, f"the options of `{started.program}` are read in shell scripts only"
