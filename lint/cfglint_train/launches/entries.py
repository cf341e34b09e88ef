"""Programs that launch scripts hand a configuration to: whether one of them is the framework's own."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.folders import resolve_working_folder
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.repository.index import RepositoryIndex
from cfglint_train.repository.sources import Sources

_PYTHON: Final = re.compile(r"python[\d.]*|torchrun|accelerate launch|deepspeed|torch\.distributed\.(?:run|launch)")
_SCRIPT: Final = re.compile(r"\.(?:sh|bash|slurm|sbatch|job)$")
_TRAINING: Final = re.compile(r"train|tune|sft", re.IGNORECASE)
# Python programs that are called after something else which is done with a configuration.
_OTHER_TASK: Final = re.compile(
    r"check|chat|convert|copy|diff|download|eval|export|gen|infer|lint|merge|plot|prep|print|push|render|serve|show|submit"
    r"|sync|test|tokeni|upload|valid|view",
    re.IGNORECASE,
)
_SUBMITTING: Final = re.compile(r"submit", re.IGNORECASE)


class Program(Frozen):
    """A program as a script starts it."""

    name: str
    is_python: bool
    """A Python script or module."""


def get_program(document: ShellDocument, invocation: Invocation) -> Program:
    """What is started by an invocation."""
    parent = None if invocation.parent is None else document.invocations[invocation.parent]
    is_python = invocation.program.endswith(".py") or (parent is not None and bool(_PYTHON.fullmatch(parent.program)))
    return Program(invocation.program, is_python)


def find_foreign_program(programs: Iterable[Program], entry_patterns: Iterable[str]) -> str | None:
    """A program that trains and is none of a framework's own, by the patterns of their names; None where one is."""
    started_programs, patterns = list(programs), tuple(entry_patterns)
    if any(re.fullmatch(pattern, item.name) for item in started_programs for pattern in patterns):
        return None
    return next((item.name for item in started_programs if can_train(item)), None)


def can_train(program: Program) -> bool:
    """Whether a program may train: a tool that only reads or copies the file does not."""
    last = program.name.removesuffix(".py").rpartition("/")[2]
    if _SCRIPT.search(program.name):
        return False
    step = last.rpartition(".")[2] if program.is_python else last
    return bool(_TRAINING.search(step)) or (program.is_python and _OTHER_TASK.search(step) is None)


def is_only_reading(document: ShellDocument, invocation: Invocation) -> bool:
    """Whether a Python program trains nothing with the file that it is given, by its name (`download_data.py`).
    One that submits it to other machines has it trained there.
    """
    started_program = get_program(document, invocation)
    return (
        started_program.is_python
        and not can_train(started_program)
        and _SUBMITTING.search(started_program.name) is None
    )


def get_program_name(invocation: Invocation) -> str:
    """What an invocation starts: of a path in a folder that cannot be determined, the part behind that; else empty."""
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
    """The Python file that an invocation starts by its path or as a module; None where the repository has none."""
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
