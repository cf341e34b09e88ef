"""Command lines as a framework parses them: those that are configs, and words that launches add to a config file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from cfglint_train.documents.document import Change, Edit, Entry, Route
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, ClassVar
from cfglint_train.foundation.versions import parse_release
from cfglint_train.plan.origin import Place

if TYPE_CHECKING:
    from cfglint_train.documents.shell.script import Invocation
    from cfglint_train.documents.shell.words import Word
    from cfglint_train.frameworks.lens import Config


class LauncherOption(Frozen):
    """A setting that a launch passes, with its place in the vocabulary."""

    entry: str | None
    """Entry point at which the route starts."""
    route: Route
    class_steps: int = 1
    """Number of leading steps of the route that the launch does not write: the class that the script instantiates."""
    unset_section: Route = ()
    """Route, from the config's root, of a section above the setting that the file leaves unset; may be empty."""
    fatal_since: str = ""
    """First release that fails on a setting below an unset section."""

    def is_fatal_at(self, release: str) -> bool:
        """Return whether a release fails because the section is unset."""
        return bool(self.unset_section) and parse_release(release) >= parse_release(self.fatal_since)


class RefusedWord(Frozen):
    """A word of a command line that its parser refuses for its form, whatever the setting means."""

    place: Place
    message: str
    help: str
    is_refused_at: Callable[[str], bool]
    """Function that returns whether a release refuses the word."""
    rename: Change | None = None
    """Change that gives the word the right form, or None."""
    likely_edit: Edit | None = None
    """Edit of the word's text that was probably meant, or None."""


class FlagParser:
    """Parser of the flags on a command line; this base class, for configs that are mappings, has no flags."""

    is_closed: ClassVar[bool] = False
    """True if code cannot declare settings that a launch may then pass."""

    def parse_flags(self, config: Config) -> Iterator[tuple[Entry, str | None]] | None:
        """Return the flags of a command line, each with the vocabulary's flag that it resolves to, or None.

        Return None instead of an iterator if the config is a mapping.
        """
        return None

    def find_leftovers(self, config: Config) -> tuple[Word, ...]:
        """Return the leftovers of a command line: words that no flag accepts."""
        return ()

    def list_option_values(self, config: Config, option: str) -> Iterable[str]:
        """List the values of an option that is no setting and chooses among files of the framework."""
        return ()

    def find_switch_values(self, config: Config) -> tuple[Word, ...]:
        """Return the leftovers that follow switches, which take no value; KEY004 reports these switches."""
        return ()

    def is_blank_fatal(self, config: Config, invocation: Invocation, index: int) -> bool:
        """Return whether the blank word at `index` of a launch certainly stops the program."""
        return False

    def list_refused_words(self, config: Config) -> Iterable[RefusedWord]:
        """List the words of a command line that its parser refuses for their form."""
        return ()

    def is_value_corrected(self, config: Config, flag: str, value: str) -> bool:
        """Return whether the framework itself corrects the value of a flag."""
        return False

    def is_confident(self, written: str, suggestion: str, is_close: bool) -> bool:
        """Return whether a suggestion for a misspelled flag is certain enough for a fix."""
        return is_close

    def list_call_settings(self, config: Config) -> Iterable[tuple[LauncherOption, Place]]:
        """List the keyword arguments that a script passes to the framework's classes, each with its place."""
        return ()

    def find_launcher_option(self, config: Config, route: Route) -> LauncherOption | None:
        """Return a launch's setting with its place in the vocabulary, or None if it is not checked."""
        return None

    def is_launch_evidence(self, config: Config, route: Route) -> bool:
        """Return whether a setting that a launch passes shows which releases may run the configuration."""
        option = self.find_launcher_option(config, route)
        return option is not None and not option.class_steps and option.route == route

    def determine_launch_effect(self, effect: str, config: Config, release: str) -> str:
        """Return the effect of a setting that a launch passes although the release lacks it.

        `effect`: the effect according to the vocabulary.
        """
        return effect

    def suggest_launch_form(self, name: str, value: Any) -> str:
        """Return the right form of a launch setting that is written for another program, or an empty string."""
        return ""
