"""Static walk over a Python script: the values that it computes, as far as they can be determined.

The walk follows assignments, calls of the script's own functions, keyword arguments, and arithmetic on known numbers.
Every value records the steps that led to it (`Step`); a value that cannot be determined is `Unknown`. Neither the
script nor its imports are executed, and the walk stops after a bounded number of steps.
"""

from __future__ import annotations

import ast

from cfglint_train.documents.python.script import PythonScript
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
        """Walk the whole module, including its `__main__` block."""
        try:
            self.walk_block(self.document.module.body, self.module)
        except (BudgetError, RecursionError):
            self.is_exhausted = True

    def enter_function(self, function: Function) -> Any:
        """Call a function of the script with unknown arguments and return its result."""
        return self.try_call(function, Arguments(is_complete=False), self.document.module.body[0])

    def try_call(self, target: Any, arguments: Arguments, node: ast.Call | ast.stmt) -> Any:
        """Return the result of a call, or None if the budget runs out."""
        try:
            return self.apply_call(target, arguments, node)
        except (BudgetError, RecursionError):
            self.is_exhausted = True
            return None

    def walk_block(self, body: list[ast.stmt], scope: Scope) -> BlockEnd | None:
        """Walk statements in order. Return their early end, or None if they run to the end of the block."""
        return statements.walk_block(self, body, scope)

    def evaluate(self, node: ast.expr, scope: Scope) -> Any:
        """Return the value of an expression; unknown if expressions are nested too deeply."""
        self.spend_steps()
        if self.depth >= MAX_DEPTH:
            return self.build_unknown(node)
        self.depth += 1
        try:
            return expressions.evaluate_expression(self, node, scope)
        finally:
            self.depth -= 1

    def apply_call(self, target: Any, arguments: Arguments, node: ast.Call | ast.stmt) -> Any:
        """Return the result of calling `target` with `arguments`."""
        return calls.apply_call(self, target, arguments, node)

    def build_walk(self, document: PythonScript) -> Walk:
        """Return a walk of the same kind over another module, which has not run yet."""
        return type(self)(document, self.handlers, self.methods, self.fields, self.constant)

    def find_changes(self, function: External, argument: int | str, value: Record) -> frozenset[str] | None:
        """Return the attributes that a function of another module may set on an argument, or None if it may set any.

        Only modules in the repository are read.
        """
        return find_changes(self.document, function.name, argument)

    def build_options(self, node: ast.expr) -> ParsedOptions:
        """Return the namespace that argparse produces if no option is passed."""
        return options.build_options(self, node)
