"""Files as templates: whether a script of the repository handles a setting before the framework sees it."""

from __future__ import annotations

import re

from cfglint_train.documents.document import Route, Scalar
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import Config
from cfglint_train.mutations.assigned_arguments import is_assigned, programs_of
from cfglint_train.mutations.mutations import Mutations

if TYPE_CHECKING:
    from cfglint_train.launches.launch_scripts import LaunchScripts
    from cfglint_train.mutations.fillers import Filled
    from cfglint_train.repository.index import RepositoryIndex

_MARK: Final = re.compile(r"\[\[\s*\w+\s*\]\]|\{\w+\}")
_LONGEST: Final = 100
"""Bytes of a mark that is looked at."""


class Template(Mutations):
    """A mapping of a file that scripts of its repository may handle first; they are looked for when something is asked.

    What was found is kept, since a companion is asked about in each run that names it.
    """

    __slots__ = ("_config", "_filled", "_handled", "_programs", "_scripts")

    def __init__(self, config: Config, scripts: LaunchScripts) -> None:
        self._config = config
        self._scripts = scripts
        self._programs: tuple[str, ...] | None = None
        self._filled: Filled | None = None
        self._handled: Filled | None = None

    @property
    def programs(self) -> tuple[str, ...]:
        """The Python programs of the repository that the file is given to."""
        if self._programs is None:
            self._programs = programs_of(self._scripts.handed_to(self._config.document.path), self._scripts)
        return self._programs

    @property
    def filled(self) -> Filled:
        """What scripts do with the settings that name the file."""
        if self._filled is None:
            from cfglint_train.mutations.fillers import filled  # few findings are explained by a script

            self._filled = filled(self._config.document.path, self._index())
        return self._filled

    @property
    def handled(self) -> Filled:
        """What the programs do with the settings that the file is given to."""
        if self._handled is None:
            from cfglint_train.mutations.fillers import handled_by

            self._handled = handled_by(self.programs, self._config.document.path, self._index())
        return self._handled

    def is_set(self, route: Route) -> bool:
        """Whether a script stores a setting, takes it out, or replaces a text in it."""
        route = (*self._config.root, *route)
        return (
            _touches(self.filled, route)
            or _is_open(self.filled, route)
            or self._is_marked(route)
            or self._is_replaced(route)
            or (bool(route) and isinstance(route[-1], str) and _touches(self.handled, route))
        )

    def is_assigned(self, name: str) -> bool:
        """Whether a program that the file is given to assigns an argument."""
        return is_assigned(name, self.programs, self._scripts)

    def is_own(self, route: Route) -> bool:
        """Return whether a script stores or declares a setting, or one reads it that the file is given to."""
        whole = (*self._config.root, *route)
        if _touches(self.filled, whole) or (not route and whole in self.filled.read):
            return True
        if not route or not isinstance(route[-1], str):
            return False
        if _touches(self.handled, whole) or whole in self.handled.read:
            return True
        keys = frameworks.load(self._config.framework).keys
        return len(whole) == 1 and keys is not None and keys.may_be_read(self._config) and self._declares(route[-1])

    def makes(self, section: str) -> bool:
        """Whether a program of the repository hands DeepSpeed an optimizer or a scheduler."""
        from cfglint_train.mutations.client_optimizers import client_optimizer, client_scheduler

        return self._index().once(client_scheduler if section == "scheduler" else client_optimizer)

    def _index(self) -> RepositoryIndex:
        return self._scripts.repositories.index(self._config.document.path)

    def _declares(self, key: str) -> bool:
        """Whether a class or a parser of the repository declares a setting."""
        from cfglint_train.mutations.declared import Declarations

        return self._index().once(Declarations).has(key)

    def _is_marked(self, route: Route) -> bool:
        """Whether the value holds a text that is replaced."""
        text = self._text(route) if self.filled.marks else ""
        return any(mark in text for mark in self.filled.marks)

    def _is_replaced(self, route: Route) -> bool:
        """Whether a script replaces just the text of the value, be it in a file that it is given."""
        from cfglint_train.mutations.replaced_texts import ReplacedTexts

        text = self._text(route)
        return text != "" and self._index().once(ReplacedTexts).has(text)

    def _text(self, route: Route) -> str:
        """The text of a value; of a collection, that of a mark which YAML takes for one (`[[LR]]`, `{lr}`)."""
        node = self._config.document.node(route)
        if isinstance(node, Scalar):
            return node.text
        text = (
            "" if node is None or node.span.end - node.span.start > _LONGEST else self._config.document.text(node.span)
        )
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
