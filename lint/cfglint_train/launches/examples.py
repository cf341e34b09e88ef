"""Example launches: find commands in READMEs, Makefiles, justfiles, YAML jobs, docstrings and Python programs.

Everything that is not a command is blanked, so that the commands parse as a script with the line numbers of the file.
`exit` is replaced by `true` because in these files it leaves a container or ends one recipe line's shell, not a script.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.repository.files import JUSTFILES, is_makefile
from cfglint_train.repository.index import RepositoryIndex
from cfglint_train.repository.workflows import is_workflow

if TYPE_CHECKING:
    from cfglint_train.documents.python.script import PythonScript

_FENCE: Final = compile_on_use(r"(?ms)^[ \t]*```[ \t]*(\w*)[^\n]*\n(.*?)^[ \t]*```[ \t]*$")
_JOB: Final = "#SBATCH "
_SHELLS: Final = ("", "bash", "console", "sh", "shell", "zsh")
_PROGRAMS: Final = r"accelerate|axolotl|deepspeed|llamafactory-cli|lmf|python3?|sbatch|torchrun|trl"
_ENDING: Final = r"\.(?:ya?ml|json|py)\b"
_STARTS: Final = compile_on_use(rf"\b(?:bash|{_PROGRAMS})\b(?:[^\n]|\\\n)*{_ENDING}")
_COMMAND: Final = compile_on_use(
    r"(?m)^[ \t]*(?:\w+=\S+ )*(?:accelerate|deepspeed|python3?|torchrun|uv)\b(?:[^\n\\]|\\.|\\\n)*"
)
_UNCONTINUED: Final = compile_on_use(r"(?m)^([ \t]*accelerate launch)[ \t]*\n(?=[ \t]*--)")
"""Launcher alone on its line with its options on the next line: docstrings often lack the backslash."""
_NO_NEWLINE: Final = compile_on_use(r"[^\n]")
_PROMPT: Final = compile_on_use(r"(?m)^([ \t]*)\$ ")
_EXIT: Final = compile_on_use(r"(?<![\w./$-])exit(?![\w./=-])")
_LAUNCHER: Final = compile_on_use(rf"\b(?:{_PROGRAMS})\b")
_FILE: Final = compile_on_use(_ENDING)


def list_examples(index: RepositoryIndex) -> list[tuple[str, bytes]]:
    """Return the files of a repository that contain launch commands, each with everything else blanked.

    A Markdown file with job scripts is returned once per job script because `#SBATCH` applies only to its own block.
    """
    parts = []
    for path, text in index.read_texts("commands"):
        if path.endswith(".md"):
            if _STARTS.search(text) is not None:
                parts += [(path, part.encode()) for part in _extract_fenced(text)]
        elif _FILE.search(text) and (_LAUNCHER.search(text) or (path.endswith(".py") and "executable" in text)):
            parts += [(path, part.encode()) for part in extract_scripts(path, text, index)]
    return parts


def extract_scripts(path: str, text: str, index: RepositoryIndex) -> Iterator[str]:
    """Yield the commands in a Python program, Makefile, justfile or YAML job as shell scripts."""
    name = os.path.basename(path)
    if path.endswith(".py"):
        from cfglint_train.launches.python_launches import extract_commands  # lazy: few programs start others

        yield extract_commands(text, name)
    elif is_makefile(path):
        from cfglint_train.documents import makefiles

        yield _replace_exits(makefiles.extract_commands(text, index.compute_once(_list_make_variables)))
    elif name in JUSTFILES:
        from cfglint_train.documents import justfiles

        yield _replace_exits(justfiles.extract_commands(text))
    elif is_job(path) and not is_workflow(path):
        from cfglint_train.documents import job_commands

        yield from map(_replace_exits, job_commands.extract_scripts(text))


def is_job(path: str) -> bool:
    """Return whether an example is a YAML job, which is the launch itself rather than an illustration."""
    return path.endswith((".yaml", ".yml"))


def extract_docstring_commands(script: PythonScript) -> bytes:
    """Return the commands in the docstring of a script, on their original lines, or empty bytes."""
    import ast

    if ast.get_docstring(script.module, clean=False) is None:
        return b""
    span = script.find_span(script.module.body[0])
    text = _UNCONTINUED.sub(r"\1 \\\n", script.get_text(span))
    spans = [match.span() for match in _COMMAND.finditer(text)]
    before = _blank_text(script.source[: span.start].decode("utf-8", "replace"))
    return (before + _blank_outside(text, spans)).encode() if spans else b""


def _list_make_variables(index: RepositoryIndex) -> frozenset[str]:
    """Return the variables that commands in the repository set when they call make (`make train GPUS=8`)."""
    from cfglint_train.documents.makefiles import MAKE_COMMAND, MAKE_VARIABLE

    texts = (text for _, text in index.read_texts("make"))
    calls = (call[1] for text in texts for call in MAKE_COMMAND.finditer(text))
    return frozenset(name for call in calls for name in MAKE_VARIABLE.findall(call))


def _extract_fenced(text: str) -> Iterator[str]:
    """Yield the commands of a Markdown file, each job script separately."""
    fences = [fence for fence in _FENCE.finditer(text) if fence[1] in _SHELLS and _STARTS.search(fence[2]) is not None]
    jobs = [fence.span(2) for fence in fences if _JOB in fence[2]]
    yield from (_blank_outside(text, [fence]) for fence in jobs)
    plain = [fence.span(2) for fence in fences if fence.span(2) not in jobs]
    if plain:
        yield _blank_outside(text, plain)


def _blank_outside(text: str, spans: list[tuple[int, int]]) -> str:
    """Return the text with everything outside `spans` blanked, and prompts and `exit` replaced inside them."""
    parts, end = [], 0
    for start, stop in spans:
        parts += [_blank_text(text[end:start]), _replace_exits(_PROMPT.sub(r"\1  ", text[start:stop]))]
        end = stop
    return "".join((*parts, _blank_text(text[end:])))


def _replace_exits(text: str) -> str:
    return _EXIT.sub("true", text)


def _blank_text(text: str) -> str:
    return _NO_NEWLINE.sub(" ", text)
