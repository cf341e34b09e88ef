"""Users' own programs: the arguments that they pass to a framework, and the settings that they may add."""

from __future__ import annotations

from collections.abc import Callable, Iterator

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
    """The arguments that a call takes, with the change that renames one of them."""

    vocabulary: Vocabulary
    context: Context
    value: Any
    """The value of the argument; Unknown where it depends on something out of sight."""
    equivalent: str | None
    """The call's own name for an argument that has this name elsewhere."""
    rename: Callable[[str], Change | None]
    """The change that gives the argument another name; None where the call is given that one already."""
    is_confident: Callable[[str, str, bool], bool]
    """As `Keys.is_sure`."""


class CallArgument(Frozen):
    """A setting that a script hands to a call which took it at some releases, beside the one that takes the others."""

    name: str
    callee: str
    """The callee."""
    place: Place
    find_status: Callable[[str], Status]
    """The setting's status there, by release."""
    rewrite: KeyRewrite | None = None
    """The change that fits the script to the release that counts."""
    help: str | None = None
    package: str | None = None
    """The package that it is handed to; None: the framework's own."""
    assumption: str = ""
    """The assumption, if the call may not be made."""
    parameters: CallParameters | None = None
    """The arguments that the call takes, or None if some are unknown."""
    copy_folder: str = ""
    """The folder of the copy of the package that is used; empty where one of its releases is."""


class UnparsedOption(Frozen):
    """An option of a launch that the parser of the user's own program does not have."""

    option: str
    program: str
    place: Place
    suggestion: str = ""
    """The option that was probably meant."""


class UserPrograms:
    """Programs of the user's own that call the framework; none if it reads its files itself."""

    def find_call_arguments(self, config: Config) -> tuple[CallArgument, ...]:
        """Return the settings that a script passes to other calls, and that only some releases took there."""
        return ()

    def find_unparsed_options(self, config: Config) -> Iterator[UnparsedOption]:
        """Yield the options of launches that a user's own parser refuses, if all that it takes is known."""
        return iter(())

    def explain_refused_argument(self, config: Config, route: Route) -> str:
        """Return why a script's call does not take a new argument, or an empty text if it does."""
        return ""

    def can_have_foreign_keys(self, config: Config, release: str) -> bool:
        """Return whether something that the configuration loads may bring keys that are unknown here."""
        return False

    def can_be_read_by_user(self, config: Config) -> bool:
        """Return whether a program of the user's own may read the configuration and have settings of its own there."""
        return False

    def can_be_user_setting(self, fact: KeyFact, config: Config, release: str) -> bool:
        """Return whether a key that the release does not have yet may be one of the user's own program."""
        return False

    def can_accept_more(self, name: str, config: Config) -> bool:
        """Return whether a program of the user's own may take other values of a setting than the framework."""
        return False
