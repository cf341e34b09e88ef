"""Lookup of OLMo's settings, with interpolations resolved and defaults for absent keys."""

from __future__ import annotations

from collections.abc import Callable

from cfglint_train.documents.document import Change, Route, Set
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.versions import ValueByRelease
from cfglint_train.frameworks.codec import Codec
from cfglint_train.frameworks.interpolation import resolve_setting
from cfglint_train.frameworks.lens import Config, build_default_origin, refuse_override, resolve_default
from cfglint_train.frameworks.lens_types import ABSENT, NOT_STATED, Key, LookupResult, StatedValue, build_access
from cfglint_train.frameworks.olmo.defaults import DEFAULTS
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin


def find(config: Config, route: Route) -> LookupResult:
    """Return a setting with interpolations resolved."""
    return resolve_setting(config, route, DEFAULTS)


_ACCESS: Final = build_access(find)


def split_route(name: str) -> Route:
    """Return the route of a dotted name (`a.b.c`)."""
    return tuple(name.split("."))


def build_key(
    field: Field,
    name: str,
    codec: Codec,
    null: Any = ABSENT,
    beside: tuple[str, ...] = (),
    applies: Callable[[Config], bool] | None = None,
) -> Key:
    """Return the lens of a key with the default of OLMo's dataclass, converted by `codec`."""
    route = split_route(name)
    raw_default = DEFAULTS[route]
    if isinstance(raw_default, ValueByRelease):
        default: Any = ValueByRelease(
            tuple((release, _decode_default(codec, value, null)) for release, value in raw_default.steps)
        )
    else:
        default = _decode_default(codec, raw_default, null)
    return Key(field, (route,), codec, default, null, beside, _ACCESS, applies)


def _decode_default(codec: Codec, raw: Any, null: Any) -> Any:
    return null if raw is None else codec.read(raw)


def read_value(config: Config, name: str, codec: Codec) -> tuple[Any, Origin]:
    """Return a setting's value and origin; the value is None if it is null, unknown or invalid in OLMo."""
    route = split_route(name)
    stated = find(config, route)
    if isinstance(stated, StatedValue):
        return (None if stated.value is None else codec.read_or_none(stated.value)), stated.origin
    if stated is NOT_STATED and route in DEFAULTS:
        raw_default = resolve_default(config, DEFAULTS[route])
        return (None if raw_default is None else codec.read(raw_default)), build_default_origin(config, route)
    return None, build_default_origin(config, route)


def is_resolved(config: Config, name: str) -> bool:
    """Return whether the value of a setting, or its default, can be determined."""
    stated = find(config, split_route(name))
    return isinstance(stated, StatedValue) or stated is NOT_STATED


def write_key(config: Config, name: str, value: Any, beside: tuple[str, ...] = ()) -> list[Change]:
    """Return the change that sets one key."""
    route = split_route(name)
    refuse_override(config, route)
    return [Set(config.root + route, value, beside)]
