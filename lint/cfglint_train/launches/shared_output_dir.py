"""Shared output folders: launches of one script that write into the same folder one after the other."""

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
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import Config
from cfglint_train.launches.launch_scripts import LaunchScripts
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Place
from cfglint_train.repository.index import RepositoryIndex

MAX_LAUNCHES: Final = 50
"""Maximum number of launches of a script to compare, because each reads a file. Further launches are not checked."""

_OUTPUT: Final[tuple[Field, ...]] = ("checkpoint.final_path", "checkpoint.path")
_RESUMING: Final[tuple[Field, ...]] = ("checkpoint.load_path", "checkpoint.resume_latest")
_SEQUENTIAL_SCOPES: Final = frozenset(("loop", "and", "subshell"))
"""Scopes whose commands always run if the commands before them succeed; other scopes are alternatives."""
_TRAINING: Final = compile_on_use(r"(?:^|[^a-zA-Z])(?:train|sft|dpo|grpo|kto|rloo)(?:$|[^a-zA-Z])")
"""Name of a program, module or subcommand that trains, recognized by a verb or training method.

Evaluation and conversion programs, which may receive the same file, do not match.
"""
_OTHER_TASK: Final = compile_on_use(r"\bdo_(?:train|eval|predict)\b")
_EXPANDED: Final = compile_on_use(r"\$\{?(\w+)")
# A loop over one plain word has one iteration.
_LOOP: Final = compile_on_use(rb"\bfor\s+(\w+)\s+in\b(?![ \t]+[\w./:@%+-]+[ \t]*(?:;|$))", re.M)
# Commands that end the script, try an alternative, or move the output.
_UNCERTAIN_COMMANDS: Final = compile_on_use(rb"\|\||(?:^|[;&\s])(?:exit|exec|cd|pushd|mv|rsync)\s", re.M)

_LENIENT_PARSER: Final = compile_on_use(rb"HfArgumentParser|TrlParser|parse_known_args|\badd_dataclass\b")
"""Parsers whose options are declared elsewhere, or that skip unknown options."""


class PreviousLaunch(Frozen):
    """A launch that writes into the same folder before another launch does."""

    place: Place
    is_same_command: bool
    """True if it is the same command in an earlier iteration of a loop."""


