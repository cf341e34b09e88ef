"""What a framework makes of the keys of its files: all that the KEY rules, `migrate` and the choice of releases ask.

`Keys` is right for a framework that reads one mapping and does with each key what its vocabulary says. A framework that
does otherwise has a subclass in its folder; one without a vocabulary has no keys, and none of them is ever reported.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from functools import cached_property
from json import load as parse

from cfglint_schemas.fact import Fact
from cfglint_schemas.status import Context, Status
from cfglint_schemas.vocabulary import Vocabulary, load
from cfglint_train.documents.document import MISSING, Change, Document, Entry, Route
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Literal
from cfglint_train.foundation.versions import release_key
from cfglint_train.frameworks.evidence import Trace
from cfglint_train.frameworks.registry import Listed
from cfglint_train.plan.origin import Place

if TYPE_CHECKING:
    from cfglint_train.documents.shell.script import Invocation
    from cfglint_train.documents.shell.words import Word
    from cfglint_train.frameworks.keys_in_use import Told, Use
    from cfglint_train.frameworks.lens import Config
    from cfglint_train.plan.certainty import Ground


class Words(Frozen):
    """What people write and mean by it: `words.json` in the folder of a framework."""

    same: Mapping[str, str] = {}
    """A name (dotted where nested) that another framework has -> the setting with the same meaning and values."""
    advice: Mapping[str, str] = {}
    """A name -> what to do instead, where no setting takes the same value."""
    gone: Mapping[str, str] = {}
    """A name that a release removed -> what took its place."""
    earlier: Mapping[str, str] = {}
    """A name (dotted where nested) that only releases before the oldest known one have -> the last of these, by the
    tags of the source; none to which upstream's later examples still give a value."""
    formerly: tuple[str, ...] | None = None
    """Further names that those releases read or show, by the tags of the source; None where that is not known."""
    dated: Mapping[str, str] = {}
    """A name that later releases take as well, but that upstream's examples lost before the oldest known one -> the
    last release whose examples have it."""
    former_values: Mapping[str, tuple[str, ...]] = {}
    """A setting -> the values that only releases before the oldest known one took."""
    forks: Mapping[str, str] = {}
    """A name that no release has -> the distribution of the fork that has it."""
    idle: Mapping[str, tuple[str, ...]] = {}
    """A section -> keys that people copy into it from another one, where they can have no meaning."""
    why: str = ""
    """Why those have none."""


class Rewrite(Frozen):
    """Changes of keys that need the user's consent, and what they do."""

    applicability: Literal["safe", "unsafe", "display"]
    message: str
    changes: tuple[Change, ...]


class Outdated(Frozen):
    """A whole configuration that the release it is checked against does not take."""

    message: str
    place: Place
    severity: Literal["error", "warning", "info"]
    help: str | None = None
    grounds: tuple[Ground, ...] = ()
    """What it rests on."""


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


class Launched(Frozen):
    """A setting that a launch gives, as the vocabulary has it."""

    entry: str | None
    """The entry point that the route counts from."""
    route: Route
    there: int = 1
    """The steps of the route that are not the launch's own: the class that the script makes."""
    unset: Route = ()
    """The section above the setting that the file leaves unset, below the configuration's root."""
    stops_since: str = ""
    """The first release that stops at a setting below such a section."""

    def stops(self, release: str) -> bool:
        """Whether a release stops because the section is unset."""
        return bool(self.unset) and release_key(release) >= release_key(self.stops_since)


