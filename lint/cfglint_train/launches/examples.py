"""Commands in read-me files, Makefiles, justfiles, jobs in YAML, docstrings and Python programs that start a
configuration: examples of how it may be started.

All that is not a command is blanked, so that the commands are read as a script with the lines of the file. An `exit`
among them is none of that script: it leaves a container, or ends the shell of one line of a recipe.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from cfglint_train.documents import job_commands, justfiles, makefiles
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.repository.files import JUSTFILES, is_makefile
from cfglint_train.repository.index import RepositoryIndex
from cfglint_train.repository.workflows import is_workflow

if TYPE_CHECKING:
    from cfglint_train.documents.python.script import PythonScript

_FENCE: Final = re.compile(r"(?ms)^[ \t]*```[ \t]*(\w*)[^\n]*\n(.*?)^[ \t]*```[ \t]*$")
_JOB: Final = "#SBATCH "
_SHELLS: Final = ("", "bash", "console", "sh", "shell", "zsh")
_PROGRAMS: Final = r"accelerate|axolotl|deepspeed|llamafactory-cli|lmf|python3?|sbatch|torchrun|trl"
_ENDING: Final = r"\.(?:ya?ml|json|py)\b"
_STARTS: Final = re.compile(rf"\b(?:bash|{_PROGRAMS})\b(?:[^\n]|\\\n)*{_ENDING}")
_COMMAND: Final = re.compile(
    r"(?m)^[ \t]*(?:\w+=\S+ )*(?:accelerate|deepspeed|python3?|torchrun|uv)\b(?:[^\n\\]|\\.|\\\n)*"
)
_UNCONTINUED: Final = re.compile(r"(?m)^([ \t]*accelerate launch)[ \t]*\n(?=[ \t]*--)")
"""A launcher alone on its line, and its options on the next: in a docstring the backslash is easily forgotten."""
_NO_NEWLINE: Final = re.compile(r"[^\n]")
_PROMPT: Final = re.compile(r"(?m)^([ \t]*)\$ ")
_EXIT: Final = re.compile(r"(?<![\w./$-])exit(?![\w./=-])")
_LAUNCHER: Final = re.compile(rf"\b(?:{_PROGRAMS})\b")
_FILE: Final = re.compile(_ENDING)


def examples(index: RepositoryIndex) -> list[tuple[str, bytes]]:
    """The files of a repository with such commands, each with nothing but these in it.

    A Markdown file that shows job scripts is several: what `#SBATCH` asks for is for the commands of its own block.
    """
    found = []
    for path, text in index.texts("commands"):
        if path.endswith(".md"):
            if _STARTS.search(text) is not None:
                found += [(path, part.encode()) for part in _fenced(text)]
        elif _FILE.search(text) and (_LAUNCHER.search(text) or (path.endswith(".py") and "executable" in text)):
            found += [(path, part.encode()) for part in scripts_in(path, text, index)]
    return found


def scripts_in(path: str, text: str, index: RepositoryIndex) -> Iterator[str]:
    """The commands of a file that has hardly anything else, as scripts."""
    name = os.path.basename(path)
    if path.endswith(".py"):
        from cfglint_train.launches.python_launches import commands  # few programs start others

        yield commands(text)
    elif is_makefile(path):
        yield _without_exits(makefiles.commands(text, index.once(_made)))
    elif name in JUSTFILES:
        yield _without_exits(justfiles.commands(text))
    elif is_job(path) and not is_workflow(path):
        yield from map(_without_exits, job_commands.scripts(text))


def is_job(path: str) -> bool:
    """Whether an example is a job: the launch itself, and not only how one may look."""
    return path.endswith((".yaml", ".yml"))


def described(script: PythonScript) -> bytes:
    """The commands in the docstring of a script, with the lines of the file; empty where it has none."""
    import ast

    if ast.get_docstring(script.module, clean=False) is None:
        return b""
    span = script.span(script.module.body[0])
    text = _UNCONTINUED.sub(r"\1 \\\n", script.text(span))
    commands = [one.span() for one in _COMMAND.finditer(text)]
    before = _blank(script.source[: span.start].decode("utf-8", "replace"))
    return (before + _alone(text, commands)).encode() if commands else b""


def _made(index: RepositoryIndex) -> frozenset[str]:
    """The variables that commands of a repository set where they call make."""
    texts = (text for _, text in index.texts("make"))
    calls = (call[1] for text in texts for call in makefiles.SETS.finditer(text))
    return frozenset(name for call in calls for name in makefiles.SET.findall(call))


def _fenced(text: str) -> Iterator[str]:
    """The commands of a Markdown file, those of each job script by themselves."""
    fences = [one for one in _FENCE.finditer(text) if one[1] in _SHELLS and _STARTS.search(one[2]) is not None]
    jobs = [one.span(2) for one in fences if _JOB in one[2]]
    yield from (_alone(text, [one]) for one in jobs)
    plain = [one.span(2) for one in fences if one.span(2) not in jobs]
    if plain:
        yield _alone(text, plain)


def _alone(text: str, kept: list[tuple[int, int]]) -> str:
    """A text with nothing but some parts of it, without the prompts there."""
    parts, end = [], 0
    for start, after in kept:
        parts += [_blank(text[end:start]), _without_exits(_PROMPT.sub(r"\1  ", text[start:after]))]
        end = after
    return "".join((*parts, _blank(text[end:])))


def _without_exits(text: str) -> str:
    return _EXIT.sub("true", text)


def _blank(text: str) -> str:
    return _NO_NEWLINE.sub(" ", text)
