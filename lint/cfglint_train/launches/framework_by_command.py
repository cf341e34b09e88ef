"""Whose a file is that no keys distinguish: the command that trains with it shows that."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable

from cfglint_train.documents.document import Document
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.documents.shell.words import Word
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.registry import listed


def trained_with(
    names: Collection[str],
    given: Iterable[tuple[ShellDocument, Invocation, tuple[Word, ...]]],
    program: Callable[[Document, str], Document | None],
) -> tuple[str, str]:
    """The framework of some whose command is given a file, and that command; two empty texts where there is none.

    `given`: the invocations that have the file, each with the words behind it. `program` reads a Python program that a
    script names, which may have the framework's parser.
    """
    for script, one, behind in given:
        command = " ".join((one.program, *(word.text for word in one.words[:1] if word.known and word.text[:1] != "-")))
        for name in names:
            if re.fullmatch(listed()[name].trains or "", command):
                return name, command
        if len(one.words) < len(behind) + 2 or not one.program.endswith(".py"):
            continue
        source, option = program(script, one.program), one.words[-len(behind) - 2].text
        for name in names:
            if source is not None and frameworks.load(name).launching.takes_recipe(source, option):
                return name, f"{one.program} {option}"
    return "", ""
