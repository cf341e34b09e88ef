"""What a Python script computes, as far as that can be determined without running it.

An abstract walk over the script: assignments, calls of the script's own functions, keyword arguments, arithmetic on
known numbers. Every value remembers the way that led to it (`Step`), and what cannot be determined is `Unknown`.
Nothing of the script or of what it imports is executed, and the walk ends after a bounded number of steps.
"""

from __future__ import annotations

import ast

from cfglint_train.documents.python.static import calls, expressions, options, statements
from cfglint_train.documents.python.static.evaluator import Evaluator, SpentError, Stop
from cfglint_train.documents.python.static.modules import changes
from cfglint_train.documents.python.tree import Record
from cfglint_train.documents.python.values import Arguments, External, Function, Options, Scope
from cfglint_train.foundation.typed import Any, Final

MAX_DEPTH: Final = 100


class Walk(Evaluator):
    """A walk over one script."""

    def run(self) -> None:
        """Walk the whole module, its main part included."""
        try:
            self.block(self.document.module.body, self.module)
        except (SpentError, RecursionError):
            self.spent = True

    def enter(self, function: Function) -> Any:
        """Call a function of the script with nothing known about its arguments."""
        return self.attempt(function, Arguments(complete=False), self.document.module.body[0])

    def attempt(self, target: Any, arguments: Arguments, node: ast.Call | ast.stmt) -> Any:
        """What a call yields; None where following it is too much."""
        try:
            return self.apply(target, arguments, node)
        except (SpentError, RecursionError):
            self.spent = True
            return None

    def block(self, body: list[ast.stmt], scope: Scope) -> Stop | None:
        """As in the base class."""
        return statements.block(self, body, scope)

    def value(self, node: ast.expr, scope: Scope) -> Any:
        """As in the base class."""
        self.step()
        if self.depth >= MAX_DEPTH:
            return self.unknown(node)
        self.depth += 1
        try:
            return expressions.value_of(self, node, scope)
        finally:
            self.depth -= 1

    def apply(self, target: Any, arguments: Arguments, node: ast.Call | ast.stmt) -> Any:
        """As in the base class."""
        return calls.apply(self, target, arguments, node)

    def changes(self, function: External, place: int | str, given: Record) -> frozenset[str] | None:
        """As in the base class, by the modules of the repository."""
        return changes(self.document, function.name, place)

    def options(self, node: ast.expr) -> Options:
        """As in the base class."""
        return options.options(self, node)
