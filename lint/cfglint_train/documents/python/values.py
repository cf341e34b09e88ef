"""Values of a script's expressions that are not nodes of the settings tree.

`Value` and `Record` (`tree.py`) are nodes. The kinds here have no place in that tree: functions, classes, names of
imported modules, and the namespace that argparse returns.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from cfglint_train.documents.document import Entry, Node, Sequence, Span, Unknown
from cfglint_train.documents.python.tree import Record, Step, Value
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final

IMPLIED: Final = "the library fills it in"
# No configuration is deeper or larger than this.
_MAX_DEPTH: Final = 60
_MAX_VALUES: Final = 20_000


class External(Frozen):
    """An imported name with its attributes, such as `olmo_core.nn.transformer.TransformerConfig.olmo2_7B`."""

    name: str
    how: tuple[Step, ...] = ()

    @property
    def parts(self) -> list[str]:
        """Parts of the dotted name."""
        return self.name.split(".")


class Function(Frozen):
    """A function of the script with its defining scope; `owner`, if any, is bound to its first parameter."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    scope: Scope
    owner: Any = None


class Class(Frozen):
    """A class of the script."""

    node: ast.ClassDef
    scope: Scope


class Foreign(Frozen):
    """A class, a function or an instance of another module of the repository, with the walk over that module.

    `name` is its full name as the script imports it, or empty.
    """

    walk: Any
    value: Any
    name: str = ""
    how: tuple[Step, ...] = ()


class Bases(Frozen):
    """The object that `super()` returns in a method of the class `derived`."""

    instance: Any
    derived: Class


class Partial(Frozen):
    """A `functools.partial` object: a callee with some of its arguments bound."""

    target: Any
    arguments: Arguments


class FileText(Frozen):
    """A file that the script opened for reading, or its text."""

    path: str
    how: tuple[Step, ...] = ()


class ParsedOptions:
    """A namespace returned by `argparse`, with the defaults of the options that the script (or a library) declares."""

    __slots__ = ("defaults", "span", "spellings")

    def __init__(self, defaults: Mapping[str, Value], span: Span, written: Mapping[str, str] | None = None) -> None:
        """Store the defaults and the spellings of the options."""
        self.defaults = dict(defaults)
        self.span = span
        self.spellings = written or {}
        """Spelling of each option in the script, by the option's name."""


class Argument(Frozen):
    """A keyword argument: its value and the span of its name."""

    value: Any
    key: Span


class Arguments(Frozen):
    """The arguments of a call. `is_complete` is false if `*` or `**` may add more.

    `is_assumed` is true if no call is known, so that the defaults of the parameters are assumed.
    """

    positional: tuple[Any, ...] = ()
    keywords: Mapping[str, Argument] = {}
    is_complete: bool = True
    is_assumed: bool = False

    def get(self, name: str) -> Any:
        """Return the value of a keyword argument, or None if it is absent."""
        argument = self.keywords.get(name)
        return None if argument is None else argument.value


