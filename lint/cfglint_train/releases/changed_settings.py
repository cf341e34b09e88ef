"""Settings whose values differ between two configs of one framework, whether the plan has a field for them or not."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_schemas.fact import KeyFact
from cfglint_train.documents.document import MISSING, Route, Unknown
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.framework import get_keys, load
from cfglint_train.frameworks.lens import Config, format_route
from cfglint_train.plan.reading import is_equal
from cfglint_train.releases.changed_keys import find_successor

_NUMERIC_KINDS: Final = frozenset(("int", "float"))


class ChangedSetting(Frozen):
    """A setting with its values in both configs: as written, or by default, or MISSING if it has none."""

    route: Route
    before: Any
    after: Any


def compare_settings(before: Config, after: Config) -> Iterator[ChangedSetting]:
    """Yield the settings below the root whose values differ, and not only in how they are written.

    A renamed setting is compared with its successor, and an unset one counts with its default, if that is known.
    """
    changed = dict(_compare_values((), before.get_value(), after.get_value(), (before, after)))
    for route in list(changed):
        successor = find_successor(after, route) if changed[route][1] is MISSING else None
        if successor is not None and successor != route and successor in changed and changed[successor][0] is MISSING:
            changed[successor] = (changed.pop(route)[0], changed[successor][1])
    for route, (old, new) in changed.items():
        values = [_resolve(config, route, value) for config, value in ((before, old), (after, new))]
        if not _is_equal(values[0], values[1], _list_kinds(after, route)):
            yield ChangedSetting(route, *values)


def _compare_values(
    route: Route, old: Any, new: Any, configs: tuple[Config, Config]
) -> Iterator[tuple[Route, tuple[Any, Any]]]:
    """Yield the innermost values that differ; lists of different lengths are compared as a whole."""
    before, after = ({} if value is MISSING or value is None else value for value in (old, new))
    if isinstance(before, dict) and isinstance(after, dict) and (before or after):
        for name in {**before, **after}:
            yield from _compare_values((*route, name), before.get(name, MISSING), after.get(name, MISSING), configs)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (left, right) in enumerate(zip(old, new)):
            yield from _compare_values((*route, number), left, right, configs)
    elif isinstance(old, Unknown) and isinstance(new, Unknown):
        texts = [read_text(config, route, value) for config, value in zip(configs, (old, new))]
        if texts[0] != texts[1]:
            yield route, (old, new)
    elif not is_equal(old, new) or isinstance(old, bool) is not isinstance(new, bool):
        yield route, (old, new)


def read_text(config: Config, route: Route, value: Unknown) -> str:
    """Return a value that cannot be determined as it is written, or else what it depends on."""
    node = config.get_node(*route) if config.find_override(route) is None else None
    if node is None:
        return value.path or value.reason
    return config.document.source[node.span.start : node.span.end].decode("utf-8", "replace")


def _resolve(config: Config, route: Route, value: Any) -> Any:
    """Return the value that applies: interpolated if the framework does so, or the default."""
    keys = load(config.framework).key_lookup
    if isinstance(value, str) and "${" in value:
        resolved = keys.resolve_setting(config, format_route(route))
        return value if isinstance(resolved, Unknown) else resolved
    if value is not MISSING or not keys.is_complete(config):
        return value
    resolved = keys.resolve_setting(config, format_route(route))
    if resolved is not MISSING and resolved is not None and not isinstance(resolved, Unknown):
        return resolved
    fact = _find_fact(config, route)
    schema = {} if fact is None or fact.resolve_status().kind != "present" else fact.get_schema()
    default = None if "x-computed" in schema or "x-interpolation" in schema else schema.get("default")
    return MISSING if default is None else default


def _find_fact(config: Config, route: Route) -> KeyFact | None:
    keys = get_keys(config)
    if keys is None or isinstance(route[-1], int):
        return None
    return keys.get_vocabulary(config).find_fact(route, config.release, keys.build_context(config))


def _list_kinds(config: Config, route: Route) -> frozenset[str]:
    fact = _find_fact(config, route)
    return frozenset() if fact is None else frozenset(kind.name for kind in fact.list_kinds())


def _is_equal(old: Any, new: Any, kinds: frozenset[str]) -> bool:
    """Return whether two values mean the same; null counts as unset, and text as the number that the key takes."""
    if all(value is MISSING or value is None or value in ({}, []) for value in (old, new)):
        return True
    if isinstance(old, Unknown) or isinstance(new, Unknown):
        return False
    left, right = (_convert_text(value, kinds) for value in (old, new))
    return is_equal(left, right) and isinstance(left, bool) is isinstance(right, bool)


def _convert_text(value: Any, kinds: frozenset[str]) -> Any:
    if not isinstance(value, str):
        return value
    if "bool" in kinds and value.lower() in ("true", "false"):
        return value.lower() == "true"
    try:
        return float(value) if kinds & _NUMERIC_KINDS else value
    except ValueError:
        return value
