"""Launches of one script that write into the same folder, one after the other."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise

from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.folders import resolve_working_folder
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
_SEQUENTIAL_SCOPES: Final = frozenset(("loop", "and", "subshell"))
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

_LENIENT_PARSER: Final = re.compile(rb"HfArgumentParser|TrlParser|parse_known_args|\badd_dataclass\b")
"""Parsers whose options are declared elsewhere, or that pass over those that they do not know."""


class PreviousLaunch(Frozen):
    """A launch that writes into the folder before another one does."""

    place: Place
    is_same_command: bool
    """It is the same command, in an earlier turn of a loop."""


class SharedOutputDirs:
    """The launches of the scripts of a repository by the folders that they write into. Each script is read once."""

    def __init__(self, scripts: LaunchScripts, read_configs: Callable[[str], Sequence[Config]]) -> None:
        self.scripts = scripts
        self.read_configs = read_configs
        self._launches: dict[tuple[str, str, str], tuple[_Launch, ...]] = {}

    def find_previous(self, main: Config, repository: RepositoryIndex) -> tuple[PreviousLaunch, ...]:
        """The launches before those of a configuration that write into its folder, each once."""
        launches = {
            (launch.place.document.path, launch.place.span): launch
            for launch in self._search_previous(main, repository)
        }
        return tuple(launches.values())

    def _search_previous(self, main: Config, repository: RepositoryIndex) -> Iterator[PreviousLaunch]:
        """The launches before those of a configuration that write into its folder, with other settings.

        Only launches of one script count that are run in any case: two scripts, and the branches of a condition, are
        ways of which one is taken.
        """
        invocations = {
            (script, invocation.number): invocation for script, invocation in self.scripts.find_invocations(main)
        }
        for (script, number), invocation in invocations.items():
            if _OTHERWISE.search(script.source) or (
                main.document is not script and _is_only_training(script, invocation)
            ):
                continue
            launches = self._list_launches(script, main, repository)
            own_launch = next((launch for launch in launches if launch.invocation.number == number), None)
            if own_launch is None or own_launch.config.document.path != main.document.path:
                continue
            same_folder = [launch for launch in launches if launch.folder == own_launch.folder]
            if _count_mentions(script, own_launch.folder) > sum(launch.is_own for launch in same_folder):
                continue
            if own_launch.is_repeated:
                yield PreviousLaunch(Place(script, own_launch.invocation.span), True)
            for launch in same_folder:
                if (
                    launch.invocation.number < number
                    and launch.identity != own_launch.identity
                    and not own_launch.is_continuation
                ):
                    yield PreviousLaunch(Place(script, launch.invocation.span), False)

    def _list_launches(self, script: ShellDocument, main: Config, repository: RepositoryIndex) -> tuple[_Launch, ...]:
        """The launches of a script whose folder is known, in order."""
        key = script.path, main.framework, os.path.splitext(main.document.path)[1]
        if key not in self._launches:
            parts = (
                self._find_command_configs(script)
                if main.document is script
                else self._find_file_configs(script, main, repository)
            )
            launches = (_Launch(*item) for item in parts if _is_always_run(item[2]))
            ordered = sorted(launches, key=lambda item: item.invocation.number)
            self._launches[key] = tuple(item for item in ordered if item.is_comparable)
        return self._launches[key]

    def _find_command_configs(self, script: ShellDocument) -> Iterator[_LaunchParts]:
        """The commands of a script that are configurations themselves."""
        for config in self.read_configs(script.path)[:MAX_LAUNCHES]:
            if config.role == "main":
                invocation = script.invocations[int(config.root[0])]
                yield config, script, invocation, invocation.words

    def _find_file_configs(
        self, script: ShellDocument, main: Config, repository: RepositoryIndex
    ) -> Iterator[_LaunchParts]:
        """The commands of a script that are given a file of a configuration's kind."""
        extension = os.path.splitext(main.document.path)[1]
        words = (word for invocation in script.invocations for word in invocation.words if word.is_known)
        names = dict.fromkeys(os.path.basename(word.text) for word in words if word.text.endswith(extension))
        for name in list(names)[:MAX_LAUNCHES]:
            for file in repository.find_by_name(name):
                path = self.scripts.sources.format_path(file, main.document.path)
                uses = tuple(
                    self.scripts.find_uses_in(script, path)
                )  # not those of every script: a shared file has many
                for config in self.read_configs(path) if uses else ():
                    if config.role == "main" and config.framework == main.framework:
                        yield from ((config, script, invocation, words) for invocation, words in uses)


_LaunchParts = tuple[Config, ShellDocument, Invocation, tuple[Word, ...]]


