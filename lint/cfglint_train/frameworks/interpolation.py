"""OmegaConf's interpolation: `${a.b}` in a value stands for another setting.

Sources: omegaconf 2.3.0 and 2.4.0 (`grammar/`, `basecontainer.py`). Resolvers (`${oc.env:HOME}`,
`${path.choose:...}`) look at the machine that trains; their values stay unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from cfglint_train.documents.document import MISSING, Route
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.dotlist import split_key
from cfglint_train.frameworks.lens import Config, default_at
from cfglint_train.frameworks.lens_types import NOT_STATED, UNRESOLVED, Found, Stated

_DEEPEST: Final = 20

Defaults = Mapping[Route, Any]


def look(config: Config, route: Route, defaults: Defaults, depth: int = 0) -> Found:
    """The value of a setting, with interpolations resolved against the file, the overrides and the defaults."""
    value = config.value(*route)
    if value is MISSING:
        for length in range(len(route) - 1, 0, -1):
            around = config.value(*route[:length])
            if around is not MISSING:
                return NOT_STATED if isinstance(around, dict) else _through(config, route, length, defaults, depth)
        return NOT_STATED
    if isinstance(value, str) and "${" in value:
        try:
            resolved = _Text(config, route, defaults, depth).whole(value)
        except (_UnresolvedError, RecursionError):
            return UNRESOLVED
        origin = config.origin(*route)
        if origin.kind == "explicit":
            origin = origin._replace(kind="inferred", note=f"interpolated: {value}")
        return Stated(resolved, origin)
    return Stated(value, config.origin(*route))


def _through(config: Config, route: Route, length: int, defaults: Defaults, depth: int) -> Found:
    """A setting below a mapping that is itself interpolated."""
    around = config.value(*route[:length])
    if not isinstance(around, str) or "${" not in around or depth > _DEEPEST:
        return UNRESOLVED
    target = _sole(around)
    if target is None:
        return UNRESOLVED
    goal = _absolute(target, route[:length])
    if goal is None or not isinstance(config.value(*goal), (dict, str)):
        return UNRESOLVED
    return look(config, (*goal, *route[length:]), defaults, depth + 1)


class _UnresolvedError(Exception):
    """An interpolation that only resolves where the job runs, or not at all."""


class _Text:
    """Resolves one interpolated string."""

    def __init__(self, config: Config, route: Route, defaults: Defaults, depth: int) -> None:
        self.config = config
        self.route = route
        self.defaults = defaults
        self.depth = depth

    def whole(self, text: str) -> Any:
        parts, _ = self.parts(text, 0, closing=False)
        if len(parts) == 1:
            return parts[0]
        return "".join(self.string(part) for part in parts)

    def string(self, value: Any) -> str:
        if isinstance(value, (dict, list)):
            raise _UnresolvedError
        return str(value)

    def parts(self, text: str, at: int, closing: bool) -> tuple[list[Any], int]:
        """Literal pieces and interpolated values, up to the end or to the closing brace."""
        parts: list[Any] = []
        literal = ""
        while at < len(text):
            slashes = 0
            while text[at + slashes : at + slashes + 1] == "\\":
                slashes += 1
            if text.startswith("${", at + slashes):
                # OmegaConf's grammar: before an interpolation, backslashes escape each other and then it.
                literal += "\\" * (slashes // 2)
                at += slashes
                if slashes % 2:
                    literal += "${"
                    at += 2
                    continue
                value, at = self.node(text, at + 2)
                if literal:
                    parts.append(literal)
                    literal = ""
                parts.append(value)
            elif slashes:
                literal += "\\" * slashes
                at += slashes
            elif closing and text[at] == "}":
                break
            else:
                literal += text[at]
                at += 1
        if literal or not parts:
            parts.append(literal)
        return parts, at

    def node(self, text: str, at: int) -> tuple[Any, int]:
        """The value of the interpolation whose braces open before `at`, and the index behind it."""
        start = at
        depth = 0
        while at < len(text) and (depth or text[at] != "}"):
            if text.startswith("${", at):
                depth += 1
                at += 1
                if depth > _DEEPEST:
                    raise _UnresolvedError
            elif text[at] == "}":
                depth -= 1
            at += 1
        if at >= len(text):
            raise _UnresolvedError
        inner = text[start:at]
        bare = re.sub(r"\$\{[^{}]*\}", "", inner)
        if ":" in bare:
            raise _UnresolvedError
        pieces, _ = self.parts(inner, 0, closing=False)
        path = "".join(self.string(piece) for piece in pieces).strip()
        goal = _absolute(path, self.route)
        if goal is None or self.depth >= _DEEPEST:
            raise _UnresolvedError
        return self.fetch(goal), at + 1

    def fetch(self, route: Route) -> Any:
        found = look(self.config, route, self.defaults, self.depth + 1)
        if isinstance(found, Stated):
            if isinstance(found.value, (dict, list)) and "${" in str(found.value):
                raise _UnresolvedError
            return found.value
        if found is NOT_STATED and route in self.defaults:
            return default_at(self.config, self.defaults[route])
        raise _UnresolvedError


_KEY: Final = re.compile(r"[^.\[\]{}:$\s'\"=,]+")


def _sole(text: str) -> str | None:
    """The path of a string that is one interpolation of a node and nothing else."""
    match = re.fullmatch(r"\$\{\s*([^${}:]+?)\s*\}", text)
    return match.group(1) if match else None


def _absolute(path: str, route: Route) -> Route | None:
    """The route that an interpolation at `route` points to; None where the path is malformed."""
    dots = len(path) - len(path.lstrip("."))
    base: Route = () if dots == 0 else route[: max(0, len(route) - dots)]
    if dots > len(route):
        return None
    steps = split_key(path[dots:])
    if not steps or not all(_KEY.fullmatch(step) for step in steps):
        return None
    return (*base, *(int(step) if step.isdecimal() else step for step in steps))