class SharedOutputDirs:
    """Launches of a repository's scripts by the folders they write into. Each script is read once."""

    def __init__(self, scripts: LaunchScripts, read_configs: Callable[[str], Sequence[Config]]) -> None:
        """Create an empty cache; `read_configs` returns the configs of a file."""
        self.scripts = scripts
        self.read_configs = read_configs
        self._launches: dict[tuple[str, str, str], tuple[_Launch, ...]] = {}

    def find_previous(self, main: Config, repository: RepositoryIndex) -> tuple[PreviousLaunch, ...]:
        """Return the launches that write into a config's output folder before its own launch, each once."""
        launches = {
            (launch.place.document.path, launch.place.span): launch
            for launch in self._find_previous_launches(main, repository)
        }
        return tuple(launches.values())

    def _find_previous_launches(self, main: Config, repository: RepositoryIndex) -> Iterator[PreviousLaunch]:
        """Yield the earlier launches that write into a config's output folder with other settings.

        Only launches of one script that always run count: two scripts, or the branches of a condition, are
        alternatives.
        """
        invocations = {
            (script, invocation.number): invocation for script, invocation in self.scripts.find_invocations(main)
        }
        for (script, number), invocation in invocations.items():
            if _UNCERTAIN_COMMANDS.search(script.source) or (
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
        """Return the training launches of a script with a known output folder, in order."""
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
        """Yield the commands of a script that are configs themselves."""
        for config in self.read_configs(script.path)[:MAX_LAUNCHES]:
            if config.role == "main":
                invocation = script.invocations[int(config.root[0])]
                yield config, script, invocation, invocation.words

    def _find_file_configs(
        self, script: ShellDocument, main: Config, repository: RepositoryIndex
    ) -> Iterator[_LaunchParts]:
        """Yield the commands of a script that receive a file of the same framework as `main`."""
        extension = os.path.splitext(main.document.path)[1]
        words = (word for invocation in script.invocations for word in invocation.words if word.is_known)
        names = dict.fromkeys(os.path.basename(word.text) for word in words if word.text.endswith(extension))
        for name in list(names)[:MAX_LAUNCHES]:
            for file in repository.find_by_name(name):
                path = self.scripts.sources.format_path(file, main.document.path)
                uses = tuple(self.scripts.find_uses_in(script, path))  # a shared file has uses in many scripts
                for config in self.read_configs(path) if uses else ():
                    if config.role == "main" and config.framework == main.framework:
                        yield from ((config, script, invocation, words) for invocation, words in uses)


_LaunchParts = tuple[Config, ShellDocument, Invocation, tuple[Word, ...]]


class _Launch:
    """An invocation that starts a config, with its output folder and resume settings."""

    def __init__(self, config: Config, script: ShellDocument, invocation: Invocation, words: tuple[Word, ...]) -> None:
        """Read the output and resume settings of the launch."""
        self.config, self.script, self.invocation, self.words = config, script, invocation, words
        self.is_own = config.document is script
        reading = frameworks.read_fields(config, frameworks.load(config.framework), *_OUTPUT, "model.id")
        outputs = _list_key_names(config.framework, _OUTPUT)
        keys = frozenset[str]().union(*outputs.values())
        self._outputs = keys.union(_list_options(config, keys))
        self._resuming = frozenset[str]().union(*_list_key_names(config.framework, _RESUMING).values())
        path = reading.get(next((field for field in _OUTPUT if outputs[field]), _OUTPUT[-1]))
        self.folder = ""
        """Output folder; empty if unknown."""
        if isinstance(path, str) and path:
            self.folder = os.path.normpath(os.path.join(resolve_working_folder(script, invocation), path))
        self._model = str(reading.get("model.id"))

    @property
    def is_comparable(self) -> bool:
        """True if the launch trains and its output folder is certain."""
        return bool(self.is_training and self.folder and not self.may_change_folder and not self.is_refused)

    @property
    def is_refused(self) -> bool:
        """True if the Python program's parser lacks an option of the launch, so the launch script is out of date."""
        source = self.config.document.source
        if self.config.document.syntax != "python" or b"argparse" not in source or _LENIENT_PARSER.search(source):
            return False
        option_names = (word.text.lstrip("-").partition("=")[0] for word in self.words if word.text.startswith("--"))
        return any(name.replace("-", "_").encode() not in source.replace(b"-", b"_") for name in option_names)

    @property
    def is_training(self) -> bool:
        """True if the launch trains rather than runs another program on the same file."""
        if self.is_own:
            return True
        words_before = self.invocation.words[: len(self.invocation.words) - len(self.words)]
        name = os.path.basename(self.config.document.path)
        texts = (self.invocation.program, *(word.text for word in words_before if not word.text.endswith(name)))
        return any(map(_TRAINING.search, texts)) and not any(_OTHER_TASK.search(word.text) for word in self.words)

    @property
    def identity(self) -> tuple[str, ...]:
        """File and words that distinguish the launch from others."""
        return (self.config.document.path, *(word.text for word in self.words))

    @property
    def is_repeated(self) -> bool:
        """True if a loop runs the launch again with settings that change in each iteration."""
        scope = self.invocation.scope
        if scope is None or not any(kind == "loop" for kind, _ in scope.conditions):
            return False
        variables = {name.decode() for name in _LOOP.findall(self.script.source)}
        return any(variables.intersection(_EXPANDED.findall(word.text)) for word in self.words if not word.is_known)

    @property
    def may_change_folder(self) -> bool:
        """True if the command may get another output folder, or resume an earlier run."""
        if self.invocation.forwards:
            return True
        texts = ["", *(word.text for word in self.words)]
        loose = (word.loose and not before.startswith("-") for before, word in zip(texts, self.words))
        names = self._resuming | (frozenset() if self.is_own else self._outputs)
        return any(loose) or any(word.spreads or _get_setting_name(word) in names for word in self.words)

    @property
    def is_continuation(self) -> bool:
        """True if the launch starts from the contents of its output folder, which it may overwrite on purpose."""
        pairs = ((before.text, word) for before, word in pairwise(self.words))
        other_words = (
            word for before, word in pairs if not {_get_last_part(before), _get_setting_name(word)} & self._outputs
        )
        paths = (self._model, *(word.text.rpartition("=")[2] for word in other_words))
        return any(os.path.normpath(path).startswith(self.folder) for path in paths)


@cache
def _list_key_names(framework: str, fields: tuple[Field, ...]) -> Mapping[Field, frozenset[str]]:
    """Return, for each field, the last parts of the framework's keys."""
    lenses = frameworks.load(framework).lenses
    return {
        field: frozenset(
            _get_last_part(route[-1]) for lens in lenses if field in lens.fields for route in lens.keys[field]
        )
        for field in fields
    }


def _list_options(config: Config, keys: frozenset[str]) -> Iterator[str]:
    """Yield the names of the options that set any of `keys` in a Python file."""
    for key in keys if config.document.syntax == "python" else ():
        node = config.document.find_node((*config.root, key))
        yield from (_get_last_part(step.text) for step in getattr(node, "how", ()) if step.kind == "option")


def _is_always_run(invocation: Invocation) -> bool:
    """Return whether a script always runs a command."""
    scope = invocation.scope
    return (
        scope is not None
        and not invocation.is_directive
        and not scope.is_nested
        and all(kind in _SEQUENTIAL_SCOPES for kind, _ in scope.conditions)
    )


def _is_only_training(script: ShellDocument, invocation: Invocation) -> bool:
    """Return whether a command runs once and no other command of its script trains, as in most scripts."""
    scope = invocation.scope
    is_repeated = scope is not None and any(kind == "loop" for kind, _ in scope.conditions)
    return not is_repeated and sum(map(_can_train, script.invocations)) < 2


def _can_train(invocation: Invocation) -> bool:
    """Return whether a word of a command indicates training."""
    return any(map(_TRAINING.search, (invocation.program, *(word.text for word in invocation.words))))


def _count_mentions(script: ShellDocument, folder: str) -> int:
    """Return how often a script names a folder."""
    name = re.escape(os.path.basename(folder)).encode()
    return len(re.findall(rb"(?<![\w.-])" + name + rb"(?![\w.-])", script.source))


def _get_setting_name(word: Word) -> str:
    """Return the last part of the name of the setting in a word."""
    return _get_last_part(word.text.partition("=")[0])


def _get_last_part(name: object) -> str:
    return str(name).lstrip("-").replace("-", "_").rpartition(".")[2]
