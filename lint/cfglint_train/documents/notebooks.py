"""The code of notebooks: their Python, and the commands of their cells, each with the lines of the file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final

MAX_MISSED: Final = 20
"""Lines of code that are not found in the text, which spells them in another way: the others follow each other."""
_SHELLS: Final = re.compile(r"%%(?:bash|sh|script\s+(?:bash|sh))\b")
_RUNS: Final = re.compile(r"%%(?:capture|time)\b")
"""What is done with a cell of Python beside running it."""
_WRITES: Final = re.compile(r"%%writefile\s+(?:-a\s+)?(\S+)")
_VARIABLE: Final = re.compile(r"(?<!\$)\{(\w+)\}")
_COMMAND: Final = re.compile(r"\s*(?:!|%(?:sx|system|run)\b|%(?=(?:conda|mamba|pip|uv)\b))")


class Notebook(Frozen):
    """The code of a notebook."""

    python: str
    commands: str
    """As a script; a cell that writes a file is a command that does."""


def read(text: str) -> Notebook | None:
    """The code of a notebook; None where it is none."""
    try:
        cells = json.loads(text)["cells"]
        code = [one["source"] for one in cells if one["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    python: list[str] = []
    commands: list[str] = []
    for lines in _placed(text, code):
        into = python
        for number, (place, line) in enumerate(lines):
            if not number and line.startswith("%%"):
                into = commands if _SHELLS.match(line) else python if _RUNS.match(line) else []
                written = _WRITES.match(line)
                _put(commands, place, f"cat > {written[1]}" if written is not None else "")
            elif into is python and _COMMAND.match(line):
                _put(commands, place, _VARIABLE.sub(r"${\1}", _COMMAND.sub("", line, count=1)))
                into = commands if line.rstrip().endswith("\\") else python
            elif into is python:
                _put(python, place, "" if line.lstrip().startswith(("%", "?")) else line)
            elif into is commands:
                _put(commands, place, line)
                shell = _SHELLS.match(lines[0][1])
                into = commands if shell or line.rstrip().endswith("\\") else python
    return Notebook("\n".join(python) + "\n", "\n".join(commands) + "\n")


def _placed(text: str, code: list[Any]) -> Iterator[list[tuple[int, str]]]:
    """The lines of each cell, each with the line of the file in which it is, or the next one that is free."""
    at, number, last, missed = 0, 0, -1, 0
    for source in code:
        found = []
        for line in source if isinstance(source, list) else str(source).splitlines(keepends=True):
            ways = (json.dumps(line)[1:-1], json.dumps(line, ensure_ascii=False)[1:-1])
            ends = [place + len(way) for way in ways if missed < MAX_MISSED and (place := text.find(way, at)) >= 0]
            missed += not ends
            end = min(ends, default=at)
            number += text.count("\n", at, end)
            at, last = end, max(last + 1, number)
            found.append((last, str(line).rstrip("\n")))
        yield found


def _put(lines: list[str], place: int, text: str) -> None:
    lines.extend([""] * (place + 1 - len(lines)))
    lines[place] = text
