"""Mending of texts that do not parse while they are typed: the lines that break them become blank.

Blank lines keep the offsets of all other characters.
"""

from __future__ import annotations

import re

import yaml

from cfglint_train.foundation.typed import Final

MARKER: Final = "cfglintcursor"
"""Name that stands for the word at the cursor while its place in the tree is searched."""

_MAX_PASSES: Final = 8
"""Number of lines that are left out because the text does not parse with them, although each is valid alone."""

_LOADER: Final = getattr(yaml, "CLoader", yaml.Loader)


def blank_broken_lines(syntax: str | None, text: str) -> str | None:
    """Return a text in which the lines that break it are blank, or None if that cannot mend it.

    The line with `MARKER` stays; a text that breaks there is not mended.
    """
    if syntax not in ("yaml", "json"):
        return None
    lines = text.split("\n")
    is_json = syntax == "json"
    is_complete = _is_complete_json if is_json else _is_complete_yaml
    for number, line in enumerate(lines):
        if MARKER not in line and not is_complete(line):
            lines[number] = " " * len(line)
    for _ in range(0 if is_json else _MAX_PASSES):
        broken = _find_broken_line("\n".join(lines))
        if broken is None:
            break
        if broken >= len(lines) or MARKER in lines[broken] or not lines[broken].strip():
            return None
        lines[broken] = " " * len(lines[broken])
    return "\n".join(lines)


def _is_complete_json(line: str) -> bool:
    """Return whether a line is more than a key, or an unfinished one."""
    return re.fullmatch(r'\s*"[^"]*("\s*(:\s*,?\s*)?)?', line) is None


def _is_complete_yaml(line: str) -> bool:
    """Return whether a line is blank, starts a document, or has a key or an item when it is read alone."""
    try:
        events = list(yaml.parse(line, _LOADER))
    except (yaml.YAMLError, UnicodeError):
        return False
    return len(events) == 2 or any(
        isinstance(event, yaml.CollectionStartEvent) or (isinstance(event, yaml.DocumentStartEvent) and event.explicit)
        for event in events
    )


def _find_broken_line(text: str) -> int | None:
    """Return the number of the line at which YAML stops, from 0, or None if the text parses."""
    try:
        for _ in yaml.parse(text, _LOADER):
            pass
    except yaml.MarkedYAMLError as error:
        return 0 if error.problem_mark is None else int(error.problem_mark.line)
    except (yaml.YAMLError, UnicodeError):
        return 0
    return None
