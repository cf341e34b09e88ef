"""Framework by command: identify a config's framework by the command that trains with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable

from cfglint_train.documents.document import Document
from cfglint_train.foundation.typed import TYPE_CHECKING
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.registry import list_frameworks

if TYPE_CHECKING:
    from cfglint_train.documents.shell.document import ShellDocument
    from cfglint_train.documents.shell.script import Invocation
    from cfglint_train.documents.shell.words import Word


def identify_framework(
    names: Collection[str],
    uses: Iterable[tuple[ShellDocument, Invocation, tuple[Word, ...]]],
    read_program: Callable[[Document, str], Document | None],
) -> tuple[str, str]:
    """Return the framework whose command receives a file, and that command, or two empty strings.

    The first use that matches decides, then the first framework in `names`. `uses` are the invocations that receive the
    file: script, invocation and words after the path. `read_program` parses a Python program that a script starts; the
    program counts if it reads the file with the framework's parser.
    """
    for script, invocation, trailing in uses:
        command = " ".join(
            (
                invocation.program,
                *(word.text for word in invocation.words[:1] if word.is_known and word.text[:1] != "-"),
            )
        )
        for name in names:
            if re.fullmatch(list_frameworks()[name].training_pattern or "", command):
                return name, command
        if not invocation.program.endswith(".py"):
            continue
        before = invocation.words[: len(invocation.words) - len(trailing) - 1][-1:]
        source, option = read_program(script, invocation.program), before[0].text if before else ""
        for name in names:
            if source is not None and frameworks.load(name).launch_interface.accepts_recipe(source, option):
                return name, f"{invocation.program} {option}".rstrip()
    return "", ""
