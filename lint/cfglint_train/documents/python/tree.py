"""The settings tree of a Python script: records, values and the steps that led to them.

A `Record` is a mapping whose keys are the keyword arguments of one call. A `Value` is a scalar with the expression that
it was read from. Both are nodes as in every other document.
"""

from __future__ import annotations

from cfglint_train.documents.document import Document, Entry, Mapping, Node, Scalar, Span, Unknown
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import ast

_MAX_STEPS: Final = 12


class Step(Frozen):
    """One step from an expression to its value.

    `kind` is constant (a name's definition), parameter (an argument of a builder), option (the default of a
    command-line option), depends (changed under a condition that cannot be determined), library (returned by a
    function of the library) or file (read from the settings file `document`, to which `span` then refers).
    """

    kind: str
    text: str
    span: Span
    document: Document | None = None


class Target(Frozen):
    """A place in the text that decides a value on its own.

    `unit` is 0 if the text is the value itself. Otherwise the text is an integer literal, and the value is that literal
    times `unit` (`2 * SEQUENCE_LENGTH`). `is_member` means that the text names an enumeration member.
    """

    span: Span
    unit: int = 0
    is_member: bool = False


class Value(Scalar):
    """A scalar that an expression evaluates to; `value` is `Unknown` if it cannot be determined.

    `targets` are the places that may be rewritten, the best first. If there are none, the value cannot be changed in
    the text.
    """

    __slots__ = ("how", "targets")

    def __init__(self, span: Span, value: Any, how: tuple[Step, ...] = (), targets: tuple[Target, ...] = ()) -> None:
        """Store the value with its steps and targets."""
        super().__init__(span, "" if isinstance(value, Unknown) else str(value), value=value)
        self.how = how if len(how) < 2 else _limit_steps(how)
        self.targets = targets


def _limit_steps(how: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the steps without duplicates; if there are more than `_MAX_STEPS`, keep conditions, then files, first."""
    steps = tuple(dict.fromkeys(how))
    if len(steps) <= _MAX_STEPS:
        return steps
    return tuple(sorted(steps, key=lambda step: (step.kind != "depends", step.kind != "file"))[:_MAX_STEPS])


def find_condition(node: Node) -> Step | None:
    """Return the condition that a node depends on, or None."""
    how = node.how if isinstance(node, (Value, Record)) else ()
    return next((step for step in how if step.kind == "depends"), None)


def is_default(node: Node) -> bool:
    """Return whether a value comes from the library instead of the script."""
    return isinstance(node, Value) and any(step.kind == "library" for step in node.how)


def find_file_step(node: Node) -> Step | None:
    """Return the place in a settings file that alone decides a value, or None."""
    steps = [step for step in (node.how if isinstance(node, (Value, Record)) else ()) if step.kind == "file"]
    return steps[0] if len(steps) == 1 else None


class OtherCallSetting(Frozen):
    """A setting of a run that the script passes to a different call.

    `record` is that call, or None if the script does not contain it. `name` is the setting's name in that call. `entry`
    is the entry in the script, or None if the setting is not stated.
    """

    record: Record | None
    name: str
    entry: Entry | None = None


class Record(Mapping):
    """A mapping built from one call, or from attributes that are set on the result of a call.

    `open` says why there may be more keys than the tree shows, so a missing key proves nothing. `sealed` says why
    no key can be added. Both are empty if the call states everything. `parts` are settings of other calls: they are
    looked up like keys but are not keys of this call. `owner` is the class of the script of which the record is an
    instance. `objects` are values of keys that are no nodes, such as classes and functions.
    """

    __slots__ = (
        "assigned_keys",
        "call",
        "conditions",
        "how",
        "implicit",
        "is_repeated",
        "level",
        "objects",
        "open",
        "owner",
        "parts",
        "sealed",
    )

    def __init__(self, span: Span, entries: list[Entry], call: ast.Call | None = None, open_: str = "") -> None:
        """Store the entries and the call."""
        super().__init__(span, entries, True)
        self.call = call
        self.open = open_
        self.sealed = ""
        self.parts: dict[str, OtherCallSetting] = {}
        # Keys that were set later as attributes or items.
        self.assigned_keys: set[str] = set()
        self.how: tuple[Step, ...] = ()
        # True if the call runs more than once, so that the text defines several records.
        self.is_repeated = False
        # True while only an attribute access has mentioned the record.
        self.implicit = False
        # Number of undecided conditions around the code that created the record.
        self.level = 0
        # Undecided conditions around the code that created the record, innermost last.
        self.conditions: tuple[Step, ...] = ()
        self.owner: Any = None
        self.objects: dict[str, Any] = {}

    def put(self, entry: Entry) -> None:
        """Set a key, replacing an earlier entry."""
        self._index = None
        self.objects.pop(entry.name or "", None)
        for position, present in enumerate(self.entries):
            if present.name == entry.name:
                self.entries[position] = entry
                return
        self.entries.append(entry)

    def drop(self, name: str) -> None:
        """Remove a key."""
        self._index = None
        self.objects.pop(name, None)
        self.entries[:] = [entry for entry in self.entries if entry.name != name]
