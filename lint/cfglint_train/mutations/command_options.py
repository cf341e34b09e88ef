"""Command options: find options that the program overwrites, declares or rejects, or that the script probes for."""

from __future__ import annotations

from collections.abc import Iterable

from cfglint_train.documents.document import Document, Route
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.mutations.assigned_arguments import (
    find_programs,
    has_word_in_programs,
    is_argument_assigned,
)
from cfglint_train.mutations.mutations import Mutations

if TYPE_CHECKING:
    from cfglint_train.launches.launch_scripts import LaunchScripts

_PARSER_CALL: Final = b".add_argument("


class CommandOptions(Mutations):
    """The options of one command of a script; the program is resolved when a method is called."""

    __slots__ = ("_document", "_number", "_scripts")

    def __init__(self, document: Document, root: Route, scripts: LaunchScripts) -> None:
        """Refer to the invocation at `root` in a script."""
        assert isinstance(document, ShellDocument)
        self._document = document
        self._number = int(root[0])
        self._scripts = scripts

    def is_assigned(self, name: str) -> bool:
        """Return whether the program overwrites the argument after parsing."""
        return is_argument_assigned(name, self._find_programs(), self._scripts)

    def is_custom(self, route: Route) -> bool:
        """Return whether the script looks for an option in the program's help, or the program itself declares it."""
        name = _get_argument_name(route)
        return name != "" and (
            name in {_get_argument_name((step,)) for step in self._document.find_probed_options((self._number,))}
            or self._is_declared(name)
        )

    def is_refused(self, route: Route) -> bool:
        """Return whether the program is in the repository and has its own parser, which does not declare `route`."""
        programs = self._find_programs()
        has_parser = any(_PARSER_CALL in self._scripts.sources.read(program) for program in programs)
        return has_parser and not self._is_declared(_get_argument_name(route))

    def has_word(self, words: Iterable[str]) -> bool:
        """Return whether the program or one of its imports has one of `words` in its code."""
        return has_word_in_programs(words, self._find_programs(), self._scripts)

    def _is_declared(self, name: str) -> bool:
        """Return whether the program is in the repository and it or one of its imports declares the option.

        Declarations in a copy of the framework do not count, because cfglint reads them as the vocabulary.
        """
        programs = self._find_programs()
        if not programs:
            return False
        from cfglint_train.mutations.declared import Declarations
        from cfglint_train.mutations.imported import ImportGraph

        index = self._scripts.repositories.get_index(self._document.path)
        return any(
            index.compute_once(Declarations).is_declared(name, index.compute_once(ImportGraph).find_imports(program))
            for program in programs
        )

    def _find_programs(self) -> tuple[str, ...]:
        """Return the path of the program that the command starts, or an empty tuple if the repository lacks it."""
        return find_programs([(self._document, self._document.invocations[self._number])], self._scripts)


def _get_argument_name(route: Route) -> str:
    return str(route[-1]).lstrip("-").replace("-", "_") if route else ""
