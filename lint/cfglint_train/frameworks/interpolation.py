"""OmegaConf's interpolation: `${a.b}` in a value refers to another setting.

Sources: omegaconf 2.3.0 and 2.4.0 (`grammar/`, `basecontainer.py`, `resolvers/oc/`). `${oc.select:a.b,default}` is
resolved. Other resolvers (`${oc.env:HOME}`, `${path.choose:...}`) depend on the training machine; their values stay
unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from cfglint_train.documents.document import MISSING, Route, Unknown
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.dotlist import parse_value, split_key
from cfglint_train.frameworks.lens import Config, build_default_origin, format_route, resolve_default
from cfglint_train.frameworks.lens_types import NOT_STATED, UNRESOLVED, LookupResult, StatedValue

_MAX_DEPTH: Final = 20
_SELECT: Final = "oc.select:"

Defaults = Mapping[Route, Any]


def resolve_setting(config: Config, route: Route, defaults: Defaults, depth: int = 0) -> LookupResult:
    """Return the value of a setting, with interpolations resolved from the file, the overrides and `defaults`.

    Return NOT_STATED if nothing states the setting, and UNRESOLVED if an interpolation cannot be resolved.
    """
    value = config.get_value(*route)
    if value is MISSING:
        for length in range(len(route) - 1, 0, -1):
            parent = config.get_value(*route[:length])
            if parent is not MISSING:
                return (
                    NOT_STATED
                    if isinstance(parent, dict)
                    else _resolve_through_parent(config, route, length, defaults, depth)
                )
        return NOT_STATED
    if isinstance(value, str) and "${" in value:
        try:
            resolved = _InterpolatedText(config, route, defaults, depth).resolve(value)
        except (_UnresolvedError, RecursionError):
            return UNRESOLVED
        origin = config.get_origin(*route)
        target = _parse_single_path(value)
        goal = None if target is None else _resolve_path(target, route)
        if goal is not None:
            origin = origin._replace(follows=format_route(goal))
        if origin.kind == "explicit":
            origin = origin._replace(kind="inferred", note=f"interpolated: {value}")
        return StatedValue(resolved, origin)
    return StatedValue(value, config.get_origin(*route))


def _resolve_through_parent(config: Config, route: Route, length: int, defaults: Defaults, depth: int) -> LookupResult:
    """Resolve a setting below a mapping that is itself interpolated."""
    parent = config.get_value(*route[:length])
    if not isinstance(parent, str) or "${" not in parent or depth > _MAX_DEPTH:
        return UNRESOLVED
    target = _parse_single_path(parent)
    if target is None:
        return UNRESOLVED
    goal = _resolve_path(target, route[:length])
    if goal is None or not isinstance(config.get_value(*goal), (dict, str)):
        return UNRESOLVED
    return resolve_setting(config, (*goal, *route[length:]), defaults, depth + 1)


class _UnresolvedError(Exception):
    """An interpolation that resolves only on the training machine, or not at all."""


class _InterpolatedText:
    """A string with interpolations, and the setting that it belongs to."""

    def __init__(self, config: Config, route: Route, defaults: Defaults, depth: int) -> None:
        """Keep the setting that relative paths start from, and the depth of the recursion."""
        self.config = config
        self.route = route
        self.defaults = defaults
        self.depth = depth

    def resolve(self, text: str) -> Any:
        parts, _ = self.parse_parts(text, 0, closing=False)
        if len(parts) == 1:
            return parts[0]
        return "".join(self.format_part(part) for part in parts)

    def format_part(self, value: Any) -> str:
        if isinstance(value, (dict, list, Unknown)):
            raise _UnresolvedError
        return str(value)

    def parse_parts(self, text: str, index: int, closing: bool) -> tuple[list[Any], int]:
        """Return literal pieces and interpolated values up to the end or the closing brace, and the index there."""
        parts: list[Any] = []
        literal = ""
        while index < len(text):
            slashes = 0
            while text[index + slashes : index + slashes + 1] == "\\":
                slashes += 1
            if text.startswith("${", index + slashes):
                # OmegaConf's grammar: before `${`, two backslashes mean one, and a remaining one escapes the `${`.
                literal += "\\" * (slashes // 2)
                index += slashes
                if slashes % 2:
                    literal += "${"
                    index += 2
                    continue
                value, index = self.parse_node(text, index + 2)
                if literal:
                    parts.append(literal)
                    literal = ""
                parts.append(value)
            elif slashes:
                literal += "\\" * slashes
                index += slashes
            elif closing and text[index] == "}":
                break
            else:
                literal += text[index]
                index += 1
        if literal or not parts:
            parts.append(literal)
        return parts, index

    def parse_node(self, text: str, index: int) -> tuple[Any, int]:
        """Return the value of the interpolation that opens before `index`, and the index after it."""
        start = index
        depth = 0
        while index < len(text) and (depth or text[index] != "}"):
            if text.startswith("${", index):
                depth += 1
                index += 1
                if depth > _MAX_DEPTH:
                    raise _UnresolvedError
            elif text[index] == "}":
                depth -= 1
            index += 1
        if index >= len(text):
            raise _UnresolvedError
        inner = text[start:index]
        if inner.startswith(_SELECT):
            return self.select(inner.removeprefix(_SELECT)), index + 1
        bare = re.sub(r"\$\{[^{}]*\}", "", inner)
        if ":" in bare:
            raise _UnresolvedError
        pieces, _ = self.parse_parts(inner, 0, closing=False)
        path = "".join(self.format_part(piece) for piece in pieces).strip()
        goal = _resolve_path(path, self.route)
        if goal is None or self.depth >= _MAX_DEPTH:
            raise _UnresolvedError
        return self.fetch_value(goal), index + 1

    def select(self, arguments: str) -> Any:
        """Return the value of the setting that `oc.select` names, or its default if there is none."""
        path, comma, default = arguments.partition(",")
        goal = _resolve_path(path.strip(), self.route)
        if goal is None or self.depth >= _MAX_DEPTH:
            raise _UnresolvedError
        result = resolve_setting(self.config, goal, self.defaults, self.depth + 1)
        if result is not NOT_STATED or goal in self.defaults:
            return self.fetch_value(goal)
        if "${" in default:
            return self.resolve(default.strip())
        return parse_value(default.strip(), default) if comma else None

    def fetch_value(self, route: Route) -> Any:
        result = resolve_setting(self.config, route, self.defaults, self.depth + 1)
        if isinstance(result, StatedValue):
            if isinstance(result.value, (dict, list)) and "${" in str(result.value):
                raise _UnresolvedError
            return result.value
        if result is NOT_STATED and route in self.defaults:
            default = resolve_default(self.config, self.defaults[route])
            if isinstance(default, str) and "${" in default:
                return _InterpolatedText(self.config, route, self.defaults, self.depth + 1).resolve(default)
            return default
        raise _UnresolvedError


def resolve_default_setting(config: Config, route: Route, defaults: Defaults) -> LookupResult:
    """Return the default of a setting that nothing states, with interpolations resolved."""
    if route not in defaults:
        return NOT_STATED
    try:
        value = _InterpolatedText(config, route, defaults, 0).fetch_value(route)
    except (_UnresolvedError, RecursionError):
        return UNRESOLVED
    return StatedValue(value, build_default_origin(config, route))


def resolve_default_text(config: Config, route: Route, text: str, defaults: Defaults) -> Any:
    """Return a default of a setting, whatever is stated for it, with interpolations resolved, or UNRESOLVED."""
    try:
        return _InterpolatedText(config, route, defaults, 0).resolve(text)
    except (_UnresolvedError, RecursionError):
        return UNRESOLVED


_KEY: Final = compile_on_use(r"[^.\[\]{}:$\s'\"=,]+")


def _parse_single_path(text: str) -> str | None:
    """Return the path of a string that is a single interpolation and nothing else, or None."""
    match = re.fullmatch(r"\$\{\s*([^${}:]+?)\s*\}", text)
    return match.group(1) if match else None


def _resolve_path(path: str, route: Route) -> Route | None:
    """Return the route that an interpolation at `route` refers to, or None if the path is malformed."""
    dots = len(path) - len(path.lstrip("."))
    base: Route = () if dots == 0 else route[: max(0, len(route) - dots)]
    if dots > len(route):
        return None
    steps = split_key(path[dots:])
    if not steps or not all(_KEY.fullmatch(step) for step in steps):
        return None
    return (*base, *(int(step) if step.isdecimal() else step for step in steps))
