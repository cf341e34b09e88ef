"""Settings that mean something else in another release: changed defaults of unset ones, changed states of set ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_schemas.fact import KeyFact
from cfglint_schemas.status import Context, split_route
from cfglint_schemas.vocabulary import Vocabulary
from cfglint_train.documents.document import Route
from cfglint_train.foundation.typed import Any
from cfglint_train.frameworks.framework import get_keys
from cfglint_train.frameworks.keys import Keys
from cfglint_train.frameworks.lens import Config, format_route


def list_changed_keys(before: Config, after: Config) -> tuple[str, ...]:
    """Return the settings whose meaning differs between the releases of two configs of one framework.

    They are set in both and only one release reads them, or unset in both and their default differs.
    """
    keys = get_keys(after)
    if keys is None or before.framework != after.framework or before.release == after.release:
        return ()
    old_context, new_context = _build_context(keys, before), _build_context(keys, after)
    common = (keys.list_given_names(before) or set()) & (keys.list_given_names(after) or set())
    changed = [
        name
        for name in sorted(common)
        if _find_state(keys, name, before.release, old_context) != _find_state(keys, name, after.release, new_context)
    ]
    return (*changed, *(name for name, _, _ in compare_defaults(before, after)))


def _find_state(keys: Keys, name: str, release: str, context: Context) -> str:
    fact = keys.vocabulary.find_fact((name,), release, context)
    return "unknown" if fact is None else fact.resolve_status().kind


def compare_defaults(before: Config, after: Config, targets: Mapping[str, str] = {}) -> Iterator[tuple[str, Any, Any]]:
    """Yield the new key of each unset setting whose default changes, with the old and the new default.

    `targets`: releases by package that replace those of `after`.
    """
    keys = get_keys(after)
    if keys is None:
        return
    vocabulary = keys.vocabulary
    old_context, new_context = _build_context(keys, before), _build_context(keys, after, targets)
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


def find_successor(config: Config, route: Route) -> Route | None:
    """Return the route of a setting in the release of a config, also of a renamed one, or None if there is none."""
    keys = get_keys(config)
    if keys is None:
        return None
    fact = _find_successor(keys.vocabulary, route, config.release, _build_context(keys, config))
    return None if fact is None else fact.route


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


def _build_context(keys: Keys, config: Config, targets: Mapping[str, str] = {}) -> Context:
    """Return the context of a config: its entry point and companion release, without plugins and other settings."""
    package = keys.manifest.companion_package
    release = None if package is None else config.releases.get(package)
    if package is not None:
        release = targets.get(package, release)
    entry = keys.build_context(config).entry
    return Context(entry=entry, releases={} if release is None or package is None else {package: release})
