"""Templates: files whose settings a script of the repository may change before the framework reads them."""

from __future__ import annotations

import os
from collections.abc import Iterable

from cfglint_train.documents.document import Route, Scalar
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import Config
from cfglint_train.mutations.assigned_arguments import (
    find_programs,
    has_word_in_programs,
    is_argument_assigned,
)
from cfglint_train.mutations.mutations import Mutations

if TYPE_CHECKING:
    from cfglint_train.launches.launch_scripts import LaunchScripts
    from cfglint_train.mutations.fillers import SettingChanges
    from cfglint_train.repository.index import RepositoryIndex

_PLACEHOLDER: Final = compile_on_use(r"\[\[\s*\w+\s*\]\]|\{\w+\}")
_MAX_PLACEHOLDER: Final = 100
"""Maximum length of a placeholder in bytes."""


class Template(Mutations):
    """A mapping in a file that the repository's scripts may change; cfglint searches for the changes on demand.

    Results are cached, because each run that names a companion checks it again.
    """

    __slots__ = ("_config", "_filled", "_handled", "_programs", "_scripts")

    def __init__(self, config: Config, scripts: LaunchScripts) -> None:
        """Refer to the mapping at the root of a config."""
        self._config = config
        self._scripts = scripts
        self._programs: tuple[str, ...] | None = None
        self._filled: SettingChanges | None = None
        self._handled: SettingChanges | None = None

    @property
    def programs(self) -> tuple[str, ...]:
        """Python programs of the repository that receive the file."""
        if self._programs is None:
            self._programs = find_programs(
                self._scripts.find_file_invocations(self._config.document.path), self._scripts
            )
        return self._programs

    @property
    def script_changes(self) -> SettingChanges:
        """Changes that scripts and programs naming the file make to it."""
        if self._filled is None:
            from cfglint_train.mutations.fillers import find_changes  # imported here because it is rarely needed

            self._filled = find_changes(self._config.document.path, self._get_index())
        return self._filled

    @property
    def program_changes(self) -> SettingChanges:
        """Changes that programs receiving the file make to its settings."""
        if self._handled is None:
            from cfglint_train.mutations.fillers import find_program_changes

            self._handled = find_program_changes(self.programs, self._config.document.path, self._get_index())
        return self._handled

    def is_changed(self, route: Route) -> bool:
        """Return whether a script or program may store or remove a setting, or replace text in it."""
        route = (*self._config.root, *route)
        return (
            _is_touched(self.script_changes, route)
            or _is_in_open_mapping(self.script_changes, route)
            or self._has_placeholder(route)
            or self._is_replaced(route)
            or (bool(route) and isinstance(route[-1], str) and _is_touched(self.program_changes, route))
        )

    def is_assigned(self, name: str) -> bool:
        """Return whether a program that receives the file assigns an argument."""
        return is_argument_assigned(name, self.programs, self._scripts)

    def has_word(self, words: Iterable[str]) -> bool:
        """Return whether a program that receives the file, or one of its imports, has one of `words` in its code."""
        return has_word_in_programs(words, self.programs, self._scripts)

    def is_custom(self, route: Route) -> bool:
        """Return whether a script or program stores, declares or (if it receives the file) reads the setting."""
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
        """Return whether a program of the repository may pass its own optimizer or scheduler to DeepSpeed."""
        from cfglint_train.mutations.client_optimizers import has_client_optimizer, has_client_scheduler

        return self._get_index().compute_once(has_client_scheduler if section == "scheduler" else has_client_optimizer)

    def is_named(self) -> bool:
        """Return whether a program of the repository that uses the framework contains the words of the file's name."""
        name = os.path.basename(self._config.document.path)
        return bool(self._get_index().find_python_using((self._config.framework,), name))

    def _get_index(self) -> RepositoryIndex:
        return self._scripts.repositories.get_index(self._config.document.path)

    def _is_declared(self, key: str) -> bool:
        """Return whether a class or parser of the repository declares a setting."""
        from cfglint_train.mutations.declared import Declarations

        return self._get_index().compute_once(Declarations).is_declared(key)

    def _has_placeholder(self, route: Route) -> bool:
        """Return whether the value contains text that a script naming the file replaces."""
        text = self._get_text(route) if self.script_changes.placeholders else ""
        return any(placeholder in text for placeholder in self.script_changes.placeholders)

    def _is_replaced(self, route: Route) -> bool:
        """Return whether the whole value is a placeholder that a script replaces, in any file."""
        from cfglint_train.mutations.replaced_texts import ReplacedPlaceholders

        text = self._get_text(route)
        return text != "" and self._get_index().compute_once(ReplacedPlaceholders).is_replaced(text)

    def _get_text(self, route: Route) -> str:
        """Return the text of a scalar, or of a placeholder that YAML parses as a collection (`[[LR]]`, `{lr}`).

        The result is empty for any other node.
        """
        node = self._config.document.find_node(route)
        if isinstance(node, Scalar):
            return node.text
        text = (
            ""
            if node is None or node.span.end - node.span.start > _MAX_PLACEHOLDER
            else self._config.document.get_text(node.span)
        )
        return text if text.startswith(("[[", "{")) and _PLACEHOLDER.fullmatch(text) else ""


def _is_in_open_mapping(changes: SettingChanges, route: Route) -> bool:
    """Return whether a setting is in a mapping that is updated with undetermined keys."""
    return any(len(mapping) < len(route) and route[: len(mapping)] == mapping for mapping in changes.open_mappings)


def _is_touched(changes: SettingChanges, route: Route) -> bool:
    """Return whether a setting, an ancestor or a descendant is stored or removed, or a key on its route is replaced."""
    names = [step for step in route if isinstance(step, str)] if changes.keys or changes.placeholders else []
    return (
        any(changed_route[: len(route)] == route[: len(changed_route)] for changed_route in changes.changed)
        or not changes.keys.isdisjoint(names)
        or any(placeholder in name for placeholder in changes.placeholders for name in names)
    )
