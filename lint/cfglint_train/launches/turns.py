"""Loops of scripts over files: `for c in configs/*.yaml; do axolotl train $c`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.documents.shell.words import Word
from cfglint_train.foundation.typed import Final
from cfglint_train.launches.launches import folders_of
from cfglint_train.repository.index import RepositoryIndex

MAX_WORDS: Final = 200
"""Words of one loop that are looked at, and what they make of one use of its variable."""

_HEAD: Final = re.compile(r"(?m)^[ \t]*for[ \t]+(\w+)[ \t]+in[ \t]+([^;\n]+)")
_LISTED: Final = re.compile(r"\$\([ \t]*ls(?:[ \t]+-\w+)*[ \t]+([^()|;&]+)\)|`[ \t]*ls(?:[ \t]+-\w+)*[ \t]+([^`|;&]+)`")
_GIVEN: Final = re.compile(r"(?m)^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)=[\"']?([\w./-]+)[\"']?[ \t]*$")
_VARIABLE: Final = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


def _heads(text: str) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """The loops of a script: the variable, the byte at which the loop begins, and the words that it goes through."""
    given = dict(_GIVEN.findall(text))
    for head in _HEAD.finditer(text):
        listed = _LISTED.search(head[2])
        words = (listed[1] or listed[2]) if listed is not None else head[2]
        plain = (_filled(word.strip("\"'"), given) for word in words.replace('"', "").split()[:MAX_WORDS])
        found = tuple(word for word in plain if not set("$`()") & set(word))
        if found:
            yield head[1], len(text[: head.start()].encode()), found


def _filled(word: str, given: dict[str, str]) -> str:
    return _VARIABLE.sub(lambda name: given.get(name[1] or name[2], name[0]), word)


def looping(index: RepositoryIndex) -> list[tuple[str, frozenset[str]]]:
    """The scripts of a repository with loops, and the patterns of the names of files that these go through."""
    found = []
    for path, text in index.texts("loops"):
        names = {
            os.path.basename(pattern)
            for variable, _, words in _heads(text)
            for use in set(re.findall(rf"[\w./-]*\$(?:\{{{variable}\}}|{variable}\b)[\w./-]*", text))
            for word in words
            if not set("$`") & set(pattern := _VARIABLE.sub(word.replace("\\", ""), use))
        }
        if names:
            found.append((path, frozenset(names)))
    return found


def turned(
    document: ShellDocument, config: str, repository: RepositoryIndex
) -> Iterator[tuple[Invocation, tuple[Word, ...]]]:
    """The invocations that a loop of a script gives a file to in one of its turns, each with the words behind it."""
    heads = list(_heads(document.source.decode("utf-8", "replace")))
    for invocation in document.invocations if heads else ():
        if invocation.scope is None or not any(kind == "loop" for kind, _ in invocation.scope.chain):
            continue
        before = {variable: words for variable, at, words in heads if at < invocation.span.start}
        for index, word in enumerate(invocation.words):
            uses = list(_VARIABLE.finditer(word.text))
            if word.known or len(uses) != 1 or set("`(") & set(word.text):
                continue
            start, end = word.text[: uses[0].start()], word.text[uses[0].end() :]
            patterns = (f"{start}{one}{end}" for one in before.get(uses[0][1] or uses[0][2], ()))
            if any(_matches(one, config, document, invocation, repository) for one in patterns):
                yield invocation, invocation.words[index + 1 :]
                break


def _matches(
    pattern: str, config: str, document: ShellDocument, invocation: Invocation, repository: RepositoryIndex
) -> bool:
    """Whether a pattern of paths, from one of the folders in which an invocation may run, is a file's."""
    steps = os.path.abspath(config).replace(os.sep, "/").split("/")
    for base in folders_of(document, invocation, repository.root):
        wanted = os.path.normpath(os.path.join(base, pattern)).replace(os.sep, "/").split("/")
        if len(wanted) == len(steps) and all(map(fnmatchcase, steps, wanted)):
            return True
    return False
