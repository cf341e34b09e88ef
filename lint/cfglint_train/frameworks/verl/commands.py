"""Commands of Hydra's programs: their words, the options that Hydra reads, and the files that words select."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from cfglint_schemas.matches import find_similar
from cfglint_schemas.status import Context
from cfglint_train.documents.document import Edit, Route, Span
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.script import Argument, Invocation
from cfglint_train.documents.shell.words import Word
from cfglint_train.frameworks.flag_parser import RefusedWord
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.verl.options import find_late_override
from cfglint_train.frameworks.verl.recognise import is_ppo_program, is_sft_program
from cfglint_train.frameworks.verl.settings import (
    can_select_files,
    find_entry,
    get_invocation,
    get_release,
    get_vocabulary,
    has_known_tree,
    is_in_tree,
    is_sft,
)
from cfglint_train.frameworks.verl.words import ENGINE_GROUP, GROUPS, HydraWord, list_words
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


def list_refused_files(config: Config) -> Iterator[RefusedWord]:
    """Yield the words that select a file which its config group lacks, or add a group that is selected anyway."""
    for word in list_command_words(config) if can_select_files(config) else ():
        group, node = word.head.key, word.entry.value
        is_file = word.head.is_group or group == ENGINE_GROUP or (group in GROUPS and is_sft(config))
        if not is_file or word.head.sign == "~" or not isinstance(node, Argument) or not word.word.is_known:
            continue
        place, route = Place(config.document, word.word.span), tuple((word.head.package or group).split("."))
        if word.head.sign:
            yield RefusedWord(
                place,
                f"`{word.name}` adds a config group that is selected anyway",
                "write it without `+`",
                partial(_is_selected, config, route, group),
                likely_edit=_build_edit(config, word.word, word.head.sign, ""),
            )
        elif group != ENGINE_GROUP and isinstance(node.value, str) and "$" not in node.value:
            files = _find_files(config, route, group, get_release(config))
            similar = find_similar(node.value, files)
            yield RefusedWord(
                place,
                f"the config group `{group}` has no `{node.value}`",
                f"write {similar[0][0]}" if similar else f"choose one of {', '.join(files)}",
                partial(_is_missing, config, route, group, node.value),
                likely_edit=_build_edit(config, node.word, node.value, similar[0][0]) if similar else None,
            )


def _build_edit(config: Config, word: Word | None, start: str, text: str) -> Edit | None:
    """Return the edit that replaces the start of a word, or None if it is not written in one place."""
    if word is None or word.target is None:
        return None
    span = Span(word.target.start, word.target.start + len(start.encode()))
    return Edit(span, text) if config.document.get_text(span) == start else None


def _is_selected(config: Config, route: Route, group: str, release: str) -> bool:
    is_engine = group == ENGINE_GROUP and is_in_tree(config, route, release)
    return is_engine or bool(_find_files(config, route, group, release))


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
    command = get_invocation(config)
    started = config.launches if command is None else ((config.document, command.number),)
    for script, number in started:
        if isinstance(script, ShellDocument) and is_read_by_hydra(config, script.invocations[number]):
            yield script, script.invocations[number]


def is_read_by_hydra(config: Config, invocation: Invocation) -> bool:
    """Return whether Hydra's parser certainly reads a command."""
    return is_ppo_program(invocation) or is_sft_program(invocation) or has_known_tree(config)
