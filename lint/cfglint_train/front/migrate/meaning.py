"""Changes in a run's behavior after a migration: differences between the plans, and changed defaults."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_schemas.fact import KeyFact
from cfglint_schemas.status import Context, split_route
from cfglint_schemas.vocabulary import Vocabulary
from cfglint_train.documents.document import Route
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.framework import get_keys
from cfglint_train.frameworks.keys import Keys
from cfglint_train.frameworks.lens import Config, format_route
from cfglint_train.front.migrate.goal import Goal
from cfglint_train.plan.reading import SPELLINGS, find_changed_fields
from cfglint_train.runs.run import Run

_NONE: Final = "none"


def find_differences(before: Run, after: Run) -> Iterator[tuple[str, str]]:
    """Yield the new key of each setting whose effect changes, with a sentence that describes the change."""
    for field, value in sorted(find_changed_fields(before.resolved_plan, after.resolved_plan).items()):
        old_value = before.resolved_plan.get(field)
        if field in SPELLINGS or old_value is None or value is None:
            continue  # values unknown on either side cannot be compared
        key = after.spell_key(field)
        yield key, f"{key}: {_format_value(old_value)} before, {_format_value(value)} now ({field})"


def find_changed_defaults(before: Run, after: Run, goal: Goal) -> Iterator[tuple[str, str]]:
    """Yield the new key of each unset setting whose default changes, with a sentence that describes the change.

    Yield nothing if the release that the file was written for is only assumed.
    """
    if not before.releases.is_assumed(goal.find_package(after.main.framework)):
        for name, old, new in _compare_defaults(before.main, after.main, goal):
            yield name, f"{name} is not set; its default changes from {_format_value(old)} to {_format_value(new)}"


def _compare_defaults(before: Config, after: Config, goal: Goal) -> Iterator[tuple[str, Any, Any]]:
    """Yield the new key of each unset setting whose default changes, with the old and the new default."""
    keys = get_keys(after)
    if keys is None:
        return
    vocabulary = keys.vocabulary
    old_context, new_context = _build_context(keys, before), _build_context(keys, after, goal)
    old, new = before.release, after.release
    for parent in _list_sections(vocabulary, old, old_context, before):
        for definition in vocabulary.list_definitions(parent, old, old_context):
            for fact in vocabulary.list_facts(definition, old, old_context):
                route = (*parent, fact.name)
                if fact.resolve_status().kind != "present" or before.has(*route) or fact.is_deprecated:
                    continue
                successor = _find_successor(vocabulary, route, new, new_context)
                if successor is None or after.has(*successor.route):
                    continue
                old_default, new_default = _get_default(fact, old), _get_default(successor, new)
                if (
                    old_default != new_default
                    and old_default is not None
                    and new_default is not None
                    and type(old_default) is type(new_default)
                ):
                    yield format_route(successor.route), old_default, new_default


def _list_sections(vocabulary: Vocabulary, release: str, context: Context, config: Config) -> list[Route]:
    """Return the routes of the root and of the sections that the configuration has."""
    return [
        route
        for route in vocabulary.list_mappings(release, context)
        if not route or ("*" not in route and config.has(*route))
    ]


def _find_successor(vocabulary: Vocabulary, route: Route, release: str, context: Context) -> KeyFact | None:
    """Return the setting at a route in a release, under its new name if it was renamed."""
    fact = vocabulary.find_fact(route, release, context)
    status = None if fact is None else fact.resolve_status()
    if status is None or fact is None:
        return None
    if status.kind == "present":
        return fact
    if status.kind == "renamed" and len(status.new_names) == 1 and not status.cases and not status.addends:
        successor = vocabulary.find_fact(split_route(status.new_names[0]), release, context)
        return successor if successor is not None and successor.resolve_status().kind == "present" else None
    return None


def _get_default(fact: KeyFact, release: str) -> Any:
    schema = fact.get_schema(release)
    return None if "x-computed" in schema else schema.get("default")


def _build_context(keys: Keys, config: Config, goal: Goal | None = None) -> Context:
    """Return the context of a config: its entry point and companion release, without plugins and other settings."""
    package = keys.manifest.companion_package
    release = None if package is None else config.releases.get(package)
    if goal is not None and package is not None:
        release = goal.to.get(package, release)
    entry = keys.build_context(config).entry
    return Context(entry=entry, releases={} if release is None or package is None else {package: release})


def _format_value(value: Any) -> str:
    if value is None:
        return _NONE
    return str(value).lower() if isinstance(value, bool) else str(value)
