"""Users' own programs: the arguments that they pass to a framework, and the settings that they may add."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from cfglint_schemas.fact import KeyFact
from cfglint_schemas.status import Context, Status
from cfglint_schemas.vocabulary import Vocabulary
from cfglint_train.documents.document import Change, Route
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Any
from cfglint_train.frameworks.vocabulary_access import KeyRewrite
from cfglint_train.plan.origin import Place

if TYPE_CHECKING:
    from cfglint_train.frameworks.lens import Config


class CallParameters(Frozen):
    """The parameters of a call, with the change that renames one of its arguments."""

    vocabulary: Vocabulary
    context: Context
    value: Any
    """Value of the argument, or `Unknown` if it cannot be determined."""
    equivalent: str | None
    """Name of the argument in this call if the script uses another call's name (`lora_rank`), or None."""
    rename: Callable[[str], Change | None]
    """Change that renames the argument, or None if the call already has an argument with the new name."""
    is_confident: Callable[[str, str, bool], bool]
    """Function with the parameters and the result of `Keys.is_confident`."""


class CallArgument(Frozen):
    """A setting that a script passes to another call, such as the trainer's, and that only some releases accept."""

    name: str
    callee: str
    """Name of the called function or class."""
    place: Place
    find_status: Callable[[str], Status]
    """Status of the setting in that call, by release."""
    rewrite: KeyRewrite | None = None
    """Change that adapts the script to the target release."""
    help: str | None = None
    package: str | None = None
    """Package of the called function or class, or None for the framework's own package."""
    assumption: str = ""
    """Assumption that the call is executed, or an empty string if it always is."""
    parameters: CallParameters | None = None
    """Parameters of the call, or None if some are unknown."""
    copy_folder: str = ""
    """Folder of the package's copy if the script uses a copy, or an empty string if it uses a release."""
    is_import: bool = False
    """True if the script imports the name, so that `callee` is a module."""


class UnparsedOption(Frozen):
    """An option of a launch that the parser of the user's own program lacks."""

    option: str
    program: str
    place: Place
    suggestion: str = ""
    """Option that was probably intended."""
    is_renamable: bool = False
    """True if the place holds the option's name alone, and no other option is similar."""


class UserPrograms:
    """Queries about the user's own programs that call the framework.

    The defaults apply to frameworks that read their files themselves, without a user's program.
    """

    def find_call_arguments(self, config: Config) -> tuple[CallArgument, ...]:
        """Return the settings that a script passes to other calls, and that only some releases accept there."""
        return ()

    def find_unparsed_options(self, config: Config) -> Iterator[UnparsedOption]:
        """Yield the options of launches that a user's own parser rejects, if all options of the parser are known."""
        return iter(())

    def list_unread_settings(self, config: Config) -> Mapping[str, tuple[str, str]]:
        """Return the settings that the user's program parses and passes to nothing, with the reason and a remedy."""
        return {}

    def explain_refused_argument(self, config: Config, route: Route) -> str:
        """Return why a script's call does not accept a new argument, or an empty string if it does."""
        return ""

    def is_declared(self, config: Config, route: Route) -> bool:
        """Return whether the user's program that reads the configuration declares a setting itself."""
        return False

    def describe_parser(self, config: Config) -> str:
        """Return the parser of the user's program that reads the configuration, or an empty string if it is unknown."""
        return ""

    def has_trainer(self, config: Config, is_inherited: bool) -> bool:
        """Return whether the configuration reaches the framework's trainer, so that statements about it hold.

        False if the user's program has a trainer of its own. `is_inherited`: the statement holds for trainers
        derived from the HF Trainer, too.
        """
        return True

    def describe_owner(self, fact: KeyFact) -> str:
        """Describe the class of a key that the user's program does not parse."""
        return f"it belongs to `{fact.definition.rpartition('.')[2]}`"

    def is_parsed(self, config: Config, name: str) -> bool:
        """Return whether the program that reads the configuration passes a setting to a class of the framework."""
        return True

    def can_have_foreign_keys(self, config: Config, release: str) -> bool:
        """Return whether code that the configuration loads, or that reads it, may add keys unknown to cfglint."""
        return False

    def can_be_read_by_user(self, config: Config) -> bool:
        """Return whether a user's program, with settings of its own, may read the configuration."""
        return False

    def can_be_user_setting(self, fact: KeyFact, config: Config, release: str) -> bool:
        """Return whether a key that the release does not have yet may be a setting of the user's own program."""
        return False

    def can_accept_more(self, name: str, config: Config) -> bool:
        """Return whether a user's program may accept more values of a setting than the framework does."""
        return False
