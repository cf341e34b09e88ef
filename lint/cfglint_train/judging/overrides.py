"""Validation of overrides (`--set`): the framework of at least one file must have the key and accept the value.

Without it, cfglint would silently ignore a mistyped override, the kind of mistake that it exists to catch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from cfglint_rules.vocabulary.given_names import find_facts, find_similar
from cfglint_rules.vocabulary.values import describe_expected, is_accepted
from cfglint_schemas.fact import KeyFact
from cfglint_schemas.status import PRESENT
from cfglint_train.documents.document import Route
from cfglint_train.foundation.typed import Any
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.framework import Framework
from cfglint_train.frameworks.lens import Config, format_route
from cfglint_train.runs.statements import CommandLine
from cfglint_train.runs.workspace import Workspace

ReadOverride = Callable[[Framework], Mapping[Route, Any]]
"""Function that reads an override the way a framework does."""


def validate_overrides(workspace: Workspace, files: Iterable[str], command_line: CommandLine) -> tuple[str, str] | None:
    """Return the first override that every config in the files rejects, with the reason, or None if there is none."""
    unmatched: dict[str, ReadOverride] = dict(_list_overrides(command_line))
    problems: dict[str, str] = {}
    frameworks_seen: list[str] = []
    for path in files:
        if not unmatched:
            return None
        for config in _read_configs(workspace, path):
            frameworks_seen.append(config.framework)
            for word, read in tuple(unmatched.items()):
                problem = _find_refusal(config, read)
                if problem is None:
                    del unmatched[word]
                else:
                    problems[word] = problem or problems.get(word, "")
    if not unmatched or not frameworks_seen:
        return None
    word = next(iter(unmatched))
    if problems[word]:
        return word, problems[word]
    titles = " or ".join(frameworks.load(name).title for name in dict.fromkeys(frameworks_seen))
    suggestion = find_similar(word.partition("=")[0], frameworks_seen)
    return word, f"no key of {titles}" + (f"; did you mean {suggestion}?" if suggestion else "")


def _list_overrides(command_line: CommandLine) -> Iterator[tuple[str, ReadOverride]]:
    for route, value in command_line.overrides.items():
        yield f"{format_route(route)}={value}", partial(_get_settings, {route: value})
    for word in command_line.settings:
        yield word, partial(_parse_override, word)


def _get_settings(settings: Mapping[Route, Any], _: Framework) -> Mapping[Route, Any]:
    return settings


def _parse_override(word: str, framework: Framework) -> Mapping[Route, Any]:
    return framework.launch_interface.parse_settings((word,))


def _read_configs(workspace: Workspace, path: str) -> list[Config]:
    """Return the configs of a file, or an empty list if it cannot be read (the lint reports that)."""
    try:
        return workspace.read_configs(path)
    except Exception:
        return []


def _find_refusal(config: Config, read: ReadOverride) -> str | None:
    """Return why a config rejects an override, or None if it accepts it or cannot be judged.

    The reason is empty if the config's framework does not have the key.
    """
    framework = frameworks.load(config.framework)
    keys = framework.keys
    if keys is None or not keys.is_checked or not config.evidence.is_upstream:
        return None  # the accepted keys are unknown
    vocabulary, context = keys.vocabulary, keys.build_context(config)
    if vocabulary.is_open((), vocabulary.newest, context):
        return None
    try:
        ((route, value),) = read(framework).items()
    except ValueError:
        return None  # the lint reports it
    if any(str(part).isdigit() for part in route):
        return None  # the route addresses an item of a list
    facts = find_facts(vocabulary, format_route(route), context)
    if not facts:
        return ""
    refusals = [_find_unfit_value(framework, fact, value) for fact in facts.values()]
    return None if None in refusals else refusals[0]


def _find_unfit_value(framework: Framework, fact: KeyFact, value: Any) -> str | None:
    """Return a message with the values that a key accepts if `value` is not among them, or None."""
    assert framework.keys is not None
    if fact.is_open or fact.alternatives or fact.resolve_status().kind != PRESENT:
        return None
    schema = framework.keys.extract_enforced(fact.get_schema(), fact.name)
    if schema is None:
        return None
    accepted = framework.keys.is_accepted(schema, value)
    is_fitting = is_accepted(schema, value, framework.loader) if accepted is None else accepted
    return None if is_fitting else f"{framework.title} expects {describe_expected(schema)} for `{fact.name}`"
