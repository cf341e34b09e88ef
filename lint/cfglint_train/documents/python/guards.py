"""Code that runs only with some releases of a library: behind a comparison of its version, behind a look at what a
class takes, or in a `try` that catches the TypeError of an argument that is unknown, and goes on.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from cfglint_train.documents.document import Span
from cfglint_train.documents.python.script import PythonScript
from cfglint_train.documents.python.syntax import get_callee_name
from cfglint_train.foundation.typed import Final

_VERSION_CHECK: Final = re.compile(
    r"__version__|\bVersion\(|\bversion\.parse\(|\bversion\(|\bsignature\(|__dataclass_fields__|co_varnames"
    r"|\bfields\(|\bhasattr\(\s*(?:\w+\.)*[A-Z]\w*\s*,"
)

_BASE_EXCEPTIONS: Final = frozenset(("BaseException", "Exception"))


def is_guarded(script: PythonScript, span: Span) -> bool:
    """Whether what stands at a span runs only with some releases of a library."""

    def has_span(parts: Iterable[ast.expr | ast.stmt]) -> bool:
        return any(part_span.start <= span.start < part_span.end for part_span in map(script.find_span, parts))

    # What may be guarded is looked for first: few conditions stand around a setting.
    return (
        any(
            has_span((*node.body, *node.orelse)) and _is_version_check(script, node.test)
            for node in script.list_nodes(ast.If)
        )
        or any(
            has_span((node.body, node.orelse)) and _is_version_check(script, node.test)
            for node in script.list_nodes(ast.IfExp)
        )
        or any(
            has_span(statement for case in node.cases for statement in case.body)
            and _is_version_check(script, node.subject)
            for node in (script.list_nodes(ast.Match) if hasattr(ast, "Match") else ())
        )
        or any(
            has_span((*node.body, *(statement for handler in node.handlers for statement in handler.body)))
            or has_span(_find_unpacked(script, node))
            for node in script.list_nodes(ast.Try)
            if any(_can_recover(node, handler) for handler in node.handlers)
        )
    )


def _can_recover(tried: ast.Try, handler: ast.ExceptHandler) -> bool:
    """Whether a handler catches a TypeError and does not end the program; one of any error calls the same again."""
    if isinstance(handler.body[-1], ast.Raise):
        return False
    if "TypeError" in _list_names(handler.type):
        return True
    is_catch_all = handler.type is None or not _BASE_EXCEPTIONS.isdisjoint(_list_names(handler.type))
    return is_catch_all and not _list_called_classes(tried.body).isdisjoint(_list_called_classes(handler.body))


def _list_called_classes(body: list[ast.stmt]) -> set[str]:
    """The names of the classes that statements call."""
    calls = (node for statement in body for node in ast.walk(statement) if isinstance(node, ast.Call))
    return {name for name in map(get_callee_name, calls) if name[:1].isupper()}


def _find_unpacked(script: PythonScript, tried: ast.Try) -> list[ast.expr]:
    """What the script assigns to the dictionaries that calls in a `try` unpack: `SFTConfig(**settings)`."""
    unpacked = (node.value for statement in tried.body for node in ast.walk(statement)
             if isinstance(node, ast.keyword) and node.arg is None)  # fmt: skip
    names = {node.id for node in unpacked if isinstance(node, ast.Name)}
    return [assignment.value for assignment in script.list_nodes(ast.Assign)
            if any(isinstance(target, ast.Name) and target.id in names for target in assignment.targets)]  # fmt: skip


def _is_version_check(script: PythonScript, test: ast.expr) -> bool:
    """Whether a condition asks for a release, itself or by a variable that it names."""
    if _VERSION_CHECK.search(script.get_text(script.find_span(test))) is not None:
        return True
    names = _list_names(test)
    return any(
        _VERSION_CHECK.search(script.get_text(script.find_span(assignment.value))) is not None
        for assignment in script.list_nodes(ast.Assign)
        if any(isinstance(target, ast.Name) and target.id in names for target in assignment.targets)
    )


def _list_names(node: ast.expr | None) -> set[str]:
    """The names in an expression."""
    return set() if node is None else {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
