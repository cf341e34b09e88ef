"""Programs that launch scripts hand a configuration to: whether one of them is the framework's own."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.folders import folder_of
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.repository.index import RepositoryIndex
from cfglint_train.repository.sources import Sources

_PYTHON: Final = re.compile(r"python[\d.]*|torchrun|accelerate launch|deepspeed|torch\.distributed\.(?:run|launch)")
_SCRIPT: Final = re.compile(r"\.(?:sh|bash|slurm|sbatch|job)$")
_TRAINS: Final = re.compile(r"train|tune|sft", re.IGNORECASE)
# Python programs that are called after something else which is done with a configuration.
_OTHER: Final = re.compile(
    r"check|chat|convert|copy|diff|download|eval|export|gen|infer|lint|merge|plot|prep|print|push|render|serve|show|submit"
    r"|sync|test|tokeni|upload|valid|view",
    re.IGNORECASE,
)
_SUBMITS: Final = re.compile(r"submit", re.IGNORECASE)


class Program(Frozen):
    """A program as a script starts it."""

    name: str
    python: bool
    """A Python script or module."""


def program(document: ShellDocument, invocation: Invocation) -> Program:
    """What is started by an invocation."""
    parent = None if invocation.parent is None else document.invocations[invocation.parent]
    python = invocation.program.endswith(".py") or (parent is not None and bool(_PYTHON.fullmatch(parent.program)))
    return Program(invocation.program, python)


def foreign(programs: Iterable[Program], own: Iterable[str]) -> str | None:
    """A program that trains and is none of a framework's own, by the patterns of their names; None where one is."""
    found, patterns = list(programs), tuple(own)
    if any(re.fullmatch(pattern, one.name) for one in found for pattern in patterns):
        return None
    return next((one.name for one in found if trains(one)), None)


def trains(one: Program) -> bool:
    """Whether a program may train: a tool that only reads or copies the file does not."""
    last = one.name.removesuffix(".py").rpartition("/")[2]
    if _SCRIPT.search(one.name):
        return False
    step = last.rpartition(".")[2] if one.python else last
    return bool(_TRAINS.search(step)) or (one.python and _OTHER.search(step) is None)


def only_reads(document: ShellDocument, invocation: Invocation) -> bool:
    """Whether a Python program trains nothing with the file that it is given, by its name (`download_data.py`).
    One that submits it to other machines has it trained there.
    """
    one = program(document, invocation)
    return one.python and not trains(one) and _SUBMITS.search(one.name) is None


def name_of(one: Invocation) -> str:
    """What an invocation starts: of a path in a folder that cannot be determined, the part behind that; else empty."""
    if one.head[-1].known:
        return one.program
    *before, last = one.head[-1].fragments or (None,)
    if last is None or last.why or last.optional or not before:
        return ""
    folder, slash, name = last.text.decode("utf-8", "replace").partition("/")
    return name if slash and not folder else ""


def file_of(document: ShellDocument, one: Invocation, sources: Sources, index: RepositoryIndex) -> str | None:
    """The Python file that an invocation starts by its path or as a module; None where the repository has none."""
    module = one.program.replace(".", "/")
    names = (name_of(one),) if one.program.endswith(".py") else (f"{module}.py", f"{module}/__main__.py")
    for name in names:
        found = sources.find(os.path.join(folder_of(document, one), name), document.path)
        if found is not None:
            return found
        others = index.named(os.path.basename(name)) if "__main__" not in name else ()
        tail = index.by_tail(name, document.path) or (others[0] if len(others) == 1 else None)
        if tail is not None:
            return sources.named(tail, document.path)
    return None
