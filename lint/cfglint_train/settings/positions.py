"""Where a setting is in its file: looked for only where it is wrong, since the TOML reader keeps no places."""

from __future__ import annotations

import re
import tomllib

from cfglint_train.foundation.credentials import shortened
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final

_MOST_READINGS: Final = 200
"""Beginnings of a file that are read before the search is given up."""
_LONGEST: Final = 120
"""Characters of a line that are shown."""
_STEP: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\[\d+\]|[^.\[\]]+")

Route = tuple[str | int, ...]


class SettingPosition(Frozen):
    """A place in a settings file, and the line with a mark below it."""

    line: int
    column: int
    frame: tuple[str, ...]


def at(text: str, line: int, column: int, width: int = 1) -> SettingPosition:
    """A place that is known."""
    lines = text.split("\n")
    shown = shortened(lines[line - 1].rstrip("\r").expandtabs(1), _LONGEST) if line <= len(lines) else ""
    marks = "^" * max(1, min(width, len(shown) - column + 1))
    return SettingPosition(line, column, (f"{line:>4} | {shown}", f"     | {' ' * (column - 1)}{marks}"))


def of_key(text: str, key: str) -> SettingPosition | None:
    """The place of a setting by the name that messages give it: `overrides[0].hardware.gpu`."""
    return of_route(text, tuple(map(_step, _STEP.findall(key))))


def of_route(text: str, route: Route) -> SettingPosition | None:
    """The place of a setting, or of the innermost table around it that is there; None where none is."""
    while route and not _has(_read(text), route):
        route = route[:-1]
    number = _line(text, route) if route else None
    if number is None:
        return None
    line = text.split("\n")[number - 1]
    start, width = len(line) - len(line.lstrip()), 1
    end = start
    for step in route:
        found = re.compile(rf"(?<![\w-])[\"']?{re.escape(str(step))}[\"']?(?![\w-])").search(line, end)
        if found is not None and isinstance(step, str):
            start, end = found.span()
            width = end - start
    return at(text, number, start + 1, width)


def _step(text: str) -> str | int:
    if text.startswith("["):
        return int(text[1:-1])
    return text[1:-1] if text[0] in "'\"" else text


def _line(text: str, route: Route) -> int | None:
    """The first line of a setting: the file is read up to a line, and the shortest beginning that has it wins."""
    lines = text.split("\n")
    without, having = 0, len(lines)
    left = _MOST_READINGS
    middle = having // 2
    while without < middle < having:
        table = None
        for end in (*range(middle, without, -1), *range(middle + 1, having)):
            left -= 1
            if left < 0:
                return None
            table = _read("\n".join(lines[:end]))
            if table is not None:
                without, having = (without, end) if _has(table, route) else (end, having)
                break
        if table is None:
            break
        middle = (without + having) // 2
    return without + 1


def _read(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return None


def _has(table: Any, route: Route) -> bool:
    for step in route:
        try:
            table = table[step]
        except (KeyError, IndexError, TypeError):
            return False
    return True
