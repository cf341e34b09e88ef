"""What every part of a walk shares: the script, what was made of it so far, the conditions around, and the budget.

Expressions contain calls, calls enter functions, and functions contain statements: what goes round in this way is asked
of the evaluator (`value`, `block`, `apply`), which `walk.py` completes.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from cfglint_train.documents.document import MISSING, Entry, Node, Scalar, Sequence, Span, Unknown
from cfglint_train.documents.python.script import PythonScript
from cfglint_train.documents.python.static.shape import Shape, shape_of
from cfglint_train.documents.python.tree import Record, Step, Target, Value
from cfglint_train.documents.python.values import (
    IMPLIED,
    Arguments,
    External,
    Options,
    Scope,
    hedged,
    reaches,
)
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final

MAX_STEPS: Final = 100_000
"""Steps of the walk over one script, at most."""
_FIRST_STEPS: Final = 2_000
_STEPS_PER_BYTE: Final = 2
"""What a text of some length may cost: scripts of people take a tenth of a step per byte."""
MAX_KEYS: Final = 500


class SpentError(Exception):
    """The script is too long or too deep to be followed."""


class Stop(Frozen):
    """Why a block ended early: a `return` with its value, or the end of the program."""

    value: Any
    returns: bool


Handler = Callable[["Evaluator", ast.Call, Arguments], Any]
MethodHandler = Callable[["Evaluator", ast.Call, Any, Arguments], Any]


def _no_constant(_: str) -> Any:
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
        constant: Callable[[str], Any] = _no_constant,
    ) -> None:
        self.document = document
        self.handlers = handlers
        self.methods = methods
        self.fields = fields
        self.constant = constant
        self.module = Scope(None, 0)
        self.made: list[Record] = []
        """Every record in the order in which its call was met."""
        self.called: set[int] = set()
        """Identities of the functions that were entered."""
        self.spent = False
        """Whether the script was too much, so that what was read so far may be changed further down."""
        self.undecided: list[Step] = []
        """The conditions around the statement that is walked, innermost last."""
        self.depth = 0
        """How many expressions are open."""
        self.calls = 0
        """How many functions of the script are entered."""
        self.settled: set[str] = set()
        """What calls of the library have settled for those behind them, in words that the handlers choose."""
        self.patched: set[str] = set()
        """The classes of other modules that the script replaces, or whose methods of Python's own it does
        (`__init__`).
        """
        self.declared: dict[str, Value] | None = None
        """The options that the script declares; None as long as nothing asked for them."""
        self.written: dict[str, str] = {}
        """Their spellings in the script, by their names."""
        self._left = min(MAX_STEPS, _FIRST_STEPS + _STEPS_PER_BYTE * len(document.source))
        self._once: dict[int, Record] = {}
        self._shapes: dict[int, Shape] = {}

    def value(self, node: ast.expr, scope: Scope) -> Any:
        """What an expression stands for."""
        raise NotImplementedError

    def block(self, body: list[ast.stmt], scope: Scope) -> Stop | None:
        """Walk statements in order; what ended them early, if anything."""
        raise NotImplementedError

    def apply(self, target: Any, arguments: Arguments, node: ast.Call | ast.stmt) -> Any:
        """What a call yields."""
        raise NotImplementedError

    def options(self, node: ast.expr) -> Options:
        """The namespace that argparse makes of the script's own options, at their defaults."""
        raise NotImplementedError

    def changes(self, function: External, place: int | str, given: Record) -> frozenset[str] | None:
        """The attributes that a function of another module may set of what it is given as its argument of a number or
        name; None where it may change any key.
        """
        raise NotImplementedError

    def step(self, steps: int = 1) -> None:
        """Pay for work. Raises SpentError where the script was too much."""
        self._left -= steps
        if self._left < 0:
            raise SpentError

    def condition(self, text: str, node: ast.stmt | ast.expr) -> Step:
        """A condition that cannot be decided, as a step on the way to a value."""
        return Step("depends", text, self.document.span(node))

    def named_condition(self, keyword: str, node: ast.expr) -> Step:
        """The condition of a statement, with its text."""
        return self.condition(f"{keyword} {self.document.cut(self.document.span(node))}", node)

    def shape(self, node: ast.ClassDef) -> Shape:
        """What a class of the script declares."""
        shape = self._shapes.get(id(node))
        if shape is None:
            shape = self._shapes[id(node)] = shape_of(node)
        return shape

    def unknown(self, node: ast.expr, why: str = "") -> Value:
        """The value of an expression that cannot be determined."""
        span = self.document.span(node)
        return Value(span, Unknown(why or self.document.cut(span)))

    def node(self, value: Any, where: ast.expr) -> Node:
        """A value as a node of the tree, standing where the expression stands."""
        span = self.document.span(where)
        if isinstance(value, Value):
            return Value(span, value.value, value.how, value.targets)
        if isinstance(value, Sequence):
            return value if all(isinstance(item, Node) for item in value.items) else self.unknown(where)
        if isinstance(value, Record):
            return value
        if isinstance(value, External):
            constant = self.constant(value.name)
            if isinstance(constant, Unknown):
                return self.unknown(where)
            if constant is not MISSING:
                return Value(span, constant, value.how, (Target(span),))
            *_, owner, name = ["", *value.parts]
            if owner[:1].isupper():
                end = span.end
                target = Target(Span(end - len(name.encode()), end), member=True)
                written = self.document.source[target.span.start : end] == name.encode()
                return Value(span, name, value.how, (target,) if written and not value.how else ())
        return self.unknown(where)

    @staticmethod
    def put(record: Record, entry: Entry) -> None:
        """Set a key of a record, unless it has more of them than a configuration would."""
        if len(record.entries) < MAX_KEYS or entry.name in record.index:
            record.put(entry)
        else:
            record.open = "it has too many keys"

    def set_key(self, record: Record, name: str, value: Any, key: Span, where: ast.expr) -> None:
        """Set an attribute or key of a record."""
        record.implicit = False
        record.assigned.add(name)
        node = self.node(value, where)
        if reaches(node, record, self.step):
            node = self.unknown(where)
        if len(self.undecided) > record.level:
            step = self.undecided[-1]
            present = record.get(name)
            if present is not None:
                self.put(record, Entry(present.key, hedged(present.value, step)))
                return
            node = Value(self.document.span(where), Unknown(f"set under a condition ({step.text})"), (step,))
        self.put(record, Entry(Scalar(key, name, value=name), node))

    def patch(self, owner: External, name: str) -> None:
        """Note that the script sets an attribute of a module, or of a class of one."""
        if owner.parts[-1][:1].isupper():
            if name.startswith("__"):
                self.patched.add(owner.name)
        elif name[:1].isupper():
            self.patched.add(f"{owner.name}.{name}")

    def implied(self, owner: Record, name: str, span: Span, key: Span) -> Any:
        """An attribute that nothing has set: something that the library's class makes of its own."""
        implied = Record(span, [], open_=IMPLIED)
        implied.implicit = True
        implied.level = owner.level
        self.put(owner, Entry(Scalar(key, name, value=name), implied))
        return implied

    def record(
        self,
        node: ast.Call,
        name: str,
        arguments: Arguments,
        fields: tuple[str, ...] = (),
        factory: str = "",
        how: tuple[Step, ...] = (),
    ) -> Record:
        """A mapping of a call's keyword arguments, with its class under `_CLASS_` (and factory under `_FACTORY_`)."""
        place = self.document.span(node.func)
        record = Record(self.document.span(node), [], node)
        record.how = how
        record.level = len(self.undecided)
        self.put(record, Entry(Scalar(place, "_CLASS_", value="_CLASS_"), Value(place, name)))
        if factory:
            self.put(record, Entry(Scalar(place, "_FACTORY_", value="_FACTORY_"), Value(place, factory, how)))
        for field, value, item in zip(fields, arguments.positional, node.args):
            start = self.document.span(item).start
            self.put(record, Entry(Scalar(Span(start, start), field, value=field), self.node(value, item)))
        expressions = {keyword.arg: keyword.value for keyword in node.keywords}
        for field, argument in arguments.keywords.items():
            where = expressions.get(field)
            entry = self.node(argument.value, where) if where is not None else argument.value
            if not isinstance(entry, Node):
                entry = self.unknown(node)
            self.put(record, Entry(Scalar(argument.key, field, value=field), entry))
        if not arguments.complete:
            record.open = "* or ** brings further arguments"
        earlier = self._once.setdefault(id(node), record)
        if earlier is not record:
            earlier.repeated = record.repeated = True
        self.made.append(record)
        return record

    def replaced(self, value: Any, arguments: Arguments, node: ast.Call) -> Any:
        """A copy of a record with some keys changed."""
        if not isinstance(value, Record):
            return self.opaque(node)
        copy = self.copied(value)
        copy.sealed = "it is a changed copy"
        for name, argument in arguments.keywords.items():
            entry = argument.value if isinstance(argument.value, Node) else self.node(argument.value, node)
            self.put(copy, Entry(Scalar(argument.key, name, value=name), entry))
        if not arguments.complete:
            copy.open = "* or ** brings further arguments"
        return copy

    def copied(self, value: Record) -> Record:
        """A dictionary of its own with the same keys."""
        self.step(len(value.entries))
        copy = Record(value.span, list(value.entries), None, value.open)
        copy.how, copy.level, copy.sealed = value.how, len(self.undecided), value.sealed
        return copy

    def opaque(self, node: ast.Call) -> Record:
        """What a call yields of which nothing is known; attributes may still be set on it."""
        maker = self.document.cut(self.document.span(node.func))
        record = Record(self.document.span(node), [], open_=f"{maker} makes it")
        record.implicit = True
        record.level = len(self.undecided)
        return record