class _Launch:
    """One place of a script that starts a configuration."""

    def __init__(self, config: Config, script: ShellDocument, invocation: Invocation, words: tuple[Word, ...]) -> None:
        self.config, self.script, self.invocation, self.words = config, script, invocation, words
        self.is_own = config.document is script
        reading = frameworks.read_fields(config, frameworks.load(config.framework), *_OUTPUT, "model.id")
        outputs = _list_key_names(config.framework, _OUTPUT)
        keys = frozenset[str]().union(*outputs.values())
        self._outputs = keys.union(_list_options(config, keys))
        self._resuming = frozenset[str]().union(*_list_key_names(config.framework, _RESUMING).values())
        path = reading.get(next((field for field in _OUTPUT if outputs[field]), _OUTPUT[-1]))
        self.folder = ""
        """Where it writes; empty where that is unknown."""
        if isinstance(path, str) and path:
            self.folder = os.path.normpath(os.path.join(resolve_working_folder(script, invocation), path))
        self._model = str(reading.get("model.id"))

    @property
    def is_comparable(self) -> bool:
        """Whether it trains, and where it writes is known."""
        return bool(self.is_training and self.folder and not self.is_moved and not self.is_refused)

    @property
    def is_refused(self) -> bool:
        """Whether the parser of a Python file lacks an option that it is given: the script is of another time."""
        source = self.config.document.source
        if self.config.document.syntax != "python" or b"argparse" not in source or _LENIENT_PARSER.search(source):
            return False
        option_names = (word.text.lstrip("-").partition("=")[0] for word in self.words if word.text.startswith("--"))
        return any(name.replace("-", "_").encode() not in source.replace(b"-", b"_") for name in option_names)

    @property
    def is_training(self) -> bool:
        """Whether it is a launch of training, not of another program that takes the same file."""
        if self.is_own:
            return True
        words_before = self.invocation.words[: len(self.invocation.words) - len(self.words)]
        name = os.path.basename(self.config.document.path)
        texts = (self.invocation.program, *(word.text for word in words_before if not word.text.endswith(name)))
        return any(map(_TRAINING.search, texts)) and not any(_OTHER_TASK.search(word.text) for word in self.words)

    @property
    def identity(self) -> tuple[str, ...]:
        """What distinguishes it from other launches."""
        return (self.config.document.path, *(word.text for word in self.words))

    @property
    def is_repeated(self) -> bool:
        """Whether it is run again in a loop, with settings that change from turn to turn."""
        scope = self.invocation.scope
        if scope is None or not any(kind == "loop" for kind, _ in scope.chain):
            return False
        variables = {name.decode() for name in _LOOP.findall(self.script.source)}
        return any(variables.intersection(_EXPANDED.findall(word.text)) for word in self.words if not word.is_known)

    @property
    def is_moved(self) -> bool:
        """Whether its words may give another folder than the file does, or have it resume what an earlier one began."""
        if self.invocation.forwards:
            return True
        texts = ["", *(word.text for word in self.words)]
        loose = (word.loose and not before.startswith("-") for before, word in zip(texts, self.words))
        names = self._resuming | (frozenset() if self.is_own else self._outputs)
        return any(loose) or any(word.spreads or _get_setting_name(word) in names for word in self.words)

    @property
    def is_continuation(self) -> bool:
        """Whether it starts from what is in its folder, which was meant to be replaced."""
        pairs = ((before.text, word) for before, word in pairwise(self.words))
        other_words = (
            word for before, word in pairs if not {_get_last_part(before), _get_setting_name(word)} & self._outputs
        )
        paths = (self._model, *(word.text.rpartition("=")[2] for word in other_words))
        return any(os.path.normpath(path).startswith(self.folder) for path in paths)


@cache
def _list_key_names(framework: str, fields: tuple[Field, ...]) -> Mapping[Field, frozenset[str]]:
    """The last parts of the keys of a framework that state some fields."""
    lenses = frameworks.load(framework).lenses
    return {
        field: frozenset(
            _get_last_part(route[-1]) for lens in lenses if field in lens.fields for route in lens.keys[field]
        )
        for field in fields
    }


def _list_options(config: Config, keys: frozenset[str]) -> Iterator[str]:
    """The options of a Python file whose values some of its settings have, by their names."""
    for key in keys if config.document.syntax == "python" else ():
        node = config.document.find_node((*config.root, key))
        yield from (_get_last_part(step.text) for step in getattr(node, "how", ()) if step.kind == "option")


def _is_always_run(invocation: Invocation) -> bool:
    """Whether a script runs a command in any case."""
    scope = invocation.scope
    return (
        scope is not None
        and not invocation.is_directive
        and scope.script.parent is None
        and all(kind in _SEQUENTIAL_SCOPES for kind, _ in scope.chain)
    )


def _is_only_training(script: ShellDocument, invocation: Invocation) -> bool:
    """Whether a command is run once, and no other one of its script trains: most scripts train once."""
    scope = invocation.scope
    is_repeated = scope is not None and any(kind == "loop" for kind, _ in scope.chain)
    return not is_repeated and sum(map(_can_train, script.invocations)) < 2


def _can_train(invocation: Invocation) -> bool:
    """Whether a word of a command says that it trains."""
    return any(map(_TRAINING.search, (invocation.program, *(word.text for word in invocation.words))))


def _count_mentions(script: ShellDocument, folder: str) -> int:
    """How often a script names a folder."""
    name = re.escape(os.path.basename(folder)).encode()
    return len(re.findall(rb"(?<![\w.-])" + name + rb"(?![\w.-])", script.source))


def _get_setting_name(word: Word) -> str:
    """The setting that a word names, without what leads to it."""
    return _get_last_part(word.text.partition("=")[0])


def _get_last_part(name: object) -> str:
    return str(name).lstrip("-").replace("-", "_").rpartition(".")[2]
