"""Positions of settings in their file, computed only for error messages because the TOML parser keeps none."""

from __future__ import annotations

import re
import tomllib

from cfglint_train.foundation.credentials import shorten
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final

_MAX_READINGS: Final = 200
"""Maximum number of prefixes of a file that are parsed before the search gives up."""
_MAX_LINE: Final = 120
"""Maximum number of characters of a line that are shown."""
_STEP: Final = compile_on_use(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\[\d+\]|[^.\[\]]+")

Route = tuple[str | int, ...]


class SettingPosition(Frozen):
    """A position in a settings file, with the text of the line and a marker line below it."""

    line: int
    column: int
    frame: tuple[str, ...]


def build_position(text: str, line: int, column: int, width: int = 1) -> SettingPosition:
    """Return a position with its line, shortened, and a marker that is `width` characters wide."""
    lines = text.split("\n")
    excerpt = shorten(lines[line - 1].rstrip("\r").expandtabs(1), _MAX_LINE) if line <= len(lines) else ""
    marks = "^" * max(1, min(width, len(excerpt) - column + 1))
    return SettingPosition(line, column, (f"{line:>4} | {excerpt}", f"     | {' ' * (column - 1)}{marks}"))


def find_key(text: str, key: str) -> SettingPosition | None:
    """Find a setting by its name in messages (`overrides[0].hardware.gpu`), as `find_route` does."""
    return find_route(text, tuple(map(_parse_step, _STEP.findall(key))))


def find_route(text: str, route: Route) -> SettingPosition | None:
    """Find a setting or, if it is missing, the innermost table around it; return None if neither can be found."""
    while route and not _has_route(_parse(text), route):
        route = route[:-1]
    number = _find_line(text, route) if route else None
    if number is None:
        return None
    line = text.split("\n")[number - 1]
    start, width = len(line) - len(line.lstrip()), 1
    end = start
    for step in route:
        match = re.compile(rf"(?<![\w-])[\"']?{re.escape(str(step))}[\"']?(?![\w-])").search(line, end)
        if match is not None and isinstance(step, str):
            start, end = match.span()
            width = end - start
    return build_position(text, number, start + 1, width)


def _parse_step(text: str) -> str | int:
    if text.startswith("["):
        return int(text[1:-1])
    return text[1:-1] if text[0] in "'\"" else text


def _find_line(text: str, route: Route) -> int | None:
    """Return the number of the first line of a setting, or None if the search takes too long.

    It is the line after the longest prefix of the file that parses and lacks the setting.
    """
    lines = text.split("\n")
    lines_without, lines_with = 0, len(lines)
    readings_left = _MAX_READINGS
    middle = lines_with // 2
    while lines_without < middle < lines_with:
        table = None
        for end in (*range(middle, lines_without, -1), *range(middle + 1, lines_with)):
            readings_left -= 1
            if readings_left < 0:
                return None
            table = _parse("\n".join(lines[:end]))
            if table is not None:
                lines_without, lines_with = (lines_without, end) if _has_route(table, route) else (end, lines_with)
                break
        if table is None:
            break
        middle = (lines_without + lines_with) // 2
    return lines_without + 1


def _parse(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return None


def _has_route(table: Any, route: Route) -> bool:
    for step in route:
        try:
            table = table[step]
        except (KeyError, IndexError, TypeError):
            return False
    return True
