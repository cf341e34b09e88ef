"""Notebooks: their Python code and the commands of their cells, with the line numbers of the file."""

from __future__ import annotations

import json
from collections.abc import Iterator

from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final

MAX_MISSED: Final = 20
"""Maximum number of code lines that cannot be located because the file escapes them differently.

Once that many are missing, further lines are not searched for.
"""
_SHELL_CELL: Final = compile_on_use(r"%%(?:bash|sh|script\s+(?:bash|sh))\b")
_PYTHON_CELL: Final = compile_on_use(r"%%(?:capture|time)\b")
"""Cell magics whose cell still holds Python."""
_WRITE_CELL: Final = compile_on_use(r"%%writefile\s+(?:-a\s+)?(\S+)")
_VARIABLE: Final = compile_on_use(r"(?<!\$)\{(\w+)\}")
_COMMAND: Final = compile_on_use(r"\s*(?:!|%(?:sx|system|run)\b|%(?=(?:conda|mamba|pip|uv)\b))")

_ASSIGNED: Final = compile_on_use(r"(\s*[A-Za-z_][\w, ]*=\s*)[!%].*")
"""Assignment of a command's output or of a magic's result: `gpu = !nvidia-smi`."""
_HELP: Final = compile_on_use(r"\s*[\w.]+\?\??\s*")


class Notebook(Frozen):
    """The code of a notebook, split into Python and shell commands."""

    python: str
    commands: str
    """Commands as a script. A cell that writes a file becomes a command that writes that file."""
    cells: tuple[tuple[int, int], ...] = ()
    """First line of each cell, and the line after its last, counted from 0."""


def parse_notebook(text: str) -> Notebook | None:
    """Return the code of a notebook, or None if the text is not a notebook."""
    try:
        cells = json.loads(text)["cells"]
        code = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    python: list[str] = []
    commands: list[str] = []
    places: list[tuple[int, int]] = []
    for lines in _locate_lines(text, code):
        target = python
        if lines:
            places.append((lines[0][0], lines[-1][0] + 1))
        for number, (row, line) in enumerate(lines):
            if not number and line.startswith("%%"):
                target = commands if _SHELL_CELL.match(line) else python if _PYTHON_CELL.match(line) else []
                write_cell = _WRITE_CELL.match(line)
                _put_line(commands, row, f"cat > {write_cell[1]}" if write_cell is not None else "")
            elif target is python and _COMMAND.match(line):
                _put_line(commands, row, _VARIABLE.sub(r"${\1}", _COMMAND.sub("", line, count=1)))
                _put_line(python, row, _fill_block(line))
                target = commands if line.rstrip().endswith("\\") else python
            elif target is python:
                is_help = line.lstrip().startswith(("%", "?")) or _HELP.fullmatch(line) is not None
                _put_line(python, row, _fill_block(line) if is_help else _ASSIGNED.sub(r"\1get_ipython()", line))
            elif target is commands:
                _put_line(commands, row, line)
                shell = _SHELL_CELL.match(lines[0][1])
                target = commands if shell or line.rstrip().endswith("\\") else python
    return Notebook("\n".join(python) + "\n", "\n".join(commands) + "\n", tuple(places))


def _fill_block(line: str) -> str:
    """Return the Python statement for a line of IPython: `pass` inside a block, which must not be empty."""
    indent = line[: len(line) - len(line.lstrip())]
    return f"{indent}pass" if indent else ""


def _locate_lines(text: str, code: list[Any]) -> Iterator[list[tuple[int, str]]]:
    """Yield the lines of each cell, each with its line index in the file, or the next free index if not found."""
    at, number, last, missed = 0, 0, -1, 0
    for source in code:
        cell_lines = []
        for line in source if isinstance(source, list) else str(source).splitlines(keepends=True):
            spellings = (json.dumps(line)[1:-1], json.dumps(line, ensure_ascii=False)[1:-1])
            ends = [
                index + len(spelling)
                for spelling in spellings
                if missed < MAX_MISSED and (index := text.find(spelling, at)) >= 0
            ]
            missed += not ends
            end = min(ends, default=at)
            number += text.count("\n", at, end)
            at, last = end, max(last + 1, number)
            cell_lines.append((last, str(line).rstrip("\n")))
        yield cell_lines


def _put_line(lines: list[str], row: int, text: str) -> None:
    lines.extend([""] * (row + 1 - len(lines)))
    lines[row] = text
