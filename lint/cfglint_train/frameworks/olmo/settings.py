"""How OLMo's settings are looked up: interpolations resolved, absent keys with their defaults."""

from __future__ import annotations

from collections.abc import Callable

from cfglint_train.documents.document import Change, Route, Set
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.versions import Since
from cfglint_train.frameworks.codec import Codec
from cfglint_train.frameworks.interpolation import look
from cfglint_train.frameworks.lens import Config, default_at, granted, refuse_override
from cfglint_train.frameworks.lens_types import ABSENT, NOT_STATED, Found, Key, Stated, looking
from cfglint_train.frameworks.olmo.defaults import DEFAULTS
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin


def find(config: Config, route: Route) -> Found:
    """What a setting states, interpolations resolved."""
    return look(config, route, DEFAULTS)


_ACCESS: Final = looking(find)


def route_of(name: str) -> Route:
    """`a.b.c` as a route."""
    return tuple(name.split("."))


def setting(
    field: Field,
    name: str,
    codec: Codec,
    null: Any = ABSENT,
    beside: tuple[str, ...] = (),
    applies: Callable[[Config], bool] | None = None,
) -> Key:
    """A lens whose default is the framework's own, read by the lens's own codec."""
    route = route_of(name)
    raw = DEFAULTS[route]
    if isinstance(raw, Since):
        default: Any = Since(tuple((first, _decoded(codec, value, null)) for first, value in raw.steps))
    else:
        default = _decoded(codec, raw, null)
    return Key(field, (route,), codec, default, null, beside, _ACCESS, applies)


def _decoded(codec: Codec, raw: Any, null: Any) -> Any:
    return null if raw is None else codec.read(raw)


def value_of(config: Config, name: str, codec: Codec) -> tuple[Any, Origin]:
    """A setting with its origin: None where it is null, unknown or nothing that OLMo takes."""
    route = route_of(name)
    found = find(config, route)
    if isinstance(found, Stated):
        return (None if found.value is None else codec.readable(found.value)), found.origin
    if found is NOT_STATED and route in DEFAULTS:
        raw = default_at(config, DEFAULTS[route])
        return (None if raw is None else codec.read(raw)), granted(config, route)
    return None, granted(config, route)


def is_known(config: Config, name: str) -> bool:
    """Whether the value of a setting (or its default) can be determined."""
    found = find(config, route_of(name))
    return isinstance(found, Stated) or found is NOT_STATED


def write_one(config: Config, name: str, value: Any, beside: tuple[str, ...] = ()) -> list[Change]:
    """Set one key."""
    route = route_of(name)
    refuse_override(config, route)
    return [Set(config.root + route, value, beside)]