def words_of(schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The enumeration in a schema, if it alone is enforced; None where there is none."""
    return {"enum": schema["enum"]} if "enum" in schema else None


class Keys:
    """The keys of one framework."""

    checked = True
    """Whether its keys are checked against the vocabulary; not where the framework's files are programs."""
    library = False
    """Whether users' own scripts read its files and call it, so that a program of another name is no fork."""
    idle_too = False
    """Whether files that train nothing (servers, converters) have the same keys, so that they are migrated as well."""
    filled_in: tuple[str, ...] = ()
    """Values that are replaced before the framework looks at them."""
    handed_on: Mapping[str, tuple[str, tuple[str, ...]]] = {}
    """Settings that take any text and hand it on: the enumeration (by its Python name) that must have it in the end,
    and further words that are taken (`*` stands for anything)."""
    handed_to: str = "the HF Trainer"
    """What refuses other words."""
    stopping: frozenset[str] | None = None
    """The settings whose wrong values stop the framework while it reads them; None: all of them."""
    rewrites: Mapping[Route, Any] = {}
    """Removed settings whose successor is no other name: route -> function of the configuration, which answers with a
    `Rewrite` or None."""

    def __init__(self, listed: Listed) -> None:
        self.listed = listed
        self.name = listed.vocabulary or listed.name

    @property
    def vocabulary(self) -> Vocabulary:
        """Every key by release."""
        return load(self.name)

    def vocabulary_of(self, config: Config) -> Vocabulary:
        """The vocabulary that counts for a configuration: that of a copy of the framework, else upstream's."""
        return config.evidence.vocabulary or self.vocabulary

    @cached_property
    def words(self) -> Words:
        """What people write and mean by it."""
        path = os.path.join(self.listed.folder, "words.json")
        if not os.path.exists(path):
            return Words()
        with open(path, encoding="utf-8") as file:
            return Words(**parse(file))

    # What is there.

    def entry(self, document: Document, root: Route) -> str | None:
        """The entry point of the vocabulary that a configuration is for; None: the usual one."""
        return self.listed.entry

    def context(self, config: Config) -> Context:
        """What the existence of keys depends on beside the release, as far as the configuration shows."""
        return Context(entry=self.entry(config.document, config.root))

    def started(self, config: Config) -> str | None:
        """The entry point that a copy of the framework would be started at; None where none of it is."""
        return self.context(config).entry or next(iter(self.vocabulary.entries))

    def traces(self, config: Config) -> Iterator[tuple[str, Trace]]:
        """Return the evidence of a fork in the configuration itself, by its kinds."""
        node, forks = config.document.node(config.root), self.words.forks
        held = node.index if isinstance(node, MappingNode) else {}
        for key in forks:
            if key in held:
                yield "key", Trace(forks[key], key, config.where(key), "config", frozenset((key,)))

    def release(self, config: Config) -> str:
        """The release that counts where none is stated."""
        return config.release

    def flags(self, config: Config) -> Iterator[tuple[Entry, str | None]] | None:
        """The flags of a command line, each with the one of the vocabulary that it stands for (None: none of it).

        None where the configuration is a mapping.
        """
        return None

    def strays(self, config: Config) -> tuple[Word, ...]:
        """Words of a command line that no flag takes."""
        return ()

    def given_to_switches(self, config: Config) -> tuple[Word, ...]:
        """Those of them that are given to flags without a value as their value: KEY004 reports these flags."""
        return ()

    def chosen(self, config: Config, route: Route) -> Ground | None:
        """What the entry point of a configuration rests on where that is assumed: it counts as assumed for a setting
        that another one has; None where no assumption chooses it.
        """
        return None

    def unparsed(self, config: Config) -> Iterator[Unparsed]:
        """The options of launches that the parser of a user's own program refuses, where all that it takes is known."""
        return iter(())

    def refuses_blank(self, config: Config, given: Invocation, index: int) -> bool:
        """Whether a word of white space among those of a launch, by its number, stops the program in any case."""
        return False

    def untaken(self, config: Config, route: Route) -> str:
        """Why the call of a script that would be given a new argument does not take it; empty where it does."""
        return ""

    def launched(self, config: Config, route: Route) -> Launched | None:
        """Where the vocabulary has a setting that the launch gives; None where that is not checked."""
        return None

    def launched_effect(self, effect: str, config: Config, release: str) -> str:
        """What becomes of a setting of a launch that the release does not have. `effect`: what the vocabulary says."""
        return effect

    def launched_as(self, name: str, value: Any) -> str:
        """How a launch would give a setting that it gives in the form of another program; empty where it does not."""
        return ""

    # What it shows about releases.

    def told(self, document: Document, root: Route, release: str, package: str | None = None) -> Told | None:
        """The releases that the keys are written for; None where `release` refuses none of them.

        `package`: another package that the vocabulary rests on; then all releases are that package's.
        """
        from cfglint_train.frameworks.keys_in_use import told

        context = Context(entry=self.entry(document, root))
        return told(self.vocabulary, context, self.settles, document, root, release, package)

    def in_use(self, document: Document, root: Route, package: str | None = None) -> list[Use]:
        """The keys of a configuration by the releases that take them, save what all take. `package`: as in `told`."""
        from cfglint_train.frameworks.keys_in_use import in_use

        context = Context(entry=self.entry(document, root))
        return in_use(self.vocabulary, context, self.settles, document, root, package)

    def settles(self, route: Route) -> bool:
        """Whether a place has the same settings in every file."""
        return True

    def is_earlier(self, document: Document, root: Route) -> bool:
        """Whether a configuration gives a value to what only releases before the oldest known one took."""
        return self._gives(document, root, self.words.earlier)

    def is_outdated(self, document: Document, root: Route) -> bool:
        """Whether every known release refuses a configuration for what an earlier one took."""
        return False

    def may_be_former(self, route: Route) -> bool:
        """Whether a release before the oldest known one may have a setting."""
        known = self.words.formerly
        return known is None or len(route) > 1 or route[0] in known or route[0] in self.words.earlier

    def is_dated(self, document: Document, root: Route) -> bool:
        """Whether it gives a value to what only examples of releases before the oldest known one had."""
        return self._gives(document, root, self.words.dated)

    def _gives(self, document: Document, root: Route, names: Iterable[str]) -> bool:
        node = document.node(root)
        if not isinstance(node, MappingNode):
            return False
        routes = [tuple(name.split(".")) for name in names if name.partition(".")[0] in node.index]
        return any(document.value((*root, *route)) not in (None, MISSING) for route in routes)

    def outdated(self, config: Config) -> Outdated | None:
        """Where the configuration as a whole is for other releases than the one it is checked against."""
        return None

    def handed(self, config: Config) -> tuple[Handed, ...]:
        """The settings that other calls of a script are given, and that only some releases took there."""
        return ()

    # Settings by the names that tables of clauses call them.

    def routes(self, name: str) -> tuple[Route, ...]:
        """The routes that the framework has for a setting, the usual one first."""
        return (tuple(name.split(".")),)

    def given(self, config: Config) -> Set[str] | None:
        """What is given at the top level, sections included; None where more may be given out of sight."""
        node = config.node() if config.document.syntax != "python" and self.is_complete(config) else None
        if not isinstance(node, MappingNode):
            return None
        return {*node.index, *(str(route[0]) for route in config.overrides)}

    def find(self, config: Config, name: str) -> Route | None:
        """Where a setting is given, in one of its spellings."""
        return next((route for route in self.routes(name) if config.has(*route)), None)

    def home(self, config: Config, name: str) -> Route:
        """Where a setting would be given."""
        return self.routes(name)[0]

    def is_taken(self, config: Config, route: Route) -> bool:
        """Whether a setting is given already, or could not be put where it belongs."""
        if config.has(*route):
            return True
        above = (config.get(*route[:depth], default={}) for depth in range(1, len(route)))
        return any(not isinstance(value, (dict, list)) for value in above)

    def is_complete(self, config: Config) -> bool:
        """Whether all settings are in the text; else a rename could leave some behind under their old names."""
        return config.document.is_complete(config.root)

    def added(self, config: Config, names: Iterable[str]) -> Any:
        """The sum of some settings, defaults included; None where one of them cannot be determined."""
        return None

    # What becomes of a key.

    def effect(self, effect: str, route: Route, value: Any, config: Config, release: str) -> str:
        """What becomes of a key that the release does not have, with a certain value, as the configuration is started.

        `effect`: what the vocabulary says.
        """
        return effect

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

    def loading(self, config: Config, route: Route, plugins: tuple[str, ...]) -> Rewrite | None:
        """The change that loads one of some plugins, for the sake of a key."""
        return None

    def is_sure(self, written: str, meant: str, sure: bool) -> bool:
        """Whether a likely slip is one."""
        return sure

    def puts_right(self, config: Config, flag: str, value: str) -> bool:
        """Whether the framework itself replaces the value that a flag got."""
        return False

    # What a value must be.

    def part(self, schema: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
        """The part of a setting's schema that the framework enforces; None where it enforces none."""
        return words_of(schema) if "x-unchecked" in schema else schema

    def takes(self, schema: Mapping[str, Any], value: Any) -> bool | None:
        """Whether a value is taken, where the loader's types do not decide; None where they do."""
        return None

    def stops(self, route: Route) -> bool:
        """Whether a wrong value at a place stops the framework."""
        return self.stopping is None or str(route[0]) in self.stopping

    def shape(self, schema: Mapping[str, Any]) -> str | None:
        """What a setting takes, in words, where its schema would say it wrongly."""
        return None
