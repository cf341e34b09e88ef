"""Python programs whose runs cannot be read: whether they are named at the program, or where it is started."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from cfglint_train.documents.document import DocumentError
from cfglint_train.documents.python.script import PythonScript
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.foundation import regular_files
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.framework import Framework
from cfglint_train.launches.entries import program
from cfglint_train.launches.examples import examples
from cfglint_train.launches.launch_scripts import LaunchScripts
from cfglint_train.repository.index import RepositoryIndex

MAX_IMPORTING: Final = 20
"""Python files that may import a module, and are read to see what they give it."""


def is_named(role: str, path: str, index: RepositoryIndex, framework: Framework, scripts: LaunchScripts) -> bool:
    """Whether a run is named at its program: one that a launch gives its settings, if nothing shows how it is started;
    one that is handed its model, if something hands it one of the framework's kind.
    """
    if role == "program":
        return not is_started(path, index, lambda name: scripts.script(name, path))
    own, module = regular_files.tidy(os.path.abspath(path)), os.path.basename(path).removesuffix(".py")
    importing = [one for one in index.pythons_having(("import",), module) if one != own][:MAX_IMPORTING]
    return any(framework.hands(script, path) for one in importing if (script := _script(one)) is not None)


def _script(path: str) -> PythonScript | None:
    try:
        return PythonScript(path, regular_files.read(path))
    except (OSError, DocumentError):
        return None


def is_started(path: str, index: RepositoryIndex, read: Callable[[str], ShellDocument | None]) -> bool:
    """Whether a script starts a Python file, or a read-me file or Makefile with a file of settings: what it is given is
    checked there. `read` gives a script.
    """
    name = os.path.basename(path)
    for script in index.scripts_naming(name):
        document = read(script)
        if document is None or any(_may_start(document, one, name) for one in document.invocations):
            return True
    with_file = re.compile(rb"\b" + re.escape(os.fsencode(name)) + rb"\b(?:[^\n\\]|\\.|\\\n)*\.(?:ya?ml|json)\b")
    return index.rooted and any(with_file.search(text) for _, text in index.once(examples))


def _may_start(document: ShellDocument, one: Invocation, name: str) -> bool:
    """Whether an invocation may start a Python file: another Python program that is given its name starts it in a way
    of its own.
    """
    if os.path.basename(one.program) == name:
        return True
    named = any(word.text.endswith(name) for word in one.words)
    return named and not (one.program.endswith(".py") and program(document, one).python)
