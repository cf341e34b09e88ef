"""Entry points: distinguish a framework's own programs from other programs to which launch scripts pass a config."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.folders import resolve_working_folder
from cfglint_train.documents.shell.programs import PRINTERS
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.repository.index import RepositoryIndex
from cfglint_train.repository.sources import Sources

_SCRIPT: Final = compile_on_use(r"\.(?:sh|bash|slurm|sbatch|job)$")
_TRAINING: Final = compile_on_use(r"train|tune|sft", re.IGNORECASE)
# Names of Python programs that use a config for something other than training.
_OTHER_TASK: Final = compile_on_use(
    r"check|chat|convert|copy|diff|download|eval|export|gen|infer|lint|merge|plot|prep|print|push|render|serve|show|submit"
    r"|sync|test|tokeni|upload|valid|view",
    re.IGNORECASE,
)
_SUBMITTING: Final = compile_on_use(r"submit", re.IGNORECASE)


class Program(Frozen):
    """A program that a script starts."""

    name: str
    is_python: bool
    """True for a Python script, or a module that Python or a launcher starts."""


def get_program(document: ShellDocument, invocation: Invocation) -> Program:
    """Return the program that an invocation starts."""
    return Program(invocation.program, document.is_python(invocation))


def find_foreign_program(programs: Iterable[Program], entry_patterns: Iterable[str]) -> str | None:
    """Return the first program that may train, or None if there is none or any program matches `entry_patterns`.

    The patterns are those of the framework's own programs, so the result is a program outside the framework.
    """
    started_programs, patterns = list(programs), tuple(entry_patterns)
    if any(re.fullmatch(pattern, item.name) for item in started_programs for pattern in patterns):
        return None
    return next((item.name for item in started_programs if can_train(item)), None)


def can_train(program: Program) -> bool:
    """Return whether a program may train, judging by its name; false for shell scripts and read-only tools."""
    last = program.name.removesuffix(".py").rpartition("/")[2]
    if _SCRIPT.search(program.name):
        return False
    step = last.rpartition(".")[2] if program.is_python else last
    return bool(_TRAINING.search(step)) or (program.is_python and _OTHER_TASK.search(step) is None)


def is_only_reading(document: ShellDocument, invocation: Invocation) -> bool:
    """Return whether a command only prints its words, or starts a Python program that does not train with its file.

    The name of the program shows it (`download_data.py`). A program that submits the file to other machines counts as
    training.
    """
    if invocation.program in PRINTERS:
        return True
    started_program = get_program(document, invocation)
    return (
        started_program.is_python
        and not can_train(started_program)
        and _SUBMITTING.search(started_program.name) is None
    )


def get_program_name(invocation: Invocation) -> str:
    """Return the program of an invocation, or an empty string if its name cannot be determined.

    If only the folder is unknown (`$ROOT/scripts/train.py`), return the path below it (`scripts/train.py`).
    """
    if invocation.head[-1].is_known:
        return invocation.program
    *before, last = invocation.head[-1].fragments or (None,)
    if last is None or last.why or last.condition or not before:
        return ""
    folder, slash, name = last.text.decode("utf-8", "replace").partition("/")
    return name if slash and not folder else ""


def resolve_program(
    document: ShellDocument, invocation: Invocation, sources: Sources, index: RepositoryIndex
) -> str | None:
    """Return the Python file that an invocation starts by path or as a module, or None if there is none."""
    module = invocation.program.replace(".", "/")
    names = (
        (get_program_name(invocation),)
        if invocation.program.endswith(".py")
        else (f"{module}.py", f"{module}/__main__.py")
    )
    for name in names:
        path = sources.find(os.path.join(resolve_working_folder(document, invocation), name), document.path)
        if path is not None:
            return path
        same_named = index.find_by_name(os.path.basename(name)) if "__main__" not in name else ()
        tail = index.find_by_suffix(name, document.path) or (same_named[0] if len(same_named) == 1 else None)
        if tail is not None:
            return sources.format_path(tail, document.path)
    return None
