"""What programs of a repository do to a configuration before its framework reads it, as rules ask for it.

Nothing is looked for before that: few findings are explained by a program, and each answer searches the repository.
"""

from __future__ import annotations

from cfglint_train.documents.document import Route
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.lens import Config


class Mutations:
    """What the programs do that a configuration is given to, and those that name its file: nothing."""

    def is_changed(self, route: Route) -> bool:
        """Whether a program stores a setting or takes it out: what the file says of it need not be what counts."""
        return False

    def is_assigned(self, name: str) -> bool:
        """Whether a program gives an argument another value than its parser read."""
        return False

    def is_custom(self, route: Route) -> bool:
        """Whether a setting is one of a program's own, which reads it or declares it; the empty route is the file."""
        return False

    def is_refused(self, route: Route) -> bool:
        """Whether the program has a parser of its own that does not take an option."""
        return False

    def has_client_object(self, section: str) -> bool:
        """Whether a program hands the framework an object of its own instead of having it made by a section."""
        return False


NO_MUTATIONS: Final = Mutations()


def get_mutations(config: Config) -> Mutations:
    """Return what programs do to a configuration."""
    mutations = config.evidence.mutations
    return mutations if isinstance(mutations, Mutations) else NO_MUTATIONS
