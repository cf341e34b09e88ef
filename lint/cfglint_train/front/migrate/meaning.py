"""What a run means otherwise after a migration: the plans compared, and defaults that changed under it."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_schemas.fact import Fact
from cfglint_schemas.status import Context, parts_of
from cfglint_schemas.vocabulary import Vocabulary
from cfglint_train.documents.document import Route
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.framework import keys_of
from cfglint_train.frameworks.keys import Keys
from cfglint_train.frameworks.lens import Config, spelled
from cfglint_train.front.migrate.goal import Goal
from cfglint_train.plan.reading import SPELLINGS, changed
from cfglint_train.runs.run import Run

_NONE: Final = "none"


def differences(before: Run, after: Run) -> Iterator[tuple[str, str]]:
    """Settings whose effect is another one: as they are spelled now, with a sentence."""
    for field, value in sorted(changed(before.reading, after.reading).items()):
        known = before.reading.get(field)
        if field in SPELLINGS or known is None or value is None:
            continue  # what is unknown on one side cannot be compared
        key = after.spell(field)
        yield key, f"{key}: {_shown(known)} before, {_shown(value)} now ({field})"


def defaults(before: Run, after: Run, goal: Goal) -> Iterator[tuple[str, str]]:
    """Settings that are not given and whose default changed, where it is known what the file was written for."""
    if not before.releases.assumed(goal.package(after.main.framework)):
        for name, old, new in _defaults(before.main, after.main, goal):
            yield name, f"{name} is not given: its default was {_shown(old)}, and is {_shown(new)} now"


def _defaults(before: Config, after: Config, goal: Goal) -> Iterator[tuple[str, Any, Any]]:
    """Settings that are not given and whose default changed, with both."""
    keys = keys_of(after)
    if keys is None:
        return
    known = keys.vocabulary
    old_context, new_context = _context(keys, before), _context(keys, after, goal)
    old, new = before.release, after.release
    for parent in _sections(known, old, old_context, before):
        for definition in known.definitions(parent, old, old_context):
            for fact in known.facts_of(definition, old, old_context):
                route = (*parent, fact.name)
                if fact.status().kind != "present" or before.has(*route) or fact.deprecated:
                    continue
                heir = _heir(known, route, new, new_context)
                if heir is None or after.has(*heir.route):
                    continue
                was, is_ = _default(fact, old), _default(heir, new)
                if was != is_ and was is not None and is_ is not None and type(was) is type(is_):
                    yield spelled(heir.route), was, is_


def _sections(known: Vocabulary, release: str, context: Context, config: Config) -> list[Route]:
    """The root, and the sections that the configuration has."""
    return [
        route for route in known.mappings(release, context) if not route or ("*" not in route and config.has(*route))
    ]


def _heir(known: Vocabulary, route: Route, release: str, context: Context) -> Fact | None:
    """The setting that a route is at a release, under its new name where it has one."""
    fact = known.fact(route, release, context)
    status = None if fact is None else fact.status()
    if status is None or fact is None:
        return None
    if status.kind == "present":
        return fact
    if status.kind == "renamed" and len(status.to) == 1 and not status.cases and not status.sums:
        heir = known.fact(parts_of(status.to[0]), release, context)
        return heir if heir is not None and heir.status().kind == "present" else None
    return None


def _default(fact: Fact, release: str) -> Any:
    schema = fact.schema(release)
    return None if "x-computed" in schema else schema.get("default")


def _context(keys: Keys, config: Config, goal: Goal | None = None) -> Context:
    """The entry point and the release beside; plugins and other settings stay as they are."""
    package = keys.listed.beside
    release = None if package is None else config.releases.get(package)
    if goal is not None and package is not None:
        release = goal.to.get(package, release)
    entry = keys.context(config).entry
    return Context(entry=entry, releases={} if release is None or package is None else {package: release})


def _shown(value: Any) -> str:
    if value is None:
        return _NONE
    return str(value).lower() if isinstance(value, bool) else str(value)
