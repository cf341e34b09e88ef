"""Mutations: changes that a repository's programs make to a config before its framework reads it.

Searches run on demand, because each one reads the repository and few findings need them.
"""

from __future__ import annotations

from collections.abc import Iterable

from cfglint_train.documents.document import Route
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.lens import Config


class Mutations:
    """Queries about the programs that receive a config or name its file; this base class knows of no programs."""

    def is_changed(self, route: Route) -> bool:
        """Return whether a program stores or removes a setting, so that the value in the file may not apply."""
        return False

    def is_assigned(self, name: str) -> bool:
        """Return whether a program overwrites an argument after parsing."""
        return False

    def is_custom(self, route: Route) -> bool:
        """Return whether a program itself reads or declares a setting; the empty route stands for the whole file."""
        return False

    def is_refused(self, route: Route) -> bool:
        """Return whether the program has its own parser, which does not declare `route`."""
        return False

    def has_client_object(self, section: str) -> bool:
        """Return whether a program passes its own object to the framework in place of a section of the config."""
        return False

    def has_word(self, words: Iterable[str]) -> bool:
        """Return whether a program that receives the settings, or one of its imports, has one of `words` in its code.

        Copies of frameworks do not count.
        """
        return False

    def is_named(self) -> bool:
        """Return whether a Python program of the repository may name the file."""
        return False


NO_MUTATIONS: Final = Mutations()


def get_mutations(config: Config) -> Mutations:
    """Return the mutations of a config, or `NO_MUTATIONS`."""
    mutations = config.evidence.mutations
    return mutations if isinstance(mutations, Mutations) else NO_MUTATIONS
