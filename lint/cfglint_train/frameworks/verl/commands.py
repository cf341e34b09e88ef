"""Commands of Hydra's programs: their words, the options that Hydra reads, and the files that words select."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from cfglint_schemas.matches import find_similar
from cfglint_schemas.status import Context
from cfglint_train.documents.document import Edit, Route
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.script import Argument, Invocation
from cfglint_train.frameworks.flag_parser import RefusedWord
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.verl.options import find_late_override
from cfglint_train.frameworks.verl.recognise import is_ppo_program, is_sft_program
from cfglint_train.frameworks.verl.settings import (
    find_entry,
    get_invocation,
    get_release,
    get_vocabulary,
    has_known_tree,
    is_sft,
    selects_files,
)
from cfglint_train.frameworks.verl.words import GROUPS, HydraWord, list_words
from cfglint_train.plan.origin import Place


def list_command_words(config: Config) -> list[HydraWord]:
    """Return the overrides of a configuration that is a command, in order."""
    return config.compute_once(_find_command_words)


def _find_command_words(config: Config) -> list[HydraWord]:
    invocation = get_invocation(config)
    return [] if invocation is None else list_words(invocation)


def list_late_overrides(config: Config) -> Iterator[RefusedWord]:
    """Yield the first override that Hydra refuses in each command that has options among its overrides."""
    for script, invocation in list_commands(config):
        late = find_late_override(invocation)
        if late is not None:
            word, option = late
            yield RefusedWord(
                Place(script, word.span),
                f"Hydra reads no overrides after `{option.text}`, because others come before it",
                "write the options of Hydra before all overrides",
                lambda _: True,
            )


def list_missing_files(config: Config) -> Iterator[RefusedWord]:
    """Yield the words that select a file which its config group lacks."""
    for word in list_command_words(config) if selects_files(config) else ():
        group, node = word.head.key, word.entry.value
        is_file = word.head.is_group or (group in GROUPS and is_sft(config))
        if not is_file or word.head.sign or word.word.left_out or not isinstance(node, Argument):
            continue
        route: Route = tuple((word.head.package or group).split("."))
        files, value = _find_files(config, route, group, get_release(config)), node.value
        if not isinstance(value, str) or "$" in value:
            continue
        similar = find_similar(value, files)
        target = None if node.word is None else node.word.target
        is_written = similar and target is not None and config.document.get_text(target) == value
        yield RefusedWord(
            Place(config.document, word.word.span),
            f"the config group `{group}` has no `{value}`",
            f"write {similar[0][0]}" if similar else f"choose one of {', '.join(files)}",
            partial(_is_missing, config, route, group, value),
            likely_edit=Edit(target, similar[0][0]) if is_written and target is not None else None,
        )


def _find_files(config: Config, route: Route, group: str, release: str) -> tuple[str, ...]:
    """Return the files of a config group that a word can select for a section, or none if that is unknown."""
    fact = get_vocabulary(config).find_fact(route, release, Context(entry=find_entry(config)))
    files = {} if fact is None or fact.is_open else fact.get_schema(release).get("x-files", {})
    return tuple(files.get(group, ()))


def _is_missing(config: Config, route: Route, group: str, value: str, release: str) -> bool:
    files = _find_files(config, route, group, release)
    return bool(files) and value not in files


def list_commands(config: Config) -> Iterator[tuple[ShellDocument, Invocation]]:
    """Yield the commands of Hydra's programs that are, or start, a configuration."""
    own = get_invocation(config)
    started = config.launches if own is None else ((config.document, own.number),)
    for script, number in started:
        if isinstance(script, ShellDocument) and is_read_by_hydra(config, script.invocations[number]):
            yield script, script.invocations[number]


def is_read_by_hydra(config: Config, invocation: Invocation) -> bool:
    """Return whether Hydra's parser certainly reads a command."""
    return is_ppo_program(invocation) or is_sft_program(invocation) or has_known_tree(config)
