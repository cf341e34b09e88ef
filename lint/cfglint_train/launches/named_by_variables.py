"""Launches that name their file by variables: `accelerate launch train.py --config recipes/$MODEL/$NAME.yaml`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.documents.shell.words import Word
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final
from cfglint_train.repository.index import RepositoryIndex

_PATH: Final = compile_on_use(r"(?m)(?<![\w./${}-])[\w./${}-]{0,200}\$[\w./${}-]{0,200}\.ya?ml\b")
_VARIABLE: Final = compile_on_use(r"\$(?:\{\w+\}|\w+)")
_VARIABLE_NAME: Final = compile_on_use(r"\$\{?(\w+)\}?")
_ASSIGNMENT: Final = compile_on_use(r"(?m)^[ \t]*(?:export[ \t]+)?(\w+)=([^\s;#]+)")
_MIN_LITERAL: Final = 3
"""Minimum number of literal characters in a path besides its ending: `$1.yaml` could be any file."""
_MAX_VARIABLE_FOLDERS: Final = 3
"""Maximum number of variable folders in a path; each may match several folders."""
_MAX_PATHS: Final = 100
"""Maximum number of paths to examine in one script."""


def find_variable_scripts(index: RepositoryIndex, path: str) -> tuple[str, ...]:
    """Return the scripts that contain a path with variables that may expand to `path`."""
    tail = _get_relative_path(index, path)
    return tuple(
        script
        for script, patterns in index.compute_once(_list_patterns)
        if any(pattern.search(tail) for pattern in patterns)
    )


def find_variable_uses(
    document: ShellDocument, path: str, index: RepositoryIndex
) -> Iterator[tuple[Invocation, tuple[Word, ...]]]:
    """Yield the invocations with a word that may expand to `path`, each with the words after that word."""
    tail, text = _get_relative_path(index, path), document.source.decode("utf-8", "replace")
    assignments = dict(_ASSIGNMENT.findall(text))
    for invocation in document.invocations:
        words = (*invocation.head[-1:], *invocation.words)
        for position, word in enumerate(words):
            name = _VARIABLE_NAME.fullmatch(word.text)
            pattern = (
                _compile_pattern(assignments.get(name[1], "") if name is not None else word.text)
                if not word.is_known
                else None
            )
            if pattern is not None and pattern.search(tail):
                yield invocation, words[position + 1 :]
                break


def _list_patterns(index: RepositoryIndex) -> list[tuple[str, tuple[re.Pattern[str], ...]]]:
    """Return the scripts that name files by variables, each with the patterns of the possible paths."""
    scripts = []
    for path, text in index.read_texts("variables"):
        paths = dict.fromkeys(_PATH.findall(re.sub(r"(?m)^\s*#.*$", "", text))[:_MAX_PATHS])
        patterns = tuple(pattern for item in paths if (pattern := _compile_pattern(item)) is not None)
        if patterns:
            scripts.append((path, patterns))
    return scripts


def _compile_pattern(text: str) -> re.Pattern[str] | None:
    """Return a pattern for the paths that a string with variables may expand to, or None if it is too general.

    Also return None if the string is not a YAML path or its file name has no variable.
    """
    text = text.strip("\"'")
    if _PATH.fullmatch(text) is None or "$" not in os.path.basename(text):
        return None
    steps = [step for step in text.split("/") if step not in ("", ".", "..")]
    while len(steps) > 1 and _VARIABLE.fullmatch(steps[0]):  # `$ROOT/configs/...`
        steps = steps[1:]
    literal = _VARIABLE.sub("", "".join(steps)).removesuffix(".yaml").removesuffix(".yml")
    if (
        len(re.sub(r"\W", "", literal)) < _MIN_LITERAL
        or sum("$" in step for step in steps[:-1]) > _MAX_VARIABLE_FOLDERS
    ):
        return None
    parts = [[re.escape(part) for part in _VARIABLE.split(step)] for step in steps]
    inner = "[^/]+(?:/[^/]+)*?".join
    return re.compile(f"(?:^|/){'/'.join([*map(inner, parts[:-1]), '[^/]+'.join(parts[-1])])}$")


def _get_relative_path(index: RepositoryIndex, path: str) -> str:
    """Return a file's path below the root of its repository."""
    return os.path.relpath(os.path.abspath(path), index.root).replace(os.sep, "/")
