"""Code that runs only with some releases of a library: behind a comparison of its version, behind a look at what a
class takes, or in a `try` that catches the TypeError of an argument that is unknown.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from cfglint_train.documents.document import Span
from cfglint_train.documents.python.script import PythonScript
from cfglint_train.foundation.typed import Final

_ASKS: Final = re.compile(
    r"__version__|\bVersion\(|\bversion\.parse\(|\bversion\(|\bsignature\(|__dataclass_fields__|co_varnames"
    r"|\bfields\(|\bhasattr\(\s*(?:\w+\.)*[A-Z]\w*\s*,"
)


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
            and any("TypeError" in _names(handler.type) for handler in one.handlers)
            for one in script.nodes(ast.Try)
        )
    )


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
