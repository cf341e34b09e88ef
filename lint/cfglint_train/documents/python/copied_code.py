"""What the code of a copy of a framework asks of its settings: in asserts, before it raises, and in its branches.

And what its functions pass on to others.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Collection, Iterable, Iterator

from cfglint_train.documents.python.syntax import callee, tree_of
from cfglint_train.foundation import regular_files
from cfglint_train.foundation.typed import Final

MAX_READ: Final = 8 * 2**20
"""Bytes of the files that are looked at."""


class CopiedCode:
    """The Python files below a folder, read when something is first asked of them."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._texts: dict[str, bytes] | None = None
        self._conditions: dict[str, list[tuple[frozenset[str], bool]]] = {}
        self._answers: dict[tuple[frozenset[str], bool], bool] = {}
        self._given: dict[tuple[str, str, str], frozenset[object] | None] = {}

    def asks(self, words: Collection[str], stops: bool) -> bool:
        """Whether one condition has all of some words: the names of settings, and the values that they are compared
        with. `stops`: that of an assert, or one under which something is raised.
        """
        question = (frozenset(words), stops)
        if question not in self._answers:
            self._answers[question] = bool(words) and self._asks(*question)
        return self._answers[question]

    def passes(self, function: str, called: str, argument: str) -> frozenset[object] | None:
        """What the calls of a name in a function give for an argument by keyword: constants, and None where a call
        gives no constant or nothing. None where no such call is found.
        """
        question = (function, called, argument)
        if question not in self._given:
            texts = [text for text in self._files().values() if b"def " + function.encode() in text]
            calls = [call for text in texts for call in _calls(text, function, called)]
            self._given[question] = frozenset(_constant(call, argument) for call in calls) if calls else None
        return self._given[question]

    def _files(self) -> dict[str, bytes]:
        if self._texts is None:
            self._texts = dict(_read(self._folder))
        return self._texts

    def _asks(self, words: frozenset[str], stops: bool) -> bool:
        for path, text in self._files().items():
            if not all(word.encode("utf-8", "surrogatepass") in text for word in words):
                continue
            if path not in self._conditions:
                self._conditions[path] = _parsed(text)
            if any(words <= met and (ends or not stops) for met, ends in self._conditions[path]):
                return True
        return False


def _read(folder: str) -> Iterator[tuple[str, bytes]]:
    size = 0
    for path in _modules(folder):
        try:
            text = regular_files.read(path)
        except OSError:
            continue
        size += len(text)
        if size > MAX_READ:
            return
        yield path, text


def _parsed(text: bytes) -> list[tuple[frozenset[str], bool]]:
    try:
        return list(_conditions(_tree(text).body, frozenset()))
    except RecursionError:
        return []


def _tree(text: bytes) -> ast.Module:
    return tree_of(text.decode("utf-8-sig", "replace"))


def _calls(text: bytes, function: str, called: str) -> Iterator[ast.Call]:
    """The calls of a name, or of a method of that name, in the functions of a name."""
    for node in ast.walk(_tree(text)):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            for call in ast.walk(node):
                if isinstance(call, ast.Call) and called == callee(call):
                    yield call


def _constant(call: ast.Call, argument: str) -> object:
    given = next((one.value for one in call.keywords if one.arg == argument), None)
    return given.value if isinstance(given, ast.Constant) else None


def _modules(folder: str) -> Iterator[str]:
    for above, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if "." not in name)
        yield from (os.path.join(above, name) for name in sorted(names) if name.endswith(".py"))


def _conditions(body: Iterable[ast.stmt], above: frozenset[str]) -> Iterator[tuple[frozenset[str], bool]]:
    """The words of each condition with those of the branches that it is in, and whether the program ends by it."""
    for statement in body:
        if isinstance(statement, ast.Assert):
            yield above | _words(statement.test), True
        elif isinstance(statement, ast.Raise):
            yield above, True
        elif isinstance(statement, ast.If):
            inside = above | _words(statement.test)
            yield inside, False
            yield from _conditions(statement.body, inside)
            yield from _conditions(statement.orelse, above)
        else:
            inner = frozenset() if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) else above
            for part in ("body", "orelse", "finalbody"):
                yield from _conditions(getattr(statement, part, ()), inner)


def _words(test: ast.expr) -> frozenset[str]:
    """The names, attributes and texts in an expression."""
    found = set()
    for node in ast.walk(test):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return frozenset(found)
