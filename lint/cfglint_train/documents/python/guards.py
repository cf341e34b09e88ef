"""Code that runs only with some releases of a library: behind a comparison of its version, behind a look at what a
class takes, or in a `try` that catches the TypeError of an argument that is unknown.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from cfglint_train.documents.document import Span
from cfglint_train.documents.python.script import PythonScript
from cfglint_train.foundation.typed import Final

_ASKS: Final = re.compile(
    r"__version__|\bVersion\(|\bversion\.parse\(|\bversion\(|\bsignature\(|__dataclass_fields__|co_varnames"
    r"|\bfields\(|\bhasattr\(\s*(?:\w+\.)*[A-Z]\w*\s*,"
)


def is_guarded(script: PythonScript, span: Span) -> bool:
    """Whether what stands at a span runs only with some releases of a library."""
    return any(found.start <= span.start < found.end for found in _guarded(script))


def _guarded(script: PythonScript) -> Iterator[Span]:
    for chosen in script.nodes(ast.If):
        if _asks(script, chosen.test):
            yield from (script.span(one) for one in (*chosen.body, *chosen.orelse))
    for either in script.nodes(ast.IfExp):
        if _asks(script, either.test):
            yield from (script.span(either.body), script.span(either.orelse))
    for tried in script.nodes(ast.Try):
        if any("TypeError" in _words(one.type) for one in tried.handlers):
            handled = (statement for one in tried.handlers for statement in one.body)
            yield from (script.span(one) for one in (*tried.body, *handled))


def _asks(script: PythonScript, test: ast.expr) -> bool:
    """Whether a condition asks for a release, itself or by a variable that it names."""
    if _ASKS.search(script.text(script.span(test))) is not None:
        return True
    named = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
    return any(
        _ASKS.search(script.text(script.span(assigned.value))) is not None
        for assigned in script.nodes(ast.Assign)
        if any(isinstance(target, ast.Name) and target.id in named for target in assigned.targets)
    )


def _words(node: ast.expr | None) -> set[str]:
    """The names in an expression."""
    return set() if node is None else {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
