"""What a Python script computes, as far as that can be determined without running it.

An abstract walk over the script: assignments, calls of the script's own functions, keyword arguments, arithmetic on
known numbers. Every value remembers the way that led to it (`Step`), and what cannot be determined is `Unknown`.
Nothing of the script or of what it imports is executed, and the walk ends after a bounded number of steps.
"""

from __future__ import annotations

import ast

from cfglint_train.documents.python.static import calls, expressions, options, statements
from cfglint_train.documents.python.static.evaluator import BlockEnd, BudgetError, Evaluator
from cfglint_train.documents.python.static.modules import find_changes
from cfglint_train.documents.python.tree import Record
from cfglint_train.documents.python.values import Arguments, External, Function, ParsedOptions, Scope
from cfglint_train.foundation.typed import Any, Final

MAX_DEPTH: Final = 100


class Walk(Evaluator):
    """A walk over one script."""

    def run(self) -> None:
        """Walk the whole module, its main part included."""
        try:
            self.walk_block(self.document.module.body, self.module)
        except (BudgetError, RecursionError):
            self.is_exhausted = True

    def enter_function(self, function: Function) -> Any:
        """Call a function of the script with nothing known about its arguments."""
        return self.try_call(function, Arguments(is_complete=False), self.document.module.body[0])

    def try_call(self, target: Any, arguments: Arguments, node: ast.Call | ast.stmt) -> Any:
        """What a call yields; None where following it is too much."""
        try:
            return self.apply_call(target, arguments, node)
        except (BudgetError, RecursionError):
            self.is_exhausted = True
            return None

    def walk_block(self, body: list[ast.stmt], scope: Scope) -> BlockEnd | None:
        """As in the base class."""
        return statements.walk_block(self, body, scope)

    def evaluate(self, node: ast.expr, scope: Scope) -> Any:
        """As in the base class."""
        self.spend_steps()
        if self.depth >= MAX_DEPTH:
            return self.build_unknown(node)
        self.depth += 1
        try:
            return expressions.evaluate_expression(self, node, scope)
        finally:
            self.depth -= 1

    def apply_call(self, target: Any, arguments: Arguments, node: ast.Call | ast.stmt) -> Any:
        """As in the base class."""
        return calls.apply_call(self, target, arguments, node)

    def find_changes(self, function: External, argument: int | str, value: Record) -> frozenset[str] | None:
        """As in the base class, by the modules of the repository."""
        return find_changes(self.document, function.name, argument)

    def build_options(self, node: ast.expr) -> ParsedOptions:
        """As in the base class."""
        return options.build_options(self, node)
