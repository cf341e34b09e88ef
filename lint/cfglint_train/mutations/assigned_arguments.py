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
    from cfglint_train.launches.entries import file_of  # few findings are about what a program may change

    indexes = ((document, one, scripts.repositories.index(document.path)) for document, one in given)
    found = (file_of(document, one, scripts.sources, index) for document, one, index in indexes if index.rooted)
    return tuple(dict.fromkeys(path for path in found if path is not None))


def is_assigned(name: str, programs: Iterable[str], scripts: LaunchScripts) -> bool:
    """Whether one of some programs assigns an argument (`model_args.lora_target_modules = ...`)."""
    assigned = re.compile(rf"{_HOLDERS}\.{re.escape(name)}[ \t]*(?::[^\n=]+)?=(?!=)")
    indexes = ((program, scripts.repositories.index(program)) for program in programs)
    return any(assigned.search(index.once(Followed).text(program)) for program, index in indexes)
