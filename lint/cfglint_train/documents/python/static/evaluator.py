"""Shared state of a walk: the script, the records created so far, the open conditions, and the budget.

Expressions contain calls, calls enter functions, and functions contain statements. The methods of this cycle
(`evaluate`, `walk_block`, `apply_call`) are abstract here; `walk.py` implements them.
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
    is_conditional,
    mark_conditional,
)
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final

MAX_STEPS: Final = 100_000
"""Maximum number of steps of a walk over one script."""
_FIRST_STEPS: Final = 2_000
_STEPS_PER_BYTE: Final = 2
"""Budget in steps per byte of the text. Scripts written by people need a tenth of a step per byte."""
MAX_KEYS: Final = 500


class BudgetError(Exception):
    """Error for a script that exceeds the budget of a walk."""


class BlockEnd(Frozen):
    """The early end of a block: a `return` with its value, or the end of the program."""

    value: Any
    returns: bool


Handler = Callable[["Evaluator", ast.Call, Arguments], Any]
MethodHandler = Callable[["Evaluator", ast.Call, Any, Arguments], Any]


def _find_no_constant(_: str) -> Any:
    return MISSING


def _is_none(node: Node) -> bool:
    return isinstance(node, Value) and node.value is None


class Evaluator:
    """The state of a walk over one script. A framework defines the meaning of calls to its library.

    `handlers` maps dotted function names to handlers of their calls. `methods` maps method names to handlers that also
    receive the owner. If a handler returns None, the evaluator treats the call as usual. `fields` names the positional
    parameters of the library's classes and of their methods that create objects. `constant` returns the value of a
    library name, `Unknown` if it cannot be determined, or MISSING if the name itself is the value, as for an enum
    member.
    """

    def __init__(
        self,
        document: PythonScript,
        handlers: Mapping[str, Handler],
        methods: Mapping[str, MethodHandler],
        fields: Mapping[str, tuple[str, ...]],
        constant: Callable[[str], Any] = _find_no_constant,
    ) -> None:
        """Store the script and the framework's handlers."""
        self.document = document
        self.handlers = handlers
        self.libraries = frozenset(name.partition(".")[0] for name in handlers)
        """Packages whose names have a meaning of their own, even if the repository contains their source."""
        self.methods = methods
        self.fields = fields
        self.constant = constant
        self.module = Scope(None, 0)
        self.records: list[Record] = []
        """All records, in the order in which their calls were evaluated."""
        self.entered_functions: set[int] = set()
        """`id()` of every function definition that was entered."""
        self.active_functions: list[int] = []
        """`id()` of every function definition that is being called, outermost first."""
        self.is_exhausted = False
        """True if the budget ran out, so that later code may change the values read so far."""
        self.open_conditions: list[Step] = []
        """Undecided conditions around the current statement, innermost last."""
        self.depth = 0
        """Nesting depth of the current expression."""
        self.call_depth = 0
        """Number of the script's functions that are currently being called."""
        self.library_facts: set[str] = set()
        """Facts that library calls establish for later calls, as strings that the handlers choose."""
        self.patched_classes: set[str] = set()
        """Classes of other modules that the script replaces, or whose special methods (`__init__`) it replaces."""
        self.launch_words: tuple[str, ...] = ()
        """Words of the launch after the script's path; empty if no launch is known."""
        self.awaits_file = False
        """True if the script reads a settings file that only a launch names."""
        self.imagined_calls: set[int] = set()
        """`id()` of each record that a method of an imagined instance creates."""
        self.is_program = True
        """False for a module that the script imports."""
        self.imported: dict[str, Any] = {}
        """Values of other modules, by the full name as this module imports them; None if there is no such value."""
        self.module_walks: dict[str, Any] = {}
        """Walks over modules of the repository, by name and by path; shared by all of them."""
        self.received: dict[int, Any] = {}
        """Values of other modules with their copies in this one, by the `id()` of the former."""
        self.expressions: list[ast.expr] = []
        """Expressions that other modules evaluate in this one; the list keeps their `id()` unique."""
        self.declared_options: dict[str, Value] | None = None
        """Options that the script declares, or None until they are requested."""
        self.option_spellings: dict[str, str] = {}
        """Spelling in the script of each option, by the option's name."""
        self._steps_left = min(MAX_STEPS, _FIRST_STEPS + _STEPS_PER_BYTE * len(document.source))
        self._record_by_call: dict[int, Record] = {}
        self._shapes: dict[int, Shape] = {}

    def run(self) -> None:
        """Walk the whole module."""
        raise NotImplementedError

    def evaluate(self, node: ast.expr, scope: Scope) -> Any:
        """Return the value of an expression."""
        raise NotImplementedError

    def walk_block(self, body: list[ast.stmt], scope: Scope) -> BlockEnd | None:
        """Walk statements in order. Return their early end, or None if they run to the end of the block."""
        raise NotImplementedError

    def apply_call(self, target: Any, arguments: Arguments, node: ast.Call | ast.stmt) -> Any:
        """Return the result of calling `target` with `arguments`."""
        raise NotImplementedError

    def build_options(self, node: ast.expr) -> ParsedOptions:
        """Return the namespace that argparse produces if no option is passed."""
        raise NotImplementedError

    def build_walk(self, document: PythonScript) -> Evaluator:
        """Return a walk of the same kind over another module, which has not run yet."""
        raise NotImplementedError

    def find_changes(self, function: External, argument: int | str, value: Record) -> frozenset[str] | None:
        """Return the attributes that a function of another module may set on an argument, or None if it may set any.

        `argument` is the argument's index or name.
        """
        raise NotImplementedError

    def spend_steps(self, steps: int = 1) -> None:
        """Spend steps of the budget. Raise `BudgetError` if it is exhausted."""
        self._steps_left -= steps
        if self._steps_left < 0:
            raise BudgetError

    def build_condition(self, text: str, node: ast.stmt | ast.expr) -> Step:
        """Return an undecided condition as a step in the derivation of a value."""
        return Step("depends", text, self.document.find_span(node))

    def build_named_condition(self, keyword: str, node: ast.expr) -> Step:
        """Return the condition of a statement as a step that quotes its source."""
        return self.build_condition(f"{keyword} {self.document.get_short_text(self.document.find_span(node))}", node)

    def get_shape(self, node: ast.ClassDef) -> Shape:
        """Return the declarations of a class of the script."""
        shape = self._shapes.get(id(node))
        if shape is None:
            shape = self._shapes[id(node)] = parse_shape(node)
        return shape

    def build_unknown(self, node: ast.expr, reason: str = "") -> Value:
        """Return an unknown value for an expression; the default reason is its source text."""
        span = self.document.find_span(node)
        return Value(span, Unknown(reason or self.document.get_short_text(span)))

    def build_node(self, value: Any, expression: ast.expr) -> Node:
        """Return a value as a tree node at the place of the expression."""
        span = self.document.find_span(expression)
        if isinstance(value, Value):
            return Value(span, value.value, value.how, value.targets)
        if isinstance(value, Sequence):
            return value if all(isinstance(item, Node) for item in value.items) else self.build_unknown(expression)
        if isinstance(value, Record):
            # Values that a library fills in for one of its objects do not hold for another that receives it.
            is_filled_in = value.implicit and value.call is None and value.open == IMPLIED
            return self.build_unknown(expression) if is_filled_in else value
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
        """Set a key of a record; if the record has `MAX_KEYS` keys already, mark it as open instead."""
        if len(record.entries) < MAX_KEYS or entry.name in record.index:
            record.put(entry)
        else:
            record.open = "it has too many keys"

    def set_key(self, record: Record, name: str, value: Any, key: Span, expression: ast.expr) -> None:
        """Set an attribute or key of a record.

        Under an undecided condition, an existing value stays and is marked as conditional; a new value is unknown.
        """
        record.implicit = False
        record.assigned_keys.add(name)
        node = self.build_node(value, expression)
        if can_reach(node, record, self.spend_steps):
            node = self.build_unknown(expression)
        if len(self.open_conditions) > record.level:
            step = self.open_conditions[-1]
            present = record.get(name)
            if record.owner is not None and (present is None or _is_none(present.value)):
                self.put(record, Entry(Scalar(key, name, value=name), mark_conditional(node, step)))
                self.keep_object(record, name, value)
                return
            if present is not None and record.owner is not None and is_conditional(present.value):
                value = self.build_unknown(expression)
                self.put(record, Entry(present.key, mark_conditional(value, step)))
                return
            if present is not None:
                self.put(record, Entry(present.key, mark_conditional(present.value, step)))
                return
            node = Value(self.document.find_span(expression), Unknown(f"set under a condition ({step.text})"), (step,))
            value = node
        self.put(record, Entry(Scalar(key, name, value=name), node))
        self.keep_object(record, name, value)

    def keep_object(self, record: Record, name: str, value: Any) -> None:
        """Keep the value of a key of a record that cannot be a node of the tree, such as a class."""
        present = record.get(name)
        plain = present.value.value if present is not None and isinstance(present.value, Value) else None
        if isinstance(plain, Unknown) and not isinstance(value, Node) and value is not None:
            record.objects[name] = value

    def record_patch(self, owner: External, name: str) -> None:
        """Record that the script replaces a class of a module, or a special method of a class.

        Other attributes are ignored.
        """
        if owner.parts[-1][:1].isupper():
            if name.startswith("__"):
                self.patched_classes.add(owner.name)
        elif name[:1].isupper():
            self.patched_classes.add(f"{owner.name}.{name}")

    def add_implied_record(self, owner: Record, name: str, span: Span, key: Span) -> Any:
        """Add and return a record for an attribute that the script never set but the library's class creates.

        What makes other keys of the owner unknown, as an unknown call that returns it, makes the attribute unknown too.
        """
        record = Record(span, [], open_=owner.open or IMPLIED)
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
        """Return a record of a call's arguments, with its class under `_CLASS_`.

        A factory method is stored under `_FACTORY_`. `fields` names the positional arguments.
        """
        span = self.document.find_span(node.func)
        record = Record(self.document.find_span(node), [], node)
        record.how = how
        record.level = len(self.open_conditions)
        record.conditions = tuple(self.open_conditions)
        self.put(record, Entry(Scalar(span, "_CLASS_", value="_CLASS_"), Value(span, name)))
        if factory:
            self.put(record, Entry(Scalar(span, "_FACTORY_", value="_FACTORY_"), Value(span, factory, how)))
        for field, value, item in zip(fields, arguments.positional, node.args):
            start = self.document.find_span(item).start
            self.put(record, Entry(Scalar(Span(start, start), field, value=field), self.build_node(value, item)))
            self.keep_object(record, field, value)
        expressions = {keyword.arg: keyword.value for keyword in node.keywords}
        for field, argument in arguments.keywords.items():
            expression = expressions.get(field)
            entry = self.build_node(argument.value, expression) if expression is not None else argument.value
            if not isinstance(entry, Node):
                entry = self.build_unknown(node)
            self.put(record, Entry(Scalar(argument.key, field, value=field), entry))
            self.keep_object(record, field, argument.value)
        if not arguments.is_complete:
            record.open = "* or ** adds arguments"
        first_record = self._record_by_call.setdefault(id(node), record)
        if first_record is not record:
            first_record.is_repeated = record.is_repeated = True
        self.records.append(record)
        return record

    def replace_keys(self, value: Any, arguments: Arguments, node: ast.Call) -> Any:
        """Return a copy of a record in which the keyword arguments replace keys."""
        if not isinstance(value, Record):
            return self.build_opaque(node)
        copy = self.copy_record(value)
        copy.sealed = "it is a modified copy"
        for name, argument in arguments.keywords.items():
            entry = argument.value if isinstance(argument.value, Node) else self.build_node(argument.value, node)
            self.put(copy, Entry(Scalar(argument.key, name, value=name), entry))
        if not arguments.is_complete:
            copy.open = "* or ** adds arguments"
        return copy

    def copy_record(self, value: Record) -> Record:
        """Return an independent dictionary record with the same entries."""
        self.spend_steps(len(value.entries))
        copy = Record(value.span, list(value.entries), None, value.open)
        copy.how, copy.level, copy.sealed = value.how, len(self.open_conditions), value.sealed
        copy.owner, copy.objects = value.owner, dict(value.objects)
        return copy

    def build_opaque(self, node: ast.Call) -> Record:
        """Return a record for the result of a call that cannot be evaluated; attributes can still be set on it."""
        maker = self.document.get_short_text(self.document.find_span(node.func))
        record = Record(self.document.find_span(node), [], open_=f"{maker} makes it")
        record.implicit = True
        record.level = len(self.open_conditions)
        return record
