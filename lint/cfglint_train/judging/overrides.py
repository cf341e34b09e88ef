"""Settings that a call passes (`--set`): a key that no framework at hand has, and a value that none takes, are refused.

A mistyped one would be silently ignored: the very mistake that cfglint is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from cfglint_rules.vocabulary.given_names import known_as, nearest
from cfglint_rules.vocabulary.values import expected, fits
from cfglint_schemas.fact import Fact
from cfglint_schemas.status import PRESENT
from cfglint_train.documents.document import Route
from cfglint_train.foundation.typed import Any
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.framework import Framework
from cfglint_train.frameworks.lens import Config, spelled
from cfglint_train.runs.statements import CommandLine
from cfglint_train.runs.workspace import Workspace

Read = Callable[[Framework], Mapping[Route, Any]]
"""A word as a framework reads it."""


def refused(workspace: Workspace, files: Iterable[str], said: CommandLine) -> tuple[str, str] | None:
    """The first of the settings that are passed which no configuration in the files can have, and why."""
    left: dict[str, Read] = dict(_words(said))
    problems: dict[str, str] = {}
    met: list[str] = []
    for path in files:
        if not left:
            return None
        for config in _configs(workspace, path):
            met.append(config.framework)
            for word, read in tuple(left.items()):
                problem = _refusal(config, read)
                if problem is None:
                    del left[word]
                else:
                    problems[word] = problem or problems.get(word, "")
    if not left or not met:
        return None
    word = next(iter(left))
    if problems[word]:
        return word, problems[word]
    titles = " or ".join(frameworks.load(name).title for name in dict.fromkeys(met))
    near = nearest(word.partition("=")[0], met)
    return word, f"no key of {titles}" + (f"; did you mean {near}?" if near else "")


def _words(said: CommandLine) -> Iterator[tuple[str, Read]]:
    for route, value in said.overrides.items():
        yield f"{spelled(route)}={value}", partial(_given, {route: value})
    for word in said.settings:
        yield word, partial(_parsed, word)


def _given(settings: Mapping[Route, Any], _: Framework) -> Mapping[Route, Any]:
    return settings


def _parsed(word: str, framework: Framework) -> Mapping[Route, Any]:
    return framework.launching.settings((word,))


def _configs(workspace: Workspace, path: str) -> list[Config]:
    """The configurations of a file; none of one that cannot be read, which the lint reports."""
    try:
        return workspace.configs_in(path)
    except Exception:
        return []


def _refusal(config: Config, read: Read) -> str | None:
    """Why a configuration cannot be given a setting: empty where it has no such key, else what the key takes."""
    framework = frameworks.load(config.framework)
    keys = framework.keys
    if keys is None or not keys.checked or not config.evidence.is_upstream:
        return None  # which settings it has is not known
    vocabulary, context = keys.vocabulary, keys.context(config)
    if vocabulary.is_open((), vocabulary.newest, context):
        return None
    try:
        ((route, value),) = read(framework).items()
    except ValueError:
        return None  # the lint reports it
    if any(str(part).isdigit() for part in route):
        return None  # it is about one item of a list
    known = known_as(vocabulary, spelled(route), context)
    if not known:
        return ""
    refusals = [_unfit(framework, fact, value) for fact in known.values()]
    return None if None in refusals else refusals[0]


def _unfit(framework: Framework, fact: Fact, value: Any) -> str | None:
    """What a key takes, where it does not take a value."""
    assert framework.keys is not None
    if fact.open or fact.others or fact.status().kind != PRESENT:
        return None
    schema = framework.keys.part(fact.schema(), fact.name)
    if schema is None:
        return None
    taken = framework.keys.takes(schema, value)
    fitting = fits(schema, value, framework.loader) if taken is None else taken
    return None if fitting else f"{framework.title} takes {expected(schema)} for `{fact.name}`"
