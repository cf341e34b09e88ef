"""What programs of the user's own hand to a framework, and which settings they may have besides."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cfglint_schemas.fact import Fact
from cfglint_schemas.status import Context, Status
from cfglint_schemas.vocabulary import Vocabulary
from cfglint_train.documents.document import Change, Route
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Any
from cfglint_train.frameworks.vocabulary_access import Rewrite
from cfglint_train.plan.origin import Place

if TYPE_CHECKING:
    from cfglint_train.frameworks.lens import Config


class Arguments(Frozen):
    """What a call takes, and what becomes of an argument that it has under another name."""

    vocabulary: Vocabulary
    context: Context
    value: Any
    """The value of the argument; Unknown where it depends on something out of sight."""
    same: str | None
    """What the call has for an argument of that name elsewhere."""
    rename: Callable[[str], Change | None]
    """The change that gives the argument another name; None where the call is given that one already."""
    is_sure: Callable[[str, str, bool], bool]
    """As `Keys.is_sure`."""


class Handed(Frozen):
    """A setting that a script hands to a call which took it at some releases, beside the one that takes the others."""

    name: str
    call: str
    """What it is handed to."""
    place: Place
    status: Callable[[str], Status]
    """What it is there at a release."""
    rewrite: Rewrite | None = None
    """How the script would say it at the release that counts."""
    help: str | None = None
    package: str | None = None
    """The package that it is handed to; None: the framework's own."""
    assumed: str = ""
    """What is assumed, where it is not certain that the call is made."""
    arguments: Arguments | None = None
    """What the call takes, where that is known of all its arguments."""
    copy: str = ""
    """The folder of the copy of the package that is used; empty where one of its releases is."""


class Unparsed(Frozen):
    """An option of a launch that the parser of the user's own program does not have."""

    option: str
    program: str
    place: Place
    near: str = ""
    """What it was probably meant to be."""


class UserPrograms:
    """Programs of the user's own that call the framework; none if it reads its files itself."""

    def handed(self, config: Config) -> tuple[Handed, ...]:
        """The settings that other calls of a script are given, and that only some releases took there."""
        return ()

    def unparsed(self, config: Config) -> Iterator[Unparsed]:
        """The options of launches that the parser of a user's own program refuses, where all that it takes is known."""
        return iter(())

    def untaken(self, config: Config, route: Route) -> str:
        """Why the call of a script that would be given a new argument does not take it; empty where it does."""
        return ""

    def may_be_foreign(self, config: Config, release: str) -> bool:
        """Whether something that the configuration loads may bring keys that are unknown here."""
        return False

    def may_be_read(self, config: Config) -> bool:
        """Whether a program of the user's own may read the configuration, and so has settings of its own there."""
        return False

    def may_be_another(self, fact: Fact, config: Config, release: str) -> bool:
        """Whether a key that the release does not have yet may be one that the user's own program has by that name."""
        return False

    def may_take_more(self, name: str, config: Config) -> bool:
        """Whether a program of the user's own may take other values of a setting than the framework."""
        return False
