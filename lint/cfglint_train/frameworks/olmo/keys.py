"""The keys of OLMo's file."""

from __future__ import annotations

from cfglint_train.documents.document import Route
from cfglint_train.foundation.typed import TYPE_CHECKING
from cfglint_train.frameworks.keys import Keys, LauncherOption
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.registry import of_program

if TYPE_CHECKING:
    from cfglint_train.documents.shell.script import Invocation


class OLMoKeys(Keys):
    """ai2-olmo 0.2.5 to 0.6.0: OmegaConf merges the file, and what the launch lays over it, with its own classes."""

    def refuses_blank(self, config: Config, given: Invocation, index: int) -> bool:
        """Every word behind the file is a setting (`scripts/train.py`), and no class has this one."""
        return of_program(given.program) is not None

    def may_be_read(self, config: Config) -> bool:
        """Where the program that scripts start is a file, which may be one of the repository."""
        return any(one.partition(" ")[0].endswith(".py") for one in config.evidence.commands)

    def launched(self, config: Config, route: Route) -> LauncherOption | None:
        """A word behind the file, which OmegaConf merges with the same classes (0.2.5 to 0.6.0 `config.py`, load)."""
        started = config.evidence.commands
        if not started or not all(of_program(one.partition(" ")[0]) is not None for one in started):
            return None
        return LauncherOption(self.context(config).entry, route, there=0)
