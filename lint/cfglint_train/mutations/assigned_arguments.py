"""Arguments to which a program of the repository gives another value than its parser read. It is read as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.mutations.fillers import Followed
from cfglint_train.repository.index import Repositories
from cfglint_train.repository.sources import Sources

if TYPE_CHECKING:
    from cfglint_train.documents.shell.document import ShellDocument
    from cfglint_train.documents.shell.script import Invocation

_HOLDERS: Final = r"(?<![\w.])\w*(?:arg|cfg|conf|opt|param)\w*"
"""Names of what a parser makes: `model_args`, `cfg`."""


class AssignedArguments:
    """What the programs assign that a configuration is given to. They are looked for when something is asked."""

    __slots__ = ("_given", "_repositories", "_sources")

    def __init__(
        self,
        given: Callable[[], Iterable[tuple[ShellDocument, Invocation]]],
        sources: Sources,
        repositories: Repositories,
    ) -> None:
        self._given = given
        self._sources = sources
        self._repositories = repositories

    def has(self, name: str) -> bool:
        """Whether one of them assigns an argument (`model_args.lora_target_modules = ...`)."""
        from cfglint_train.launches.entries import file_of  # few findings are about what a program may change

        assigned = re.compile(rf"{_HOLDERS}\.{re.escape(name)}[ \t]*(?::[^\n=]+)?=(?!=)")
        for document, one in self._given():
            index = self._repositories.index(document.path)
            file = file_of(document, one, self._sources, index)
            if file is None or not index.rooted:
                continue
            if assigned.search(index.once(Followed).text(file)):
                return True
        return False
