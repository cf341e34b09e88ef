"""Code that runs only with some releases of a library: behind a comparison of its version, behind a look at what a
class takes, or in a `try` that catches the TypeError of an argument that is unknown, and goes on.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from cfglint_train.documents.document import Span
from cfglint_train.documents.python.script import PythonScript
from cfglint_train.documents.python.syntax import callee
from cfglint_train.foundation.typed import Final

_ASKS: Final = re.compile(
    r"__version__|\bVersion\(|\bversion\.parse\(|\bversion\(|\bsignature\(|__dataclass_fields__|co_varnames"
    r"|\bfields\(|\bhasattr\(\s*(?:\w+\.)*[A-Z]\w*\s*,"
)

_EVERY: Final = frozenset(("BaseException", "Exception"))


def is_guarded(script: PythonScript, span: Span) -> bool:
    """Whether what stands at a span runs only with some releases of a library."""

    def holds(parts: Iterable[ast.expr | ast.stmt]) -> bool:
        return any(found.start <= span.start < found.end for found in map(script.span, parts))

    # What may be guarded is looked for first: few conditions stand around a setting.
    return (
        any(holds((*one.body, *one.orelse)) and _asks(script, one.test) for one in script.nodes(ast.If))
        or any(holds((one.body, one.orelse)) and _asks(script, one.test) for one in script.nodes(ast.IfExp))
        or any(
            holds(statement for case in one.cases for statement in case.body) and _asks(script, one.subject)
            for one in (script.nodes(ast.Match) if hasattr(ast, "Match") else ())
        )
        or any(
            holds((*one.body, *(statement for handler in one.handlers for statement in handler.body)))
            or holds(_unpacked(script, one))
            for one in script.nodes(ast.Try)
            if any(_goes_on(one, handler) for handler in one.handlers)
        )
    )


def _goes_on(tried: ast.Try, handler: ast.ExceptHandler) -> bool:
    """Whether a handler catches a TypeError and does not end the program; one of any error calls the same again."""
    if isinstance(handler.body[-1], ast.Raise):
        return False
    if "TypeError" in _names(handler.type):
        return True
    every = handler.type is None or not _EVERY.isdisjoint(_names(handler.type))
    return every and not _called(tried.body).isdisjoint(_called(handler.body))


def _called(body: list[ast.stmt]) -> set[str]:
    """The names of the classes that statements call."""
    calls = (node for statement in body for node in ast.walk(statement) if isinstance(node, ast.Call))
    return {name for name in map(callee, calls) if name[:1].isupper()}


def _unpacked(script: PythonScript, tried: ast.Try) -> list[ast.expr]:
    """What the script assigns to the dictionaries that calls in a `try` unpack: `SFTConfig(**settings)`."""
    given = (node.value for statement in tried.body for node in ast.walk(statement)
             if isinstance(node, ast.keyword) and node.arg is None)  # fmt: skip
    names = {node.id for node in given if isinstance(node, ast.Name)}
    return [one.value for one in script.nodes(ast.Assign)
            if any(isinstance(target, ast.Name) and target.id in names for target in one.targets)]  # fmt: skip


def _asks(script: PythonScript, test: ast.expr) -> bool:
    """Whether a condition asks for a release, itself or by a variable that it names."""
    if _ASKS.search(script.text(script.span(test))) is not None:
        return True
    named = _names(test)
    return any(
        _ASKS.search(script.text(script.span(assigned.value))) is not None
        for assigned in script.nodes(ast.Assign)
        if any(isinstance(target, ast.Name) and target.id in named for target in assigned.targets)
    )


def _names(node: ast.expr | None) -> set[str]:
    """The names in an expression."""
    return set() if node is None else {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
