"""What every part of a walk shares: the script, what was made of it so far, the conditions around, and the budget.

Expressions contain calls, calls enter functions, and functions contain statements: what goes round in this way is asked
of the evaluator (`value`, `block`, `apply`), which `walk.py` completes.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from cfglint_train.documents.document import MISSING, Entry, Node, Scalar, Sequence, Span, Unknown
from cfglint_train.documents.python.script import PythonScript
from cfglint_train.documents.python.static.shape import Shape, parse_shape
from cfglint_train.documents.python.tree import Record, Step, Target, Value
from cfglint_train.documents.python.values import (
    IMPLIED,
    Arguments,
    External,
    ParsedOptions,
    Scope,
    can_reach,
    mark_conditional,
)
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final

MAX_STEPS: Final = 100_000
"""Steps of the walk over one script, at most."""
_FIRST_STEPS: Final = 2_000
_STEPS_PER_BYTE: Final = 2
"""What a text of some length may cost: scripts of people take a tenth of a step per byte."""
MAX_KEYS: Final = 500


class BudgetError(Exception):
    """The script is too long or too deep to be followed."""


class BlockEnd(Frozen):
    """Why a block ended early: a `return` with its value, or the end of the program."""

    value: Any
    returns: bool


Handler = Callable[["Evaluator", ast.Call, Arguments], Any]
MethodHandler = Callable[["Evaluator", ast.Call, Any, Arguments], Any]


def _find_no_constant(_: str) -> Any:
    return MISSING


class Evaluator:
    """The state of a walk. A framework defines what calls of its library mean.

    `handlers` maps dotted names to what a call of them yields, `methods` names of methods likewise (the first argument
    is the owner); a handler that answers None leaves the call to the evaluator. `fields` names the positional
    parameters of the library's classes, and of their methods that make objects. `constant` yields the value of a name
    of the library, `Unknown` where that cannot be determined, MISSING where the name of a member is its value.
    """

    def __init__(
        self,
        document: PythonScript,
        handlers: Mapping[str, Handler],
        methods: Mapping[str, MethodHandler],
        fields: Mapping[str, tuple[str, ...]],
        constant: Callable[[str], Any] = _find_no_constant,
    ) -> None:
        self.document = document
        self.handlers = handlers
        self.methods = methods
        self.fields = fields
        self.constant = constant
        self.module = Scope(None, 0)
        self.records: list[Record] = []
        """Every record in the order in which its call was met."""
        self.entered_functions: set[int] = set()
        """Identities of the functions that were entered."""
        self.is_exhausted = False
        """Whether the script was too much, so that what was read so far may be changed further down."""
        self.open_conditions: list[Step] = []
        """The conditions around the statement that is walked, innermost last."""
        self.depth = 0
        """How many expressions are open."""
        self.call_depth = 0
        """How many functions of the script are entered."""
        self.library_facts: set[str] = set()
        """What calls of the library have settled for those behind them, in words that the handlers choose."""
        self.patched_classes: set[str] = set()
        """The classes of other modules that the script replaces, or whose methods of Python's own it does
        (`__init__`).
        """
        self.declared_options: dict[str, Value] | None = None
        """The options that the script declares; None as long as nothing asked for them."""
        self.option_spellings: dict[str, str] = {}
        """Their spellings in the script, by their names."""
        self._steps_left = min(MAX_STEPS, _FIRST_STEPS + _STEPS_PER_BYTE * len(document.source))
        self._record_by_call: dict[int, Record] = {}
        self._shapes: dict[int, Shape] = {}

    def evaluate(self, node: ast.expr, scope: Scope) -> Any:
        """What an expression stands for."""
        raise NotImplementedError

    def walk_block(self, body: list[ast.stmt], scope: Scope) -> BlockEnd | None:
        """Walk statements in order; what ended them early, if anything."""
        raise NotImplementedError

    def apply_call(self, target: Any, arguments: Arguments, node: ast.Call | ast.stmt) -> Any:
        """What a call yields."""
        raise NotImplementedError

    def build_options(self, node: ast.expr) -> ParsedOptions:
        """The namespace that argparse makes of the script's own options, at their defaults."""
        raise NotImplementedError

    def find_changes(self, function: External, argument: int | str, value: Record) -> frozenset[str] | None:
        """The attributes that a function of another module may set of what it is given as its argument of a number or
        name; None where it may change any key.
        """
        raise NotImplementedError

    def spend_steps(self, steps: int = 1) -> None:
        """Pay for work. Raises SpentError where the script was too much."""
        self._steps_left -= steps
        if self._steps_left < 0:
            raise BudgetError

    def build_condition(self, text: str, node: ast.stmt | ast.expr) -> Step:
        """A condition that cannot be decided, as a step on the way to a value."""
        return Step("depends", text, self.document.find_span(node))

    def build_named_condition(self, keyword: str, node: ast.expr) -> Step:
        """The condition of a statement, with its text."""
        return self.build_condition(f"{keyword} {self.document.get_short_text(self.document.find_span(node))}", node)

    def get_shape(self, node: ast.ClassDef) -> Shape:
        """What a class of the script declares."""
        shape = self._shapes.get(id(node))
        if shape is None:
            shape = self._shapes[id(node)] = parse_shape(node)
        return shape

    def build_unknown(self, node: ast.expr, reason: str = "") -> Value:
        """The value of an expression that cannot be determined."""
        span = self.document.find_span(node)
        return Value(span, Unknown(reason or self.document.get_short_text(span)))

    def build_node(self, value: Any, expression: ast.expr) -> Node:
        """A value as a node of the tree, standing where the expression stands."""
        span = self.document.find_span(expression)
        if isinstance(value, Value):
            return Value(span, value.value, value.how, value.targets)
        if isinstance(value, Sequence):
            return value if all(isinstance(item, Node) for item in value.items) else self.build_unknown(expression)
        if isinstance(value, Record):
            return value
        if isinstance(value, External):
            constant = self.constant(value.name)
            if isinstance(constant, Unknown):
                return self.build_unknown(expression)
            if constant is not MISSING:
                return Value(span, constant, value.how, (Target(span),))
            *_, owner, name = ["", *value.parts]
            if owner[:1].isupper():
                end = span.end
                target = Target(Span(end - len(name.encode()), end), is_member=True)
                is_written = self.document.source[target.span.start : end] == name.encode()
                return Value(span, name, value.how, (target,) if is_written and not value.how else ())
        return self.build_unknown(expression)

    @staticmethod
    def put(record: Record, entry: Entry) -> None:
        """Set a key of a record, unless it has more of them than a configuration would."""
        if len(record.entries) < MAX_KEYS or entry.name in record.index:
            record.put(entry)
        else:
            record.open = "it has too many keys"

    def set_key(self, record: Record, name: str, value: Any, key: Span, expression: ast.expr) -> None:
        """Set an attribute or key of a record."""
        record.implicit = False
        record.assigned_keys.add(name)
        node = self.build_node(value, expression)
        if can_reach(node, record, self.spend_steps):
            node = self.build_unknown(expression)
        if len(self.open_conditions) > record.level:
            step = self.open_conditions[-1]
            present = record.get(name)
            if present is not None:
                self.put(record, Entry(present.key, mark_conditional(present.value, step)))
                return
            node = Value(self.document.find_span(expression), Unknown(f"set under a condition ({step.text})"), (step,))
        self.put(record, Entry(Scalar(key, name, value=name), node))

    def record_patch(self, owner: External, name: str) -> None:
        """Note that the script sets an attribute of a module, or of a class of one."""
        if owner.parts[-1][:1].isupper():
            if name.startswith("__"):
                self.patched_classes.add(owner.name)
        elif name[:1].isupper():
            self.patched_classes.add(f"{owner.name}.{name}")

    def add_implied_record(self, owner: Record, name: str, span: Span, key: Span) -> Any:
        """An attribute that nothing has set: something that the library's class makes of its own."""
        record = Record(span, [], open_=IMPLIED)
        record.implicit = True
        record.level = owner.level
        self.put(owner, Entry(Scalar(key, name, value=name), record))
        return record

    def build_record(
        self,
        node: ast.Call,
        name: str,
        arguments: Arguments,
        fields: tuple[str, ...] = (),
        factory: str = "",
        how: tuple[Step, ...] = (),
    ) -> Record:
        """A mapping of a call's keyword arguments, with its class under `_CLASS_` (and factory under `_FACTORY_`)."""
        span = self.document.find_span(node.func)
        record = Record(self.document.find_span(node), [], node)
        record.how = how
        record.level = len(self.open_conditions)
        self.put(record, Entry(Scalar(span, "_CLASS_", value="_CLASS_"), Value(span, name)))
        if factory:
            self.put(record, Entry(Scalar(span, "_FACTORY_", value="_FACTORY_"), Value(span, factory, how)))
        for field, value, item in zip(fields, arguments.positional, node.args):
            start = self.document.find_span(item).start
            self.put(record, Entry(Scalar(Span(start, start), field, value=field), self.build_node(value, item)))
        expressions = {keyword.arg: keyword.value for keyword in node.keywords}
        for field, argument in arguments.keywords.items():
            expression = expressions.get(field)
            entry = self.build_node(argument.value, expression) if expression is not None else argument.value
            if not isinstance(entry, Node):
                entry = self.build_unknown(node)
            self.put(record, Entry(Scalar(argument.key, field, value=field), entry))
        if not arguments.is_complete:
            record.open = "* or ** brings further arguments"
        first_record = self._record_by_call.setdefault(id(node), record)
        if first_record is not record:
            first_record.is_repeated = record.is_repeated = True
        self.records.append(record)
        return record

    def replace_keys(self, value: Any, arguments: Arguments, node: ast.Call) -> Any:
        """A copy of a record with some keys changed."""
        if not isinstance(value, Record):
            return self.build_opaque(node)
        copy = self.copy_record(value)
        copy.sealed = "it is a changed copy"
        for name, argument in arguments.keywords.items():
            entry = argument.value if isinstance(argument.value, Node) else self.build_node(argument.value, node)
            self.put(copy, Entry(Scalar(argument.key, name, value=name), entry))
        if not arguments.is_complete:
            copy.open = "* or ** brings further arguments"
        return copy

    def copy_record(self, value: Record) -> Record:
        """A dictionary of its own with the same keys."""
        self.spend_steps(len(value.entries))
        copy = Record(value.span, list(value.entries), None, value.open)
        copy.how, copy.level, copy.sealed = value.how, len(self.open_conditions), value.sealed
        return copy

    def build_opaque(self, node: ast.Call) -> Record:
        """What a call yields of which nothing is known; attributes may still be set on it."""
        maker = self.document.get_short_text(self.document.find_span(node.func))
        record = Record(self.document.find_span(node), [], open_=f"{maker} makes it")
        record.implicit = True
        record.level = len(self.open_conditions)
        return record
