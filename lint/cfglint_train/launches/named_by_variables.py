"""Launches that name their file by variables: `accelerate launch train.py --config recipes/$MODEL/$NAME.yaml`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.documents.shell.words import Word
from cfglint_train.foundation.typed import Final
from cfglint_train.repository.index import RepositoryIndex

_PATH: Final = re.compile(r"(?m)(?<![\w./${}-])[\w./${}-]{0,200}\$[\w./${}-]{0,200}\.ya?ml\b")
_VARIABLE: Final = re.compile(r"\$(?:\{\w+\}|\w+)")
_VARIABLE_NAME: Final = re.compile(r"\$\{?(\w+)\}?")
_ASSIGNMENT: Final = re.compile(r"(?m)^[ \t]*(?:export[ \t]+)?(\w+)=([^\s;#]+)")
_MIN_LITERAL: Final = 3
"""Characters of a path that are no variable's, beside the ending: `$1.yaml` may be any file."""
_MAX_VARIABLE_FOLDERS: Final = 3
"""Folders of one path that are variables: each may be any number of folders."""
_MAX_PATHS: Final = 100
"""Paths of one script that are looked at."""


def find_variable_scripts(index: RepositoryIndex, path: str) -> tuple[str, ...]:
    """The scripts with a path that is a file's for some values of the variables in it."""
    tail = _get_relative_path(index, path)
    return tuple(
        script
        for script, patterns in index.compute_once(_list_patterns)
        if any(pattern.search(tail) for pattern in patterns)
    )


def find_variable_uses(
    document: ShellDocument, path: str, index: RepositoryIndex
) -> Iterator[tuple[Invocation, tuple[Word, ...]]]:
    """The invocations of a script that are given such a path, each with the words behind it."""
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
    """The scripts of a repository that name files by variables, each with the patterns of their paths."""
    scripts = []
    for path, text in index.read_texts("variables"):
        paths = dict.fromkeys(_PATH.findall(re.sub(r"(?m)^\s*#.*$", "", text))[:_MAX_PATHS])
        patterns = tuple(pattern for item in paths if (pattern := _compile_pattern(item)) is not None)
        if patterns:
            scripts.append((path, patterns))
    return scripts


def _compile_pattern(text: str) -> re.Pattern[str] | None:
    """The paths that a text with variables may be; None where its name has none of them, or nearly any path fits."""
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
    """A file's path below the root of its repository."""
    return os.path.relpath(os.path.abspath(path), index.root).replace(os.sep, "/")
