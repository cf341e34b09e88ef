"""Notebooks: their Python code and the commands of their cells, with the line numbers of the file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

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


class CodePlaces:
    """The columns of a notebook's code in the lines of its file, where quotes and escapes surround the code."""

    def __init__(self, text: str, code: str) -> None:
        """Use the text of the file and its code, which has the same line numbers."""
        self._lines = text.split("\n")
        self._code = code.split("\n")

    def find_column(self, line: int, column: int) -> int:
        """Return the column in the file of a column of the code; lines and columns count from 0."""
        start = self._find_start(line)
        return column if start is None else start[0] + len(start[1](self._code[line][:column]))

    def find_offset(self, line: int, column: int) -> int:
        """Return the number of bytes of code before a place in the file."""
        before = sum(len(code.encode()) + 1 for code in self._code[:line])
        start, code = self._find_start(line), self._code[line] if line < len(self._code) else ""
        if start is None:
            return before
        ends = (end for end in range(len(code)) if start[0] + len(start[1](code[:end])) >= column)
        return before + len(code[: next(ends, len(code))].encode())

    def _find_start(self, line: int) -> tuple[int, Callable[[str], str]] | None:
        """Return the column in the file at which a line of code starts, and the spelling of code in the file."""
        if line >= min(len(self._code), len(self._lines)) or not self._code[line]:
            return None
        for spell in (_spell, _spell_in_ascii):
            start = self._lines[line].find(spell(self._code[line]))
            if start >= 0:
                return start, spell
        return None


def _spell(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _spell_in_ascii(text: str) -> str:
    return json.dumps(text)[1:-1]


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
            spellings = (_spell_in_ascii(line), _spell(line))
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
