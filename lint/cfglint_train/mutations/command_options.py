"""Options of a command that do not go to the framework's own parser, or only where that has them."""

from __future__ import annotations

from cfglint_train.documents.document import Document, Route
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.frameworks.lens import Handling
from cfglint_train.mutations.assigned_arguments import AssignedArguments
from cfglint_train.repository.index import Repositories
from cfglint_train.repository.sources import Sources

if TYPE_CHECKING:
    from cfglint_train.documents.shell.document import ShellDocument


_PARSES: Final = b".add_argument("


class CommandOptions:
    """The options of one command of a script. What it starts is looked for when something is asked."""

    __slots__ = ("_document", "_number", "_repositories", "_sources")

    def __init__(self, document: Document, root: Route, sources: Sources, repositories: Repositories) -> None:
        self._document = document
        self._number = int(root[0])
        self._sources = sources
        self._repositories = repositories

    def handles(self, route: Route, how: Handling) -> bool:
        """Whether the command gives an option only where the program's help has it, or to a parser of its own; whether
        that parser refuses it, or the program assigns the argument.
        """
        if how not in ("read", "named", "assigned", "refused") or not route:
            return False
        from cfglint_train.documents.shell.document import ShellDocument

        if not isinstance(self._document, ShellDocument):
            return False
        name = str(route[-1]).lstrip("-").replace("-", "_")
        if how == "assigned":
            given = self._document, self._document.invocations[self._number]
            return AssignedArguments(lambda: (given,), self._sources, self._repositories).has(name)
        if how == "refused":
            return self._refuses(self._document, name)
        probed = self._document.probed((self._number,))
        return name in {one.lstrip("-").replace("-", "_") for one in probed} or self._declares(self._document, name)

    def _declares(self, document: ShellDocument, name: str) -> bool:
        """Whether the program is one of the repository, and it or what it imports declares an option.

        What a copy of the framework declares counts elsewhere: it is read as the vocabulary.
        """
        program = self._program(document)
        if program is None:
            return False
        from cfglint_train.mutations.declared import Declarations
        from cfglint_train.mutations.imported import Imported

        index = self._repositories.index(document.path)
        return index.once(Declarations).has(name, index.once(Imported).by(program))

    def _refuses(self, document: ShellDocument, name: str) -> bool:
        """Whether the program is one of the repository with a parser of its own, which does not declare an option."""
        program = self._program(document)
        return program is not None and _PARSES in self._sources.read(program) and not self._declares(document, name)

    def _program(self, document: ShellDocument) -> str | None:
        """The file of the program that the command starts; None where the repository has none."""
        from cfglint_train.launches.entries import file_of  # few commands have an option that is not the framework's

        index = self._repositories.index(document.path)
        if not index.rooted:
            return None
        return file_of(document, document.invocations[self._number], self._sources, index)
