"""Commands that a Python program starts (`subprocess.run(["torchrun", "train.py"])`, `os.system("axolotl train a")`)
as a script with the lines of the program: what is not constant there is a variable without a value.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from cfglint_train.documents.python.syntax import callee, dotted, imported, tree_of
from cfglint_train.documents.python.words import Values, Word
from cfglint_train.foundation.typed import Final

_OWNERS: Final = ("subprocess", "os")
_STARTS: Final = re.compile(r"run|call|check_call|check_output|Popen|getoutput|getstatusoutput|system|popen|execv[pe]*")
_LISTS: Final = re.compile(r"execl[pe]*")
"""Functions that get each word as an argument."""
_REPLACES: Final = re.compile(r"exec[vlpe]+")
"""Functions that get the program before the words, of which the first is its name."""
MAX_CALLS: Final = 100
"""Calls of one function that are handed commands."""
_MAX_DEPTH: Final = 2
"""Functions of the program that hand a command on to each other."""


def commands(text: str) -> str:
    """The commands that a Python program starts; empty where it starts none, or is no Python."""
    try:
        return _written(sorted(_started(tree_of(text)), key=lambda words: (words[0].line, words[0].column)))
    except RecursionError:
        return ""


def _started(tree: ast.Module) -> Iterator[list[Word]]:
    """The words of each command."""
    names = imported(ast.walk(tree))
    calls = {call: _given(call, names) for call in ast.walk(tree) if isinstance(call, ast.Call)}
    starting = [given for given in calls.values() if given]
    values = Values(tree if starting else ast.Module([], []))
    others: dict[str, list[ast.Call]] = {}
    for call, given in calls.items():
        if not given:
            others.setdefault(callee(call), []).append(call)
    for given in starting:
        yield from _followed(given, others, values, _MAX_DEPTH)


def _followed(
    given: list[ast.expr], others: dict[str, list[ast.Call]], values: Values, depth: int
) -> Iterator[list[Word]]:
    """The words of a command; where a function is handed it, of what the other calls of that function start."""
    handed = values.parameter(given[0]) if len(given) == 1 and depth else None
    if handed is None:
        words = [word for one in given for word in _words(one, len(given) == 1, values)]
        if words:
            yield words
        return
    name, place, parameter = handed
    for call in others.get(name, ())[:MAX_CALLS]:
        found = [one.value for one in call.keywords if one.arg == parameter] or call.args[place : place + 1]
        if found:
            yield from _followed(found, others, values, depth - 1)


def _words(node: ast.expr, alone: bool, values: Values) -> list[Word]:
    if alone and not values.is_list(node):
        return [Word(values.text(node), node.lineno, node.col_offset)]
    return values.words(node)


def _given(call: ast.Call, names: dict[str, str]) -> list[ast.expr]:
    """What a call starts as a command; nothing for other calls."""
    owner, _, name = dotted(call.func, names).rpartition(".")
    if owner not in _OWNERS:
        return []
    if _LISTS.fullmatch(name):
        return call.args[1:]
    if not _STARTS.fullmatch(name):
        return []
    by_name = [one.value for one in call.keywords if one.arg in ("args", "cmd")]
    return (by_name or call.args[1 if _REPLACES.fullmatch(name) else 0 :])[:1]


def _written(started: list[list[Word]]) -> str:
    """A script with each word in its line, where no other command is; a command goes on in the next line."""
    lines = [""]
    for words in started:
        first = True
        for word in words:
            if word.line > len(lines):
                lines[-1] += "" if first or not lines[-1] else " \\"
                gap = word.line - len(lines)
                lines += ["" if first else "\\"] * (gap - 1) + [""]
            elif lines[-1]:
                lines[-1] += "; " if first else " "
            lines[-1] = lines[-1].ljust(word.column)
            before, *after = word.text.split("\n")
            lines[-1] += before
            lines += after
            first = False
    return "\n".join(lines) + "\n" if started else ""
