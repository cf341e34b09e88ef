"""Arguments to which a program of the repository gives another value than its parser read. It is read as text."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.mutations.fillers import Followed

if TYPE_CHECKING:
    from cfglint_train.documents.shell.document import ShellDocument
    from cfglint_train.documents.shell.script import Invocation
    from cfglint_train.launches.launch_scripts import LaunchScripts

_HOLDERS: Final = r"(?<![\w.])\w*(?:arg|cfg|conf|opt|param)\w*"
"""Names of what a parser makes: `model_args`, `cfg`."""


def programs_of(given: Iterable[tuple[ShellDocument, Invocation]], scripts: LaunchScripts) -> tuple[str, ...]:
    """Return the Python programs of the repository that some invocations start."""
    found = dict[str, None]()
    for document, one in given:
        from cfglint_train.launches.entries import file_of  # few files are given to a program

        index = scripts.repositories.index(document.path)
        path = file_of(document, one, scripts.sources, index) if index.rooted else None
        if path is not None:
            found[path] = None
    return tuple(found)


def is_assigned(name: str, programs: Iterable[str], scripts: LaunchScripts) -> bool:
    """Whether one of some programs assigns an argument (`model_args.lora_target_modules = ...`)."""
    assigned = re.compile(rf"{_HOLDERS}\.{re.escape(name)}[ \t]*(?::[^\n=]+)?=(?!=)")
    indexes = ((program, scripts.repositories.index(program)) for program in programs)
    return any(assigned.search(index.once(Followed).text(program)) for program, index in indexes)
