"""Files as templates: whether a script of the repository handles a setting before the framework sees it."""

from __future__ import annotations

import re

from cfglint_train.documents.document import Route, Scalar
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import Config
from cfglint_train.mutations.assigned_arguments import find_programs, is_argument_assigned
from cfglint_train.mutations.mutations import Mutations

if TYPE_CHECKING:
    from cfglint_train.launches.launch_scripts import LaunchScripts
    from cfglint_train.mutations.fillers import SettingChanges
    from cfglint_train.repository.index import RepositoryIndex

_PLACEHOLDER: Final = re.compile(r"\[\[\s*\w+\s*\]\]|\{\w+\}")
_MAX_PLACEHOLDER: Final = 100
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
        self._filled: SettingChanges | None = None
        self._handled: SettingChanges | None = None

    @property
    def programs(self) -> tuple[str, ...]:
        """The Python programs of the repository that the file is given to."""
        if self._programs is None:
            self._programs = find_programs(
                self._scripts.find_file_invocations(self._config.document.path), self._scripts
            )
        return self._programs

    @property
    def script_changes(self) -> SettingChanges:
        """What scripts do with the settings that name the file."""
        if self._filled is None:
            from cfglint_train.mutations.fillers import find_changes  # few findings are explained by a script

            self._filled = find_changes(self._config.document.path, self._get_index())
        return self._filled

    @property
    def program_changes(self) -> SettingChanges:
        """What the programs do with the settings that the file is given to."""
        if self._handled is None:
            from cfglint_train.mutations.fillers import find_program_changes

            self._handled = find_program_changes(self.programs, self._config.document.path, self._get_index())
        return self._handled

    def is_changed(self, route: Route) -> bool:
        """Whether a script stores a setting, takes it out, or replaces a text in it."""
        route = (*self._config.root, *route)
        return (
            _is_touched(self.script_changes, route)
            or _is_in_open_mapping(self.script_changes, route)
            or self._has_placeholder(route)
            or self._is_replaced(route)
            or (bool(route) and isinstance(route[-1], str) and _is_touched(self.program_changes, route))
        )

    def is_assigned(self, name: str) -> bool:
        """Whether a program that the file is given to assigns an argument."""
        return is_argument_assigned(name, self.programs, self._scripts)

    def is_custom(self, route: Route) -> bool:
        """Return whether a script stores or declares a setting, or one reads it that the file is given to."""
        full_route = (*self._config.root, *route)
        if _is_touched(self.script_changes, full_route) or (not route and full_route in self.script_changes.read):
            return True
        if not route or not isinstance(route[-1], str):
            return False
        if _is_touched(self.program_changes, full_route) or full_route in self.program_changes.read:
            return True
        keys = frameworks.load(self._config.framework).keys
        return (
            len(full_route) == 1
            and keys is not None
            and keys.can_be_read_by_user(self._config)
            and self._is_declared(route[-1])
        )

    def has_client_object(self, section: str) -> bool:
        """Whether a program of the repository hands DeepSpeed an optimizer or a scheduler."""
        from cfglint_train.mutations.client_optimizers import has_client_optimizer, has_client_scheduler

        return self._get_index().compute_once(has_client_scheduler if section == "scheduler" else has_client_optimizer)

    def _get_index(self) -> RepositoryIndex:
        return self._scripts.repositories.get_index(self._config.document.path)

    def _is_declared(self, key: str) -> bool:
        """Whether a class or a parser of the repository declares a setting."""
        from cfglint_train.mutations.declared import Declarations

        return self._get_index().compute_once(Declarations).is_declared(key)

    def _has_placeholder(self, route: Route) -> bool:
        """Whether the value holds a text that is replaced."""
        text = self._get_text(route) if self.script_changes.placeholders else ""
        return any(placeholder in text for placeholder in self.script_changes.placeholders)

    def _is_replaced(self, route: Route) -> bool:
        """Whether a script replaces just the text of the value, be it in a file that it is given."""
        from cfglint_train.mutations.replaced_texts import ReplacedPlaceholders

        text = self._get_text(route)
        return text != "" and self._get_index().compute_once(ReplacedPlaceholders).is_replaced(text)

    def _get_text(self, route: Route) -> str:
        """The text of a value; of a collection, that of a mark which YAML takes for one (`[[LR]]`, `{lr}`)."""
        node = self._config.document.find_node(route)
        if isinstance(node, Scalar):
            return node.text
        text = (
            ""
            if node is None or node.span.end - node.span.start > _MAX_PLACEHOLDER
            else self._config.document.get_text(node.span)
        )
        return text if _PLACEHOLDER.fullmatch(text) else ""


def _is_in_open_mapping(changes: SettingChanges, route: Route) -> bool:
    """Whether a mapping is laid over one that has a setting, which is in it all the same."""
    return any(len(mapping) < len(route) and route[: len(mapping)] == mapping for mapping in changes.open_mappings)


def _is_touched(changes: SettingChanges, route: Route) -> bool:
    """Whether a setting, or one around or below it, is stored or taken out, or its key is replaced."""
    names = [step for step in route if isinstance(step, str)] if changes.keys or changes.placeholders else []
    return (
        any(changed_route[: len(route)] == route[: len(changed_route)] for changed_route in changes.changed)
        or not changes.keys.isdisjoint(names)
        or any(placeholder in name for placeholder in changes.placeholders for name in names)
    )
