"""Files that a script starts a training with, and that are not there: their runs are not checked."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Iterator, Mapping

from cfglint_train.documents.document import Position, Span
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.folders import folder_of
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.documents.shell.words import Word
from cfglint_train.foundation import regular_files
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.registry import Listed, of_program
from cfglint_train.launches.entries import file_of, name_of
from cfglint_train.repository.index import RepositoryIndex
from cfglint_train.repository.sources import Sources

_CONFIGURATION: Final = re.compile(r"\.(?:ya?ml|json)$")
_FILE: Final = re.compile(r"\.(?:ya?ml|json|py)$")
_YAML: Final = re.compile(r"\.ya?ml$")
"""What a program that is not known is given as settings: JSON may as well be data."""
_TRAINING: Final = re.compile(r"(?<!s)(?:train|tune|sft|dpo|grpo)(?!_?data)")
"""In the name of a program that trains, and does not make the data for it."""
_ENDINGS: Final = (".yaml", ".yml", ".json")
_LAUNCHERS: Final = ("accelerate launch", "deepspeed", "torchrun")
_INTO: Final = rb"(?:>|\btee\b(?:[ \t]+-a)?)[ \t]*[\"']?[^\s\"'<>|;&]*(?<![\w.-])"
"""Bash writes to the file that follows."""
_OPTION: Final = "--config"
_SUBCOMMAND: Final = re.compile(r"[a-z][a-z0-9-]*")


Started = Mapping[str, list[tuple[Invocation, Word, str]]]
"""Files that a repository does not have, by name: the commands that train with them, and what these start."""


def absent(document: ShellDocument, started: Started, sources: Sources) -> Iterator[tuple[Position, str]]:
    """Where a script trains with such a file, and what is wrong; each file once. A file that the script names
    elsewhere, too, may be made there.
    """
    for file, places in started.items():
        one, word, title = places[0]
        if document.source.count(os.fsencode(os.path.basename(file))) > len(places) or set("<>{}*") & set(file):
            continue
        if sources.find(os.path.join(folder_of(document, one), file), document.path) is None:
            told = f"run not checked: `{file}`, which {title} is started with, was not found"
            yield document.position(word.span.start), told


def written(document: ShellDocument, started: Started) -> Iterator[tuple[Span, str]]:
    """Where a script trains with a file that it writes itself (`cat > c.yaml <<EOF`), and that; each file once."""
    for file, places in started.items():
        _, word, title = places[0]
        name = re.escape(os.fsencode(os.path.basename(file)))
        if re.search(_INTO + name + rb"(?![\w.-])", document.source):
            told = f"`{file}`, which {title} is started with, is written by the script itself"
            yield word.span, told


def argued(
    document: ShellDocument, read: Container[int], index: RepositoryIndex, reads: Callable[[str], bool]
) -> Iterator[tuple[Span, str]]:
    """Where a script trains with a file of unknown name (`llamafactory-cli train $1`), once for each name;
    nothing where the repository has files of the framework, which are checked. `reads`: whether a file is such a one.
    """
    met = set[tuple[str, str]]()
    for one in document.invocations:
        framework = None if one.number in read else _trained_with(one)
        if framework is None or any(word.known and _CONFIGURATION.search(word.text) for word in one.words):
            continue
        word = _file_word(one)
        if word is None and one.forwards and not one.entries:
            place, text = one.head[-1].span, "$@"
        elif word is not None and not word.known and not word.spreads:
            place, text = word.span, word.text.removeprefix(f"{_OPTION}=")
        else:
            continue
        if (framework.name, text) in met:
            continue
        met.add((framework.name, text))
        if not any(map(reads, index.with_one_of(dict.fromkeys(_ENDINGS, framework.clues["yaml"])))):
            yield place, f"the file that {framework.title} is started with (`{text}`) cannot be determined"


def miscased(
    document: ShellDocument, sources: Sources, index: RepositoryIndex, reads: Callable[[str], bool]
) -> Iterator[tuple[Position, str]]:
    """Where a script starts something with a file that the repository has in another case (`Scripts/train.py`), and
    the file; each once. `reads`: whether a file is a run.
    """
    met = set[str]()
    for one in document.invocations:
        for word in (*one.head[-1:], *one.words):
            name = regular_files.tidy(word.text) if word.known and "/" in word.text else ""
            if name in met or "/" not in name or not _FILE.search(name):
                continue
            met.add(name)
            found = next((path for path in index.named(os.path.basename(name)) if _is_miscased(path, name)), None)
            if found is None or sources.find(os.path.join(folder_of(document, one), name), document.path) is not None:
                continue
            own = found[-len(name) :]
            if os.fsencode(own) not in document.source and reads(sources.named(found, document.path)):
                # Else it may be copied there.
                told = f"run not checked: `{name}` was not found; the repository has it as `{own}`"
                yield document.position(word.span.start), told


def _is_miscased(path: str, name: str) -> bool:
    return path.lower().endswith(f"/{name.lower()}") and not path.endswith(f"/{name}")


def _file_word(one: Invocation) -> Word | None:
    """The word that names the file of settings: the value of an option, else the first behind the command."""
    for flag, entry in zip(one.flags, one.entries, strict=True):
        if entry.name == _OPTION:
            return one.words[flag.values[0] if flag.values else flag.word]
    return next((word for word in one.words if not (word.known and _SUBCOMMAND.fullmatch(word.text))), None)


def started_with(document: ShellDocument, read: Container[int], sources: Sources, index: RepositoryIndex) -> Started:
    """What a script trains with that the repository does not have. `read`: the invocations that are configurations."""
    started: dict[str, list[tuple[Invocation, Word, str]]] = {}
    for one in document.invocations:
        if one.number in read:
            continue
        framework = _trained_with(one)
        title = _program_without_source(document, one, sources, index) if framework is None else framework.title
        endings = _CONFIGURATION if framework is not None else _YAML
        word = next((word for word in one.words if word.known and endings.search(word.text)), None)
        if title and word is not None and not index.named(os.path.basename(word.text)):
            started.setdefault(word.text, []).append((one, word, title))
    return started


def _trained_with(invocation: Invocation) -> Listed | None:
    """The framework that a command or module trains with; None for a script, and for what does not train."""
    name = invocation.program
    first = next((word.text for word in invocation.arguments[:1] if word.known), "")
    if "/" in name or name.endswith(".py"):
        return None
    framework = of_program(name)
    if framework is None or "yaml" not in framework.clues:  # it takes no file of settings
        return None
    is_training = re.fullmatch(framework.trains or "", f"{name} {first}") is not None
    named = "train" in (first if _SUBCOMMAND.fullmatch(first) else name)
    return framework if is_training or named else None


def _program_without_source(document: ShellDocument, one: Invocation, sources: Sources, index: RepositoryIndex) -> str:
    """A training program that a launcher of several processes starts and that the repository lacks; empty for others:
    what a program of the repository does is seen there.
    """
    launched = one.parent is not None and document.invocations[one.parent].program in _LAUNCHERS
    name = name_of(one)
    if not launched or not name.endswith(".py") or _TRAINING.search(os.path.basename(name)) is None:
        return ""
    return f"`{name}`" if file_of(document, one, sources, index) is None else ""
