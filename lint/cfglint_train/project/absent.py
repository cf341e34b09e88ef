"""Files that a script starts a framework with, and that are not there: their runs are not checked."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from cfglint_train.documents.document import Position
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.folders import folder_of
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.documents.shell.words import Word
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.registry import of_program
from cfglint_train.project.index import RepositoryIndex
from cfglint_train.project.sources import Sources

_CONFIGURATION: Final = re.compile(r"\.(?:ya?ml|json)$")
_SUBCOMMAND: Final = re.compile(r"[a-z][a-z0-9-]*")


def absent(document: ShellDocument, sources: Sources, index: RepositoryIndex) -> Iterator[tuple[Position, str]]:
    """Where a script trains with such a file, and what is wrong; each file once.

    Only commands and modules of a framework count: many repositories have a `src/train.py` of their own. A file that
    the script names elsewhere, too, may be made there.
    """
    started: dict[str, list[tuple[Invocation, Word, str]]] = {}
    for one in document.invocations:
        title = _title(one)
        word = next((word for word in one.words if word.known and _CONFIGURATION.search(word.text)), None)
        if title is not None and word is not None and not index.named(os.path.basename(word.text)):
            started.setdefault(word.text, []).append((one, word, title))
    for file, places in started.items():
        one, word, title = places[0]
        if document.source.count(os.fsencode(os.path.basename(file))) > len(places) or set("<>{}*") & set(file):
            continue
        if sources.find(os.path.join(folder_of(document, one), file), document.path) is None:
            told = f"run not checked: `{file}`, which {title} is started with, was not found"
            yield document.position(word.span.start), told


def _title(invocation: Invocation) -> str | None:
    """The framework that a command trains with; None for a script, and for what does not train."""
    program = invocation.program
    first = next((word.text for word in invocation.arguments[:1] if word.known), "")
    if "/" in program or program.endswith(".py"):
        return None
    if "train" not in (first if _SUBCOMMAND.fullmatch(first) else program):
        return None
    framework = of_program(program)
    return None if framework is None else framework.title
