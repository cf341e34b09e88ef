"""Command lines as a framework parses them: its own, or words in addition to a file."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import Entry, Route
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Any
from cfglint_train.foundation.versions import parse_release

if TYPE_CHECKING:
    from cfglint_train.documents.shell.script import Invocation
    from cfglint_train.documents.shell.words import Word
    from cfglint_train.frameworks.lens import Config


class LauncherOption(Frozen):
    """A setting that a launch passes, with its place in the vocabulary."""

    entry: str | None
    """Entry point that the route starts from."""
    route: Route
    class_steps: int = 1
    """Number of steps of the route that are not in the launch: the class that the script instantiates."""
    unset_section: Route = ()
    """Section above the setting that the file leaves unset, below the configuration's root."""
    fatal_since: str = ""
    """First release that stops at a setting below an unset section."""

    def is_fatal_at(self, release: str) -> bool:
        """Return whether a release stops because the section is unset."""
        return bool(self.unset_section) and parse_release(release) >= parse_release(self.fatal_since)


class FlagParser:
    """Flags of a command line; none if the configuration is a mapping that no launch adds to."""

    def parse_flags(self, config: Config) -> Iterator[tuple[Entry, str | None]] | None:
        """Yield the flags of a command line, each with the vocabulary's flag that it resolves to, or None.

        Return None if the configuration is a mapping.
        """
        return None

    def find_leftovers(self, config: Config) -> tuple[Word, ...]:
        """Return the positional words of a command line that belong to no flag."""
        return ()

    def find_switch_values(self, config: Config) -> tuple[Word, ...]:
        """Return the leftovers that follow flags without a value: KEY004 reports these flags."""
        return ()

    def is_blank_fatal(self, config: Config, invocation: Invocation, index: int) -> bool:
        """Return whether a blank word of a launch, by its number, stops the program in any case."""
        return False

    def is_value_corrected(self, config: Config, flag: str, value: str) -> bool:
        """Return whether the framework itself replaces the value of a flag."""
        return False

    def is_confident(self, written: str, suggestion: str, is_close: bool) -> bool:
        """Return whether a probable typo is certain enough to be corrected."""
        return is_close

    def find_launcher_option(self, config: Config, route: Route) -> LauncherOption | None:
        """Return the place in the vocabulary of a setting that the launch passes, or None if it is not checked."""
        return None

    def determine_launch_effect(self, effect: str, config: Config, release: str) -> str:
        """Return the effect of a setting of a launch that the release lacks; `effect` is the vocabulary's."""
        return effect

    def suggest_launch_form(self, name: str, value: Any) -> str:
        """Return the right form of a launch setting that is in the form of another program, or an empty text."""
        return ""