class Scope:
    """Names of a function or module with their values, and the enclosing scope."""

    __slots__ = ("conditional_returns", "declared_scopes", "level", "names", "parent")

    def __init__(self, parent: Scope | None, level: int) -> None:
        """Create an empty scope."""
        self.parent = parent
        self.names: dict[str, Any] = {}
        # Number of undecided conditions when this scope was entered.
        self.level = level
        # Values of `return` statements under an undecided condition.
        self.conditional_returns: list[tuple[Any, Step]] = []
        # Scopes of the names that `global` or `nonlocal` declares.
        self.declared_scopes: dict[str, Scope] = {}

    def find_owner(self, name: str) -> Scope:
        """Return the scope in which an assignment to a name takes effect."""
        return self.declared_scopes.get(name, self)

    def declare(self, names: list[str], everywhere: bool) -> None:
        """Redirect assignments of names to the module (`global`) or to the nearest scope with the name (`nonlocal`)."""
        for name in names:
            scope = self.parent
            while scope is not None and scope.parent is not None and (everywhere or name not in scope.names):
                scope = scope.parent
            if scope is not None:
                self.declared_scopes[name] = scope

    def find(self, name: str) -> Any:
        """Return the value of a name, or None if it is unknown."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        return None


def format_option(name: str) -> str:
    """Return a command-line option in its usual spelling: `--` and hyphens."""
    return "--" + name.replace("_", "-")


class AtLeastTwo(Unknown):
    """A number that cannot be determined from the text but is known to be 2 or more."""

    __slots__ = ()

    @property
    def derived(self) -> Unknown:
        """Unknown value that results from any computation with the number."""
        return Unknown(self.reason)


def is_conditional(value: Any) -> bool:
    """Return whether a value depends on a condition that cannot be determined."""
    return any(step.kind == "depends" for step in getattr(value, "how", ()))


def mark_conditional(value: Any, step: Step) -> Any:
    """Return a value marked as depending on a condition."""
    if isinstance(value, Value):
        return value if step in value.how else Value(value.span, value.value, (*value.how, step))
    if isinstance(value, Record):
        if step not in value.how:
            value.how = (*value.how, step)
        return value
    if isinstance(value, External):
        return value if step in value.how else External(value.name, (*value.how, step))
    if isinstance(value, Foreign):
        return value if step in value.how else value._replace(how=(*value.how, step))
    return value


def choose_value(first: Any, other: Any) -> Any:
    """Return the value to assume if the condition that selects between two values is undecided.

    This is the first value, unless it is None and the other is the result of a call.
    """
    nothing = isinstance(first, Value) and first.value is None
    return other if nothing and isinstance(other, Record) else first


def get_path(value: Value) -> str | None:
    """Return the path that a value stands for, even if only its folder is unknown, or None."""
    if isinstance(value.value, Unknown):
        return value.value.path or None
    return value.value if isinstance(value.value, str) else None


def evaluate_truth(value: Any) -> bool | None:
    """Return the truth value of a value, or None if it cannot be determined."""
    if isinstance(value, Value):
        return None if isinstance(value.value, Unknown) or is_conditional(value) else bool(value.value)
    if isinstance(value, Sequence):
        return bool(value.items)
    if isinstance(value, Record):
        return None if value.implicit or is_conditional(value) else True
    return None


def drop_targets(value: Any) -> Any:
    """Return the value without its edit targets, so that no fix changes it."""
    return Value(value.span, value.value, value.how) if isinstance(value, Value) else value


def merge_arguments(first: Arguments, second: Arguments) -> Arguments:
    """Return the arguments of a partial application, followed by those of its call."""
    return Arguments(
        (*first.positional, *second.positional),
        {**first.keywords, **second.keywords},
        first.is_complete and second.is_complete,
    )


def prune_tree(root: Record) -> Record | None:
    """Return the tree without implied records on which nothing was set; other records without settings become unknown.

    Return None if the tree expands to more values than any configuration has, because records occur in it repeatedly.
    The records are changed in place.
    """
    stack, order, seen = [root], [], {id(root)}
    while stack:
        record = stack.pop()
        order.append(record)
        for entry in record.entries:
            if isinstance(entry.value, Record) and id(entry.value) not in seen:
                seen.add(id(entry.value))
                stack.append(entry.value)
    unset = _find_unset_records(order)
    for record in order:
        kept_entries = []
        for entry in record.entries:
            value = entry.value
            if isinstance(value, Record) and id(value) in unset:
                if value.call is None and value.open == IMPLIED:
                    continue
                entry = Entry(entry.key, Value(value.span, Unknown(value.open), value.how))
            kept_entries.append(entry)
        record.entries[:] = kept_entries
        record._index = None
    return root if _is_bounded(root) else None


def _find_unset_records(records: list[Record]) -> set[int]:
    """Return the identities of the records without settings, in themselves and in their implied attributes."""
    parents: dict[int, list[Record]] = {}
    set_records = []
    for record in records:
        children = [entry.value for entry in record.entries if isinstance(entry.value, Record)]
        for child in children:
            parents.setdefault(id(child), []).append(record)
        if not record.implicit or len(children) < len(record.entries):
            set_records.append(record)
    unset = {id(record) for record in records}
    while set_records:
        record = set_records.pop()
        if id(record) in unset:
            unset.discard(id(record))
            set_records += parents.get(id(record), ())
    return unset


def _is_bounded(root: Record) -> bool:
    """Return whether a tree stays within the limits if a shared record counts at each place where it occurs."""
    budget = _MAX_VALUES
    stack: list[tuple[Node, int]] = [(root, 0)]
    while stack:
        node, depth = stack.pop()
        budget -= 1
        if budget < 0 or depth > _MAX_DEPTH:
            return False
        if isinstance(node, Record):
            stack += [(entry.value, depth + 1) for entry in node.entries]
        elif isinstance(node, Sequence):
            stack += [(item, depth + 1) for item in node.items]
    return True


def can_reach(start: Node, goal: Record, step: Callable[[int], None]) -> bool:
    """Return whether `start` is the record `goal` or contains it; `step` is called with the cost of each node."""
    stack: list[Node] = [start]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if node is goal:
            return True
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Record):
            step(1 + len(node.entries) // 16)
            stack += [entry.value for entry in node.entries]
        elif isinstance(node, Sequence):
            step(1 + len(node.items) // 16)
            stack += node.items
    return False
