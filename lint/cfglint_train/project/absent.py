"""Files that a script starts a framework with, and that are not there: their runs are not checked."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from cfglint_train.documents.document import Position, Span
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.folders import folder_of
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.documents.shell.words import Word
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.registry import of_program
from cfglint_train.project.index import RepositoryIndex
from cfglint_train.project.sources import Sources

_CONFIGURATION: Final = re.compile(r"\.(?:ya?ml|json)$")
_INTO: Final = rb"(?:>|\btee\b(?:[ \t]+-a)?)[ \t]*[\"']?[^\s\"'<>|;&]*(?<![\w.-])"
"""Bash writes to the file that follows."""
_SUBCOMMAND: Final = re.compile(r"[a-z][a-z0-9-]*")


Started = Mapping[str, list[tuple[Invocation, Word, str]]]
"""Files that a repository does not have, by name: the commands that train with them, and the frameworks."""


def absent(document: ShellDocument, started: Started, sources: Sources) -> Iterator[tuple[Position, str]]:
    """Where a script trains with such a file, and what is wrong; each file once.

    Only commands and modules of a framework count: many repositories have a `src/train.py` of their own. A file that
    the script names elsewhere, too, may be made there.
    """
    for file, places in started.items():
        one, word, title = places[0]
        if document.source.count(os.fsencode(os.path.basename(file))) > len(places) or set("<>{}*") & set(file):
            continue
        if sources.find(os.path.join(folder_of(document, one), file), document.path) is None:
            told = f"run not checked: `{file}`, which {title} is started with, was not found"
            yield document.position(word.span.start), told


def written(document: ShellDocument, started: Started) -> Iterator[tuple[Span, str]]:
    """Where a script trains with a file that it writes itself (`cat > c.yaml <<EOF`), and that; each file once."""
    for file, places in started.items():
        _, word, title = places[0]
        name = re.escape(os.fsencode(os.path.basename(file)))
        if re.search(_INTO + name + rb"(?![\w.-])", document.source):
            told = f"`{file}`, which {title} is started with, is written by the script itself"
            yield word.span, told


def started_with(document: ShellDocument, index: RepositoryIndex) -> Started:
    """What a script trains with that the repository does not have."""
    started: dict[str, list[tuple[Invocation, Word, str]]] = {}
    for one in document.invocations:
        title = _title(one)
        word = next((word for word in one.words if word.known and _CONFIGURATION.search(word.text)), None)
        if title is not None and word is not None and not index.named(os.path.basename(word.text)):
            started.setdefault(word.text, []).append((one, word, title))
    return started


def _title(invocation: Invocation) -> str | None:
    """The framework that a command trains with; None for a script, and for what does not train."""
    program = invocation.program
    first = next((word.text for word in invocation.arguments[:1] if word.known), "")
    if "/" in program or program.endswith(".py"):
        return None
    framework = of_program(program)
    if framework is None:
        return None
    trains = re.fullmatch(framework.trains or "", f"{program} {first}") is not None
    named = "train" in (first if _SUBCOMMAND.fullmatch(first) else program)
    return framework.title if trains or named else None
