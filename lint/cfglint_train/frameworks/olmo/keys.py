"""Keys of OLMo's file."""

from __future__ import annotations

from cfglint_train.documents.document import Route
from cfglint_train.foundation.typed import TYPE_CHECKING
from cfglint_train.frameworks.keys import Keys, LauncherOption
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.registry import find_framework_of_program

if TYPE_CHECKING:
    from cfglint_train.documents.shell.script import Invocation


class OLMoKeys(Keys):
    """Key handling of ai2-olmo 0.2.5 to 0.6.0.

    OmegaConf merges the file and the launch's overrides into OLMo's dataclasses.
    """

    def is_blank_fatal(self, config: Config, invocation: Invocation, index: int) -> bool:
        """Return whether OLMo rejects a blank word: every word after the file is a setting (`scripts/train.py`)."""
        return find_framework_of_program(invocation.program) is not None

    def can_be_read_by_user(self, config: Config) -> bool:
        """Return whether a launch runs a Python file, which may be the repository's own program."""
        return any(command.partition(" ")[0].endswith(".py") for command in config.evidence.commands)

    def find_launcher_option(self, config: Config, route: Route) -> LauncherOption | None:
        """Return the option for a word after the file, which OmegaConf merges (0.2.5 to 0.6.0 `config.py`, load)."""
        commands = config.evidence.commands
        if not commands or not all(
            find_framework_of_program(command.partition(" ")[0]) is not None for command in commands
        ):
            return None
        return LauncherOption(self.build_context(config).entry, route, class_steps=0)
