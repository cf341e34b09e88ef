"""Version guards: code that runs only with some releases of a library.

A guard is a comparison of the library's version, a check of the parameters of a class, a flag that shows whether an
import failed, or a `try` that catches the TypeError of an unknown argument and continues.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from cfglint_train.documents.document import Span
from cfglint_train.documents.python.script import PythonScript
from cfglint_train.documents.python.syntax import get_callee_name
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final

_VERSION_CHECK: Final = compile_on_use(
    r"__version__|\bVersion\(|\bversion\.parse\(|\bversion\(|\bsignature\(|__dataclass_fields__|co_varnames"
    r"|\bfields\(|\bhasattr\(\s*(?:\w+\.)*[A-Z]\w*\s*,"
)

_BASE_EXCEPTIONS: Final = frozenset(("BaseException", "Exception"))
_IMPORT_ERRORS: Final = frozenset(("ImportError", "ModuleNotFoundError"))


def is_guarded(script: PythonScript, span: Span) -> bool:
    """Return whether the code at a span runs only with some releases of a library."""

    def has_span(parts: Iterable[ast.expr | ast.stmt]) -> bool:
        return any(part_span.start <= span.start < part_span.end for part_span in map(script.find_span, parts))

    # Look for the span first, because few conditions enclose a setting.
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
    """Return whether a handler catches a TypeError and continues.

    A handler that catches everything must call the same class again.
    """
    if isinstance(handler.body[-1], ast.Raise):
        return False
    if "TypeError" in _list_names(handler.type):
        return True
    is_catch_all = handler.type is None or not _BASE_EXCEPTIONS.isdisjoint(_list_names(handler.type))
    return is_catch_all and not _list_called_classes(tried.body).isdisjoint(_list_called_classes(handler.body))


def _list_called_classes(body: list[ast.stmt]) -> set[str]:
    """Return the names of the classes that statements call, recognized by a capital first letter."""
    calls = (node for statement in body for node in ast.walk(statement) if isinstance(node, ast.Call))
    return {name for name in map(get_callee_name, calls) if name[:1].isupper()}


def _find_unpacked(script: PythonScript, tried: ast.Try) -> list[ast.expr]:
    """Return the values assigned to dictionaries that calls in a `try` unpack, as in `SFTConfig(**settings)`."""
    unpacked = (node.value for statement in tried.body for node in ast.walk(statement)
             if isinstance(node, ast.keyword) and node.arg is None)  # fmt: skip
    names = {node.id for node in unpacked if isinstance(node, ast.Name)}
    return [assignment.value for assignment in script.list_nodes(ast.Assign)
            if any(isinstance(target, ast.Name) and target.id in names for target in assignment.targets)]  # fmt: skip


def _is_version_check(script: PythonScript, test: ast.expr) -> bool:
    """Return whether a condition checks for a release, directly or through a variable."""
    if _VERSION_CHECK.search(script.get_text(script.find_span(test))) is not None:
        return True
    names = _list_names(test)
    return _is_set_by_import(script, names) or any(
        _VERSION_CHECK.search(script.get_text(script.find_span(assignment.value))) is not None
        for assignment in script.list_nodes(ast.Assign)
        if any(isinstance(target, ast.Name) and target.id in names for target in assignment.targets)
    )


def _is_set_by_import(script: PythonScript, names: set[str]) -> bool:
    """Return whether a `try` that catches a failing import assigns any of the names."""
    return any(
        isinstance(target, ast.Name) and target.id in names
        for node in script.list_nodes(ast.Try)
        if any(not _IMPORT_ERRORS.isdisjoint(_list_names(handler.type)) for handler in node.handlers)
        for statement in (*node.body, *(item for handler in node.handlers for item in handler.body))
        if isinstance(statement, ast.Assign)
        for target in statement.targets
    )


def _list_names(node: ast.expr | None) -> set[str]:
    """Return the names in an expression."""
    return set() if node is None else {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
