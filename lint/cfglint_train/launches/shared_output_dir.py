"""Launches of one script that write into the same folder, one after the other."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise

from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.folders import folder_of
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.documents.shell.words import Word
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import Config
from cfglint_train.launches.launch_scripts import LaunchScripts
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Place
from cfglint_train.repository.index import RepositoryIndex

MAX_LAUNCHES: Final = 50
"""Launches of a script that are compared; every file of them is read. Further ones are not judged."""

_OUTPUT: Final[tuple[Field, ...]] = ("checkpoint.final_path", "checkpoint.path")
_RESUMING: Final[tuple[Field, ...]] = ("checkpoint.load_path", "checkpoint.resume_latest")
_RUNS: Final = frozenset(("loop", "and", "subshell"))
"""Steps around a command that is run, once what is before it went well; others are taken or not."""
_TRAINING: Final = re.compile(r"(?:^|[^a-zA-Z])(?:train|sft|dpo|grpo|kto|rloo)(?:$|[^a-zA-Z])")
"""A program, module or subcommand that trains, by that or by a method; the same file is given to others that evaluate
or convert.
"""
_OTHER_TASK: Final = re.compile(r"\bdo_(?:train|eval|predict)\b")
_EXPANDED: Final = re.compile(r"\$\{?(\w+)")
# A loop over one plain word has one turn.
_LOOP: Final = re.compile(rb"\bfor\s+(\w+)\s+in\b(?![ \t]+[\w./:@%+-]+[ \t]*(?:;|$))", re.M)
# What ends the script, tries something else, or moves what was written somewhere else.
_OTHERWISE: Final = re.compile(rb"\|\||(?:^|[;&\s])(?:exit|exec|cd|pushd|mv|rsync)\s", re.M)

_OTHER_PARSER: Final = re.compile(rb"HfArgumentParser|TrlParser|parse_known_args|\badd_dataclass\b")
"""Parsers whose options are declared elsewhere, or that pass over those that they do not know."""


class PreviousLaunch(Frozen):
    """A launch that writes into the folder before another one does."""

    place: Place
    is_turn: bool
    """It is the same command, in an earlier turn of a loop."""


class SameFolder:
    """The launches of the scripts of a repository by the folders that they write into. Each script is read once."""

    def __init__(self, scripts: LaunchScripts, configs_in: Callable[[str], Sequence[Config]]) -> None:
        self.scripts = scripts
        self.configs_in = configs_in
        self._launches: dict[tuple[str, str, str], tuple[_Launch, ...]] = {}

    def earlier(self, main: Config, repository: RepositoryIndex) -> tuple[PreviousLaunch, ...]:
        """The launches before those of a configuration that write into its folder, each once."""
        found = {(one.place.document.path, one.place.span): one for one in self._earlier(main, repository)}
        return tuple(found.values())

    def _earlier(self, main: Config, repository: RepositoryIndex) -> Iterator[PreviousLaunch]:
        """The launches before those of a configuration that write into its folder, with other settings.

        Only launches of one script count that are run in any case: two scripts, and the branches of a condition, are
        ways of which one is taken.
        """
        given = {(script, invocation.number): invocation for script, invocation in self.scripts.given(main)}
        for (script, number), invocation in given.items():
            if _OTHERWISE.search(script.source) or (main.document is not script and _is_alone(script, invocation)):
                continue
            launches = self._of(script, main, repository)
            own = next((one for one in launches if one.invocation.number == number), None)
            if own is None or own.config.document.path != main.document.path:
                continue
            together = [one for one in launches if one.folder == own.folder]
            if _mentions(script, own.folder) > sum(one.is_own for one in together):
                continue
            if own.turns:
                yield PreviousLaunch(Place(script, own.invocation.span), True)
            for one in together:
                if one.invocation.number < number and one.settings != own.settings and not own.continues:
                    yield PreviousLaunch(Place(script, one.invocation.span), False)

    def _of(self, script: ShellDocument, main: Config, repository: RepositoryIndex) -> tuple[_Launch, ...]:
        """The launches of a script whose folder is known, in order."""
        key = script.path, main.framework, os.path.splitext(main.document.path)[1]
        if key not in self._launches:
            found = self._own(script) if main.document is script else self._naming(script, main, repository)
            launches = (_Launch(*one) for one in found if _is_run(one[2]))
            ordered = sorted(launches, key=lambda one: one.invocation.number)
            self._launches[key] = tuple(one for one in ordered if one.counts)
        return self._launches[key]

    def _own(self, script: ShellDocument) -> Iterator[_Parts]:
        """The commands of a script that are configurations themselves."""
        for config in self.configs_in(script.path)[:MAX_LAUNCHES]:
            if config.role == "main":
                invocation = script.invocations[int(config.root[0])]
                yield config, script, invocation, invocation.words

    def _naming(self, script: ShellDocument, main: Config, repository: RepositoryIndex) -> Iterator[_Parts]:
        """The commands of a script that are given a file of a configuration's kind."""
        extension = os.path.splitext(main.document.path)[1]
        words = (word for one in script.invocations for word in one.words if word.known)
        names = dict.fromkeys(os.path.basename(word.text) for word in words if word.text.endswith(extension))
        for name in list(names)[:MAX_LAUNCHES]:
            for found in repository.named(name):
                path = self.scripts.sources.named(found, main.document.path)
                given = tuple(self.scripts.handed_in(script, path))  # not those of every script: a shared file has many
                for config in self.configs_in(path) if given else ():
                    if config.role == "main" and config.framework == main.framework:
                        yield from ((config, script, one, words) for one, words in given)


