"""Loops over files in scripts: `for c in configs/*.yaml; do axolotl train $c`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.documents.shell.words import Word
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final
from cfglint_train.launches.launches import list_working_folders
from cfglint_train.repository.index import RepositoryIndex

MAX_WORDS: Final = 200
"""Maximum number of words of one loop that are substituted into each use of its variable."""

_HEAD: Final = compile_on_use(r"(?m)^[ \t]*for[ \t]+(\w+)[ \t]+in[ \t]+([^;\n]+)")
_LS_CALL: Final = compile_on_use(
    r"\$\([ \t]*ls(?:[ \t]+-\w+)*[ \t]+([^()|;&]+)\)|`[ \t]*ls(?:[ \t]+-\w+)*[ \t]+([^`|;&]+)`"
)
_ASSIGNMENT: Final = compile_on_use(r"(?m)^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)=[\"']?([\w./-]+)[\"']?[ \t]*$")
_VARIABLE: Final = compile_on_use(r"\$(?:\{(\w+)\}|(\w+))")


def _find_loops(text: str) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """Yield the loops of a script: the variable, the byte offset of the loop, and the words it iterates over."""
    assignments = dict(_ASSIGNMENT.findall(text))
    for head in _HEAD.finditer(text):
        ls_call = _LS_CALL.search(head[2])
        words = (ls_call[1] or ls_call[2]) if ls_call is not None else head[2]
        expanded = (
            _expand_variables(word.strip("\"'"), assignments) for word in words.replace('"', "").split()[:MAX_WORDS]
        )
        values = tuple(word for word in expanded if not set("$`()") & set(word))
        if values:
            yield head[1], len(text[: head.start()].encode()), values


def _expand_variables(word: str, assignments: dict[str, str]) -> str:
    return _VARIABLE.sub(lambda name: assignments.get(name[1] or name[2], name[0]), word)


def list_loop_patterns(index: RepositoryIndex) -> list[tuple[str, frozenset[str]]]:
    """Return the scripts that loop over files, each with the patterns of the file names in its loops."""
    scripts = []
    for path, text in index.read_texts("loops"):
        names = {
            os.path.basename(pattern)
            for variable, _, words in _find_loops(text)
            for use in set(re.findall(rf"[\w./-]*\$(?:\{{{variable}\}}|{variable}\b)[\w./-]*", text))
            for word in words
            if not set("$`") & set(pattern := _VARIABLE.sub(word.replace("\\", ""), use))
        }
        if names:
            scripts.append((path, frozenset(names)))
    return scripts


def find_loop_uses(
    document: ShellDocument, config: str, repository: RepositoryIndex
) -> Iterator[tuple[Invocation, tuple[Word, ...]]]:
    """Yield the invocations in a loop that receive a file in some iteration, each with the words after the path."""
    loops = list(_find_loops(document.source.decode("utf-8", "replace")))
    for invocation in document.invocations if loops else ():
        if invocation.scope is None or not any(kind == "loop" for kind, _ in invocation.scope.conditions):
            continue
        for index, word in enumerate(invocation.words):
            at = max(invocation.span.start, word.span.start)  # the word of a function's call is behind the function
            before = {variable: words for variable, offset, words in loops if offset < at}
            uses = list(_VARIABLE.finditer(word.text))
            if word.is_known or len(uses) != 1 or set("`(") & set(word.text):
                continue
            start, end = word.text[: uses[0].start()], word.text[uses[0].end() :]
            patterns = (f"{start}{item}{end}" for item in before.get(uses[0][1] or uses[0][2], ()))
            if any(_is_match(item, config, document, invocation, repository) for item in patterns):
                yield invocation, invocation.words[index + 1 :]
                break


def _is_match(
    pattern: str, config: str, document: ShellDocument, invocation: Invocation, repository: RepositoryIndex
) -> bool:
    """Return whether a path pattern matches the config from any folder in which the invocation may run."""
    steps = os.path.abspath(config).replace(os.sep, "/").split("/")
    for base in list_working_folders(document, invocation, repository.root):
        wanted = os.path.normpath(os.path.join(base, pattern)).replace(os.sep, "/").split("/")
        if len(wanted) == len(steps) and all(map(fnmatchcase, steps, wanted)):
            return True
    return False
