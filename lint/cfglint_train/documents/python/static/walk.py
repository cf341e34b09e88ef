"""Static walk over a Python script: the values that it computes, as far as they can be determined.

The walk follows assignments, calls of the script's own functions, keyword arguments, and arithmetic on known numbers.
Every value records the steps that led to it (`Step`); a value that cannot be determined is `Unknown`. Neither the
script nor its imports are executed, and the walk stops after a bounded number of steps.
"""

from __future__ import annotations

import ast
import re

from cfglint_train.documents.document import Entry, Node, Scalar, Sequence, Span, Unknown
from cfglint_train.documents.python.static import calls, expressions, options, statements
from cfglint_train.documents.python.static.evaluator import BlockEnd, BudgetError, Evaluator
from cfglint_train.documents.python.static.modules import find_changes, find_module_source, parse_module
from cfglint_train.documents.python.tree import Record, Step, Value
from cfglint_train.documents.python.values import Arguments, External, Function, ParsedOptions, Scope
from cfglint_train.foundation.typed import Any, Final

MAX_DEPTH: Final = 100
MAX_MODULE_DEPTH: Final = 2
"""Maximum length of a chain of modules that import their settings from each other."""
_CONSTANT: Final = re.compile("[A-Z][A-Z0-9_]+")
_LOADERS: Final = rb"safe_load|full_load|yaml\.load|json\.loads?\(|OmegaConf"


class Walk(Evaluator):
    """A walk over one script."""

    def __init__(self, *arguments: Any) -> None:
        """Start a walk that has read no other module."""
        super().__init__(*arguments)
        self._sources: dict[str, tuple[str, bytes] | None] = {}
        self._modules: dict[str, Walk | None] = {}
        self._module_depth = 0

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

    def find_changes(self, function: External, argument: int | str, value: Record) -> frozenset[str] | None:
        """Return the attributes that a function of another module may set on an argument, or None if it may set any.

        Only modules in the repository are read.
        """
        return find_changes(self.document, function.name, argument)

    def build_options(self, node: ast.expr) -> ParsedOptions:
        """Return the namespace that argparse produces if no option is passed."""
        return options.build_options(self, node)

    def read_module_value(self, target: External, span: Span) -> Any:
        """Return a constant of another module of the repository as the value at `span`, or None for any other name."""
        module, _, name = target.name.rpartition(".")
        if not _CONSTANT.fullmatch(name) or name in ("True", "False"):
            return None
        inner = self._walk_module(module, rb"(?m)^%s\b[^=\n]*=" % re.escape(name.encode()))
        value = None if inner is None else inner.module.names.get(name)
        if not isinstance(value, (Value, Record, Sequence)) or (isinstance(value, Record) and value.call is not None):
            return None
        step = None if inner is None else Step("file", name, value.span, inner.document)
        return relocate(value, span, len(self.open_conditions), step)

    def call_module_function(self, target: External, arguments: Arguments, node: ast.Call) -> Any:
        """Return the settings that a function of another module of the repository reads from a file, or None."""
        values = (*arguments.positional, *(argument.value for argument in arguments.keywords.values()))
        if not arguments.is_complete or not all(isinstance(value, Value) for value in values):
            return None
        module, _, name = target.name.rpartition(".")
        inner = self._walk_module(module, _LOADERS)
        function = None if inner is None else inner.module.names.get(name)
        if inner is None or not isinstance(function, Function):
            return None
        result = inner.try_call(function, arguments, node)
        self.awaits_file = self.awaits_file or inner.awaits_file
        if inner.is_exhausted or not isinstance(result, Record) or result.implicit or not is_from_file(result):
            return None
        return relocate(result, self.document.find_span(node), len(self.open_conditions))

    def _walk_module(self, module: str, pattern: bytes) -> Walk | None:
        """Return the walk over a module of the repository that matches a pattern, or None if there is none."""
        if not module.strip(".") or self._module_depth >= MAX_MODULE_DEPTH:
            return None
        if module not in self._sources:
            self._sources[module] = find_module_source(self.document, module)
        source = self._sources[module]
        if source is None or not re.search(pattern, source[1]):
            return None
        if module not in self._modules:
            self._modules[module] = None  # an import cycle ends here
            document = parse_module(*source)
            if document is not None:
                inner = Walk(document, {}, {}, {})
                inner.name, inner._module_depth = module, self._module_depth + 1
                inner.run()
                self._modules[module] = None if inner.is_exhausted else inner
        return self._modules[module]


def is_from_file(node: Node) -> bool:
    """Return whether a part of a value was read from a settings file."""
    if isinstance(node, Record):
        return any(step.kind == "file" for step in node.how) or any(is_from_file(item.value) for item in node.entries)
    if isinstance(node, Sequence):
        return any(map(is_from_file, node.items))
    return isinstance(node, Value) and any(step.kind == "file" for step in node.how)


def relocate(node: Node, span: Span, level: int, stated: Step | None = None) -> Node:
    """Return a value of another module as the value at `span`.

    `level`: the number of undecided conditions around the place. `stated`: the place in the module that states the
    value, unless the module reads it from a file.
    """
    how = node.how if isinstance(node, (Value, Record)) else ()
    is_read = any(step.kind == "file" for step in how)
    steps = tuple(
        step if step.kind == "file" else Step(step.kind, step.text, span)
        for step in how
        if step.kind not in ("constant", "parameter")
    )
    steps = steps if is_read or stated is None else (stated, *steps)
    if isinstance(node, Record):
        record = Record(span, [], open_=node.open)
        record.sealed, record.level, record.how = "it is in another file", level, steps
        for entry in node.entries:
            inner = None if stated is None else stated._replace(text=entry.name or "", span=entry.span)
            value = relocate(entry.value, span, level, inner)
            record.put(Entry(Scalar(span, entry.name or "", value=entry.name), value))
        return record
    if isinstance(node, Sequence):
        return Sequence(span, [relocate(item, span, level, stated) for item in node.items], True)
    return Value(span, node.value, steps) if isinstance(node, Value) else Value(span, Unknown("another file"))
