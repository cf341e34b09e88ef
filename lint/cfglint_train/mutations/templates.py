"""Files as templates: whether a script of the repository handles a setting before the framework sees it."""

from __future__ import annotations

import re
from collections.abc import Callable

from cfglint_train.documents.document import Document, Route, Scalar
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.frameworks.lens import Handling
from cfglint_train.repository.index import Repositories

if TYPE_CHECKING:
    from cfglint_train.mutations.assigned_arguments import AssignedArguments
    from cfglint_train.mutations.fillers import Filled

_MARK: Final = re.compile(r"\[\[\s*\w+\s*\]\]|\{\w+\}")
_LONGEST: Final = 100
"""Bytes of a mark that is looked at."""


class Template:
    """A mapping of a file that scripts of its repository may handle first; they are looked for when something is asked.

    `root` is the route of the mapping; `is_read`: whether a program of the repository itself may read it; `assigned`:
    what the programs that are given it assign. Answers are kept, since a companion is asked about in each run that
    names it.
    """

    __slots__ = ("_answers", "_assigned", "_document", "_filled", "_handled", "_is_read", "_repositories", "_root")

    def __init__(
        self,
        document: Document,
        root: Route,
        repositories: Repositories,
        is_read: Callable[[], bool],
        assigned: AssignedArguments,
    ) -> None:
        self._document = document
        self._root = root
        self._repositories = repositories
        self._is_read = is_read
        self._assigned = assigned
        self._filled: Filled | None = None
        self._handled: Filled | None = None
        self._answers: dict[tuple[Route, Handling], bool] = {}

    def handles(self, route: Route, how: Handling) -> bool:
        """Whether a script handles a setting in some way."""
        asked = route, how
        if asked not in self._answers:
            self._answers[asked] = self._handles(route, how)
        return self._answers[asked]

    def _handles(self, route: Route, how: Handling) -> bool:
        from cfglint_train.mutations.fillers import filled, handled_by  # few findings are explained by a script

        if how == "assigned":
            return bool(route) and self._assigned.has(str(route[0]))
        path = self._document.path
        index, route = self._repositories.index(path), (*self._root, *route)
        if how == "supplanted":
            from cfglint_train.mutations.client_optimizers import client_optimizer, client_scheduler

            return index.once(client_scheduler if route[-1:] == ("scheduler",) else client_optimizer)
        if self._filled is None:
            self._filled = filled(path, index)
        found = self._filled
        if _touches(found, route) or (how in ("read", "named") and route in found.read):
            return True
        if how in ("rewritten", "changed") and (_is_open(found, route) or self._is_marked(route, found)):
            return True
        if how == "changed" and self._is_replaced(route):
            return True
        if how == "rewritten" or not route or not isinstance(route[-1], str):
            return False
        if self._handled is None:
            self._handled = handled_by(self._assigned.programs, path, index)
        if _touches(self._handled, route) or (how == "named" and route in self._handled.read):
            return True
        return how in ("read", "named") and len(route) == 1 and self._is_read() and self._declares(route[-1])

    def _declares(self, key: str) -> bool:
        """Whether a class or a parser of the repository declares a setting."""
        from cfglint_train.mutations.declared import Declarations

        return self._repositories.index(self._document.path).once(Declarations).has(key)

    def _is_marked(self, route: Route, found: Filled) -> bool:
        """Whether the value holds a text that is replaced."""
        text = self._text(route) if found.marks else ""
        return any(mark in text for mark in found.marks)

    def _is_replaced(self, route: Route) -> bool:
        """Whether a script replaces just the text of the value, be it in a file that it is given."""
        from cfglint_train.mutations.replaced_texts import ReplacedTexts

        text = self._text(route)
        return text != "" and self._repositories.index(self._document.path).once(ReplacedTexts).has(text)

    def _text(self, route: Route) -> str:
        """The text of a value; of a collection, that of a mark which YAML takes for one (`[[LR]]`, `{lr}`)."""
        node = self._document.node(route)
        if isinstance(node, Scalar):
            return node.text
        text = "" if node is None or node.span.end - node.span.start > _LONGEST else self._document.text(node.span)
        return text if _MARK.fullmatch(text) else ""


def _is_open(found: Filled, route: Route) -> bool:
    """Whether a mapping is laid over one that has a setting, which is in it all the same."""
    return any(len(above) < len(route) and route[: len(above)] == above for above in found.open)


def _touches(found: Filled, route: Route) -> bool:
    """Whether a setting, or one around or below it, is stored or taken out, or its key is replaced."""
    names = [step for step in route if isinstance(step, str)] if found.keys or found.marks else []
    return (
        any(other[: len(route)] == route[: len(other)] for other in found.changed)
        or not found.keys.isdisjoint(names)
        or any(mark in name for mark in found.marks for name in names)
    )