_Parts = tuple[Config, ShellDocument, Invocation, tuple[Word, ...]]


class _Launch:
    """One place of a script that starts a configuration."""

    def __init__(self, config: Config, script: ShellDocument, invocation: Invocation, words: tuple[Word, ...]) -> None:
        self.config, self.script, self.invocation, self.words = config, script, invocation, words
        self.is_own = config.document is script
        reading = frameworks.read_fields(config, frameworks.load(config.framework), *_OUTPUT, "model.id")
        outputs = _names(config.framework, _OUTPUT)
        keys = frozenset[str]().union(*outputs.values())
        self._outputs = keys.union(_options(config, keys))
        self._resuming = frozenset[str]().union(*_names(config.framework, _RESUMING).values())
        path = reading.get(next((field for field in _OUTPUT if outputs[field]), _OUTPUT[-1]))
        self.folder = ""
        """Where it writes; empty where that is unknown."""
        if isinstance(path, str) and path:
            self.folder = os.path.normpath(os.path.join(folder_of(script, invocation), path))
        self._model = str(reading.get("model.id"))

    @property
    def counts(self) -> bool:
        """Whether it trains, and where it writes is known."""
        return bool(self.trains and self.folder and not self.is_moved and not self.is_refused)

    @property
    def is_refused(self) -> bool:
        """Whether the parser of a Python file lacks an option that it is given: the script is of another time."""
        source = self.config.document.source
        if self.config.document.syntax != "python" or b"argparse" not in source or _OTHER_PARSER.search(source):
            return False
        given = (word.text.lstrip("-").partition("=")[0] for word in self.words if word.text.startswith("--"))
        return any(name.replace("-", "_").encode() not in source.replace(b"-", b"_") for name in given)

    @property
    def trains(self) -> bool:
        """Whether it is a launch of training, not of another program that takes the same file."""
        if self.is_own:
            return True
        named = self.invocation.words[: len(self.invocation.words) - len(self.words)]
        name = os.path.basename(self.config.document.path)
        texts = (self.invocation.program, *(word.text for word in named if not word.text.endswith(name)))
        return any(map(_TRAINING.search, texts)) and not any(_OTHER_TASK.search(word.text) for word in self.words)

    @property
    def settings(self) -> tuple[str, ...]:
        """What distinguishes it from other launches."""
        return (self.config.document.path, *(word.text for word in self.words))

    @property
    def turns(self) -> bool:
        """Whether it is run again in a loop, with settings that change from turn to turn."""
        scope = self.invocation.scope
        if scope is None or not any(kind == "loop" for kind, _ in scope.chain):
            return False
        variables = {name.decode() for name in _LOOP.findall(self.script.source)}
        return any(variables.intersection(_EXPANDED.findall(word.text)) for word in self.words if not word.known)

    @property
    def is_moved(self) -> bool:
        """Whether its words may give another folder than the file does, or have it resume what an earlier one began."""
        if self.invocation.forwards:
            return True
        texts = ["", *(word.text for word in self.words)]
        loose = (word.loose and not before.startswith("-") for before, word in zip(texts, self.words))
        names = self._resuming | (frozenset() if self.is_own else self._outputs)
        return any(loose) or any(word.spreads or _named(word) in names for word in self.words)

    @property
    def continues(self) -> bool:
        """Whether it starts from what is in its folder, which was meant to be replaced."""
        behind = ((before.text, word) for before, word in pairwise(self.words))
        others = (word for before, word in behind if not {_last(before), _named(word)} & self._outputs)
        paths = (self._model, *(word.text.rpartition("=")[2] for word in others))
        return any(os.path.normpath(path).startswith(self.folder) for path in paths)


@cache
def _names(framework: str, fields: tuple[Field, ...]) -> Mapping[Field, frozenset[str]]:
    """The last parts of the keys of a framework that state some fields."""
    lenses = frameworks.load(framework).lenses
    return {
        field: frozenset(_last(route[-1]) for lens in lenses if field in lens.fields for route in lens.keys[field])
        for field in fields
    }


def _options(config: Config, keys: frozenset[str]) -> Iterator[str]:
    """The options of a Python file whose values some of its settings have, by their names."""
    for key in keys if config.document.syntax == "python" else ():
        node = config.document.node((*config.root, key))
        yield from (_last(step.text) for step in getattr(node, "how", ()) if step.kind == "option")


def _is_run(invocation: Invocation) -> bool:
    """Whether a script runs a command in any case."""
    scope = invocation.scope
    return (
        scope is not None
        and not invocation.is_directive
        and scope.script.parent is None
        and all(kind in _RUNS for kind, _ in scope.chain)
    )


def _is_alone(script: ShellDocument, invocation: Invocation) -> bool:
    """Whether a command is run once, and no other one of its script trains: most scripts train once."""
    scope = invocation.scope
    is_repeated = scope is not None and any(kind == "loop" for kind, _ in scope.chain)
    return not is_repeated and sum(map(_may_train, script.invocations)) < 2


def _may_train(invocation: Invocation) -> bool:
    """Whether a word of a command says that it trains."""
    return any(map(_TRAINING.search, (invocation.program, *(word.text for word in invocation.words))))


def _mentions(script: ShellDocument, folder: str) -> int:
    """How often a script names a folder."""
    name = re.escape(os.path.basename(folder)).encode()
    return len(re.findall(rb"(?<![\w.-])" + name + rb"(?![\w.-])", script.source))


def _named(word: Word) -> str:
    """The setting that a word names, without what leads to it."""
    return _last(word.text.partition("=")[0])


def _last(name: object) -> str:
    return str(name).lstrip("-").replace("-", "_").rpartition(".")[2]
