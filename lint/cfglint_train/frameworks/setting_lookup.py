"""Lookup of settings by the names that clause tables use."""

from __future__ import annotations

from collections.abc import Iterable, Set

from cfglint_train.documents.document import MISSING, Route
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cfglint_train.frameworks.lens import Config


class SettingLookup:
    """Lookup of settings in a mapping by their dotted names."""

    def list_routes(self, name: str) -> tuple[Route, ...]:
        """Return the routes that the framework has for a setting, the usual one first."""
        return (tuple(name.split(".")),)

    def list_given_names(self, config: Config) -> Set[str] | None:
        """Return the names set at the top level, sections included, or None if the list may be incomplete."""
        node = config.get_node() if config.document.syntax != "python" and self.is_complete(config) else None
        if not isinstance(node, MappingNode):
            return None
        return {*node.index, *(str(route[0]) for route in config.overrides)}

    def find_route(self, config: Config, name: str) -> Route | None:
        """Return the route at which a setting is set, in any of its spellings, or None."""
        return next((route for route in self.list_routes(name) if config.has(*route)), None)

    def resolve_setting(self, config: Config, name: str) -> Any:
        """Return the value of a setting that applies: as given, or by default.

        MISSING if there is none, Unknown if it cannot be determined. The base class knows only given values.
        """
        route = self.find_route(config, name)
        return MISSING if route is None else config.get_value(*route)

    def find_default(self, config: Config, name: str, release: str) -> Any:
        """Return the default of a setting at a release, as the framework states it, or MISSING."""
        return MISSING

    def choose_route(self, config: Config, name: str) -> Route:
        """Return the route at which a setting would be written."""
        return self.list_routes(name)[0]

    def is_occupied(self, config: Config, route: Route) -> bool:
        """Return whether a setting is already set, or cannot be written because another value is in the way."""
        if config.has(*route):
            return True
        parents = (config.get(*route[:depth], default={}) for depth in range(1, len(route)))
        return any(not isinstance(value, (dict, list)) for value in parents)

    def is_complete(self, config: Config) -> bool:
        """Return whether the text contains all settings; otherwise a rename could leave old names behind."""
        return config.document.is_complete(config.root)

    def sum_settings(self, config: Config, names: Iterable[str]) -> Any:
        """Return the sum of settings, defaults included, or None if any of them cannot be determined.

        The base class always returns None; OpenRLHF overrides this method.
        """
        return None
