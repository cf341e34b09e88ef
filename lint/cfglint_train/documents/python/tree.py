"""The tree that a Python script is shown as: records, values and the way that led to each.

A `Record` is a mapping whose keys are the keyword arguments of one call, a `Value` a scalar with the expression that it
was read from. Both are nodes as in every other document.
"""

from __future__ import annotations

from cfglint_train.documents.document import Entry, Mapping, Node, Scalar, Span, Unknown
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import ast

_MAX_STEPS: Final = 12


class Step(Frozen):
    """One step on the way from an expression to its value.

    `kind`: constant (a name's definition), parameter (an argument of a builder), option (the default of a command-line
    option), depends (changed under a condition that cannot be determined), library (what a function of the library
    gives).
    """

    kind: str
    text: str
    span: Span


class Target(Frozen):
    """The one place of the text that decides a value.

    `unit` is 0 where the text is the value itself; otherwise the value is an integer literal, which is here, times
    `unit` (`2 * SEQUENCE_LENGTH`). `member` says that the text is the name of an enumeration's member.
    """

    span: Span
    unit: int = 0
    is_member: bool = False


class Value(Scalar):
    """A scalar that an expression stands for; `value` is `Unknown` where it cannot be determined.

    `targets` are the places that may be rewritten, the best first; without any the value cannot be changed in the text.
    """

    __slots__ = ("how", "targets")

    def __init__(self, span: Span, value: Any, how: tuple[Step, ...] = (), targets: tuple[Target, ...] = ()) -> None:
        super().__init__(span, "" if isinstance(value, Unknown) else str(value), value=value)
        self.how = how if len(how) < 2 else _limit_steps(how)
        self.targets = targets


def _limit_steps(how: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps without repetition, at most as many as a message shows; conditions are never dropped first."""
    steps = tuple(dict.fromkeys(how))
    if len(steps) <= _MAX_STEPS:
        return steps
    return tuple(sorted(steps, key=lambda step: step.kind != "depends")[:_MAX_STEPS])


def find_condition(node: Node) -> Step | None:
    """The condition that a node rests on, if any."""
    how = node.how if isinstance(node, (Value, Record)) else ()
    return next((step for step in how if step.kind == "depends"), None)


class OtherCallSetting(Frozen):
    """A setting of a run that another call of the script takes than the one which takes the others.

    `record` is that call's (None: the script has no such call), `name` the setting's name there, `entry` what it states
    (None: nothing).
    """

    record: Record | None
    name: str
    entry: Entry | None = None


class Record(Mapping):
    """A mapping made of one call (or of attributes that are set on what a call returned).

    `open` says why there may be more keys than the tree shows, so that a missing one is no evidence; `sealed` why no
    key can be added. Both are empty where the call states everything. `parts` are settings of other calls: they are
    looked up like keys, and are no keys of this call.
    """

    __slots__ = ("assigned_keys", "call", "how", "implicit", "is_repeated", "level", "open", "parts", "sealed")

    def __init__(self, span: Span, entries: list[Entry], call: ast.Call | None = None, open_: str = "") -> None:
        super().__init__(span, entries, True)
        self.call = call
        self.open = open_
        self.sealed = ""
        self.parts: dict[str, OtherCallSetting] = {}
        # Keys that were set as attributes or items afterwards.
        self.assigned_keys: set[str] = set()
        self.how: tuple[Step, ...] = ()
        # Its call is made more than once, so that the text defines several records.
        self.is_repeated = False
        # So far only an attribute access has mentioned it.
        self.implicit = False
        # How many undecided conditions stood around it where it was made.
        self.level = 0

    def put(self, entry: Entry) -> None:
        """Set a key, in place of an earlier one."""
        self._index = None
        for position, present in enumerate(self.entries):
            if present.name == entry.name:
                self.entries[position] = entry
                return
        self.entries.append(entry)

    def drop(self, name: str) -> None:
        """Take a key out."""
        self._index = None
        self.entries[:] = [entry for entry in self.entries if entry.name != name]
