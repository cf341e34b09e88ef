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

    __slots__ = ("_given", "_programs", "_repositories", "_sources")

    def __init__(
        self,
        given: Callable[[], Iterable[tuple[ShellDocument, Invocation]]],
        sources: Sources,
        repositories: Repositories,
    ) -> None:
        self._given = given
        self._sources = sources
        self._repositories = repositories
        self._programs: tuple[str, ...] | None = None

    @property
    def programs(self) -> tuple[str, ...]:
        """The Python programs of the repository that the configuration is given to."""
        if self._programs is None:
            from cfglint_train.launches.entries import file_of  # few findings are about what a program may change

            indexes = ((document, one, self._repositories.index(document.path)) for document, one in self._given())
            found = (file_of(document, one, self._sources, index) for document, one, index in indexes if index.rooted)
            self._programs = tuple(dict.fromkeys(path for path in found if path is not None))
        return self._programs

    def has(self, name: str) -> bool:
        """Whether one of them assigns an argument (`model_args.lora_target_modules = ...`)."""
        assigned = re.compile(rf"{_HOLDERS}\.{re.escape(name)}[ \t]*(?::[^\n=]+)?=(?!=)")
        return any(
            assigned.search(self._repositories.index(program).once(Followed).text(program)) for program in self.programs
        )
