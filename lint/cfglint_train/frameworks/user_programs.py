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
    """The parameters of a call, with the change that renames one of its arguments."""

    vocabulary: Vocabulary
    context: Context
    value: Any
    """Value of the argument; Unknown if it depends on something out of sight."""
    equivalent: str | None
    """The call's own name for an argument that has this name elsewhere."""
    rename: Callable[[str], Change | None]
    """Change that renames the argument; None if the call has one of the new name already."""
    is_confident: Callable[[str, str, bool], bool]
    """As `Keys.is_confident`."""


class CallArgument(Frozen):
    """A setting that a script passes to a call which accepted it at some releases, unlike its other settings."""

    name: str
    callee: str
    """Name of the called function or class."""
    place: Place
    find_status: Callable[[str], Status]
    """Status of the setting there, by release."""
    rewrite: KeyRewrite | None = None
    """Change that adapts the script to the effective release."""
    help: str | None = None
    package: str | None = None
    """Package that receives it; None: the framework's own."""
    assumption: str = ""
    """Assumption, if the call may not be executed."""
    parameters: CallParameters | None = None
    """Parameters of the call, or None if some are unknown."""
    copy_folder: str = ""
    """Folder of the copy of the package that is used; empty if one of its releases is."""


class UnparsedOption(Frozen):
    """An option of a launch that the parser of the user's own program lacks."""

    option: str
    program: str
    place: Place
    suggestion: str = ""
    """Option that was probably intended."""


class UserPrograms:
    """The user's own programs that call the framework; none if the framework reads its files itself."""

    def find_call_arguments(self, config: Config) -> tuple[CallArgument, ...]:
        """Return the settings that a script passes to other calls, and that only some releases accepted there."""
        return ()

    def find_unparsed_options(self, config: Config) -> Iterator[UnparsedOption]:
        """Yield the options of launches that a user's own parser refuses, if all of its options are known."""
        return iter(())

    def explain_refused_argument(self, config: Config, route: Route) -> str:
        """Return why a script's call does not accept a new argument, or an empty text if it does."""
        return ""

    def can_have_foreign_keys(self, config: Config, release: str) -> bool:
        """Return whether something that the configuration loads may add keys that cfglint does not know."""
        return False

    def can_be_read_by_user(self, config: Config) -> bool:
        """Return whether a program of the user's own may read the configuration, with settings of its own."""
        return False

    def can_be_user_setting(self, fact: KeyFact, config: Config, release: str) -> bool:
        """Return whether a key that the release does not have yet may belong to the user's own program."""
        return False

    def can_accept_more(self, name: str, config: Config) -> bool:
        """Return whether a program of the user's own may accept other values of a setting than the framework."""
        return False
