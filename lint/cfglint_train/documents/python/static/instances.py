"""Instances of the script's own classes: what their constructors, methods and declarations set.

Constructors and methods are followed like functions. An instance of a class that derives from a library's class has
attributes that the script does not show.
"""

from __future__ import annotations

import ast

from cfglint_train.documents.document import Entry, Node, Scalar, Sequence
from cfglint_train.documents.python.static import mappings
from cfglint_train.documents.python.static.evaluator import Evaluator
from cfglint_train.documents.python.syntax import get_callee_name, get_last_name
from cfglint_train.documents.python.tree import Record, Value
from cfglint_train.documents.python.values import (
    Arguments,
    Bases,
    Class,
    Function,
    Scope,
    mark_conditional,
)
from cfglint_train.foundation.typed import Any, Final

IMAGINED: Final = "an object of the script's own class"
"""Reason why an instance that no statement of the script creates may have further attributes."""
_PLAIN_BASES: Final = frozenset(("object", "ABC", "Generic", "Protocol", "BaseModel"))
"""Base classes that set no attributes."""
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_PROPERTIES: Final = ("property", "cached_property")
_FIELD_FUNCTIONS: Final = ("field", "Field")
_MAX_DEPTH: Final = 6
"""Maximum number of base classes to follow."""


def find_ancestors(evaluator: Evaluator, owner: Class) -> tuple[list[Class], bool]:
    """Return a class with its bases in the script, derived classes first, and whether it has no other bases."""
    ancestors, is_complete, queue = [owner], True, [(owner, _MAX_DEPTH)]
    while queue:
        derived, depth = queue.pop(0)
        for node in derived.node.bases:
            name = node.value if isinstance(node, ast.Subscript) else node
            base = evaluator.evaluate(name, derived.scope)
            if isinstance(base, Class) and depth:
                if all(base.node is not present.node for present in ancestors):
                    ancestors.append(base)
                    queue.append((base, depth - 1))
            elif get_last_name(name) not in _PLAIN_BASES:
                is_complete = False
    return ancestors, is_complete


def find_method(evaluator: Evaluator, owner: Class, name: str, instance: Any = None) -> Function | None:
    """Return a method of a class, bound to an instance or to the class, or None if the script does not define it."""
    return _find_method(find_ancestors(evaluator, owner)[0], owner, name, instance)


def find_base_method(evaluator: Evaluator, bases: Bases, name: str) -> Function | None:
    """Return the method that `super()` finds, or None if the script does not define it."""
    return _find_method(find_ancestors(evaluator, bases.derived)[0][1:], bases.derived, name, bases.instance)


def _find_method(ancestors: list[Class], owner: Class, name: str, instance: Any) -> Function | None:
    for definer in ancestors:
        for member in reversed(definer.node.body):
            if isinstance(member, _FUNCTIONS) and member.name == name:
                return _bind_method(member, definer, owner, instance)
    return None


def _bind_method(
    member: ast.FunctionDef | ast.AsyncFunctionDef, definer: Class, owner: Class, instance: Any
) -> Function:
    decorators = {get_last_name(decorator) for decorator in member.decorator_list}
    receiver = None if "staticmethod" in decorators else owner if "classmethod" in decorators else instance or owner
    scope = Scope(definer.scope, definer.scope.level)
    scope.names["super()"] = Bases(receiver, definer)
    return Function(member, scope, receiver)


def create_instance(evaluator: Evaluator, owner: Class, arguments: Arguments, node: ast.Call) -> Record:
    """Return a record of a new instance of a class of the script, after following its constructor.

    Keys that its methods set on other objects become unknown in the records passed as arguments.
    """
    ancestors, is_plain = find_ancestors(evaluator, owner)
    shape = evaluator.get_shape(owner.node)
    constructor = find_method(evaluator, owner, "__init__") if is_plain else None
    fields = dict.fromkeys(
        field
        for item in reversed(ancestors if is_plain else [owner])
        for field in evaluator.get_shape(item.node).fields
    )
    record = evaluator.build_record(node, owner.node.name, arguments, tuple(fields))
    if constructor is not None:  # it decides what its arguments set
        record.entries[1:], record.open = [], ""
        record.put(record.entries[0])
        record.objects.clear()
    record.sealed = record.sealed or "it is an object of the script's own class"
    for value in (*arguments.positional, *(argument.value for argument in arguments.keywords.values())):
        if isinstance(value, Record):
            stored = [entry.name for entry in value.entries if entry.name in shape.stored_keys]
            mappings.alter_attributes(evaluator, value, [name for name in stored if name is not None], node)
    if not is_plain:
        evaluator.spend_steps(len(shape.self_attributes))
        for name in shape.self_attributes:
            key = Scalar(evaluator.document.find_span(node), name, value=name)
            evaluator.put(record, Entry(key, evaluator.build_unknown(node, f"{owner.node.name} sets {name} itself")))
        return record
    record.owner = owner
    initializer = find_method(evaluator, owner, "__post_init__" if constructor is None else "__init__", record)
    if initializer is not None:
        evaluator.apply_call(initializer, Arguments() if constructor is None else arguments, node)
    return record


def imagine_instance(evaluator: Evaluator, owner: Class) -> Record:
    """Return an instance that no statement of the script creates, after following its constructor.

    Attributes that several methods set depend on which of them runs last.
    """
    statement = owner.node.body[0]
    record = Record(evaluator.document.find_span(statement), [], open_=IMAGINED)
    record.owner = owner
    record.sealed = "it is an object of the script's own class"
    constructor = find_method(evaluator, owner, "__init__", record)
    if constructor is not None:
        evaluator.apply_call(constructor, Arguments(is_complete=False, is_assumed=True), statement)
    for name in [entry.name for entry in record.entries]:
        setters = [] if name is None else _list_setters(evaluator, owner, name)
        present = record.get(name) if name is not None and setters else None
        if present is not None and not _is_none(present.value):
            step = evaluator.build_condition(f"`{setters[0].name}` may set it", setters[0])
            evaluator.put(record, Entry(present.key, mark_conditional(present.value, step)))
    return record


def find_attribute(evaluator: Evaluator, record: Record, name: str) -> Any:
    """Return an attribute of an instance that no statement has set yet, or None.

    Its class declares it, or the only method that sets it has not run on an imagined instance. A value that is a node
    also becomes an entry of the record.
    """
    assert record.owner is not None
    present = record.get(name)
    if record.open == IMAGINED and (present is None or _is_none(present.value)) and name not in record.objects:
        setters = _list_setters(evaluator, record.owner, name)
        if len(setters) == 1 and id(setters[0]) not in evaluator.active_functions:
            _enter_apart(evaluator, record, setters[0].name)
    if name in record.objects or record.get(name) is not None:
        return record.objects.get(name)
    for definer in find_ancestors(evaluator, record.owner)[0]:
        shape = evaluator.get_shape(definer.node)
        member = shape.members.get(name)
        if isinstance(member, _FUNCTIONS):
            method = _bind_method(member, definer, record.owner, record)
            is_property = any(get_last_name(decorator) in _PROPERTIES for decorator in member.decorator_list)
            return evaluator.apply_call(method, Arguments(), member) if is_property else method
        if name in shape.members:
            if member is None or (name in shape.fields and record.open and record.open != IMAGINED):
                return None
            value = evaluate_default(evaluator, member, definer.scope)
            if record.open == IMAGINED and name in shape.fields:
                step = evaluator.build_condition(f"the default of `{name}`", member)
                value = mark_conditional(value, step)
                if isinstance(value, Record) and value.call is None:
                    value.open = value.open or f"`{name}` may have other keys"
            if not isinstance(value, Node):
                return value
            span = evaluator.document.find_span(member)
            record.put(Entry(Scalar(span, name, value=name), value))
            return None
    return None


def build_mapping(evaluator: Evaluator, record: Record, has_only_fields: bool) -> Record:
    """Return the attributes of an instance as a dictionary: all of them, or only its fields (`asdict`)."""
    assert record.owner is not None
    fields = [
        field
        for definer in find_ancestors(evaluator, record.owner)[0]
        for field in evaluator.get_shape(definer.node).fields
    ]
    for field in fields:
        find_attribute(evaluator, record, field)
    mapping = evaluator.copy_record(record)
    mapping.owner = None
    for entry in record.entries:
        if entry.name is not None and (entry.name == "_CLASS_" or (has_only_fields and entry.name not in fields)):
            mapping.drop(entry.name)
    if any(record.get(field) is None for field in fields):
        mapping.open = record.open or "some fields cannot be determined"
    return mapping


def evaluate_default(evaluator: Evaluator, member: ast.expr, scope: Scope) -> Any:
    """Return the default of a field: a plain value, or what `field(default=...)` states."""
    if not (isinstance(member, ast.Call) and get_callee_name(member) in _FIELD_FUNCTIONS):
        return evaluator.evaluate(member, scope)
    keywords = {keyword.arg: keyword.value for keyword in member.keywords}
    if "default_factory" in keywords:
        factory = evaluator.evaluate(keywords["default_factory"], scope)
        span = evaluator.document.find_span(member)
        if get_last_name(keywords["default_factory"]) == "dict":
            return Record(span, [])
        if get_last_name(keywords["default_factory"]) == "list":
            return Sequence(span, [], True)
        value = evaluator.apply_call(factory, Arguments(), member) if isinstance(factory, (Class, Function)) else None
        return evaluator.build_unknown(member) if value is None else value
    default = keywords.get("default") or (member.args[0] if member.args else None)
    return evaluator.build_unknown(member) if default is None else evaluator.evaluate(default, scope)


def _enter_apart(evaluator: Evaluator, record: Record, name: str) -> None:
    """Enter a method of an imagined instance with unknown arguments, outside all conditions of the current code."""
    assert record.owner is not None
    method = find_method(evaluator, record.owner, name, record)
    if method is None:
        return
    conditions, evaluator.open_conditions = evaluator.open_conditions, []
    try:
        evaluator.apply_call(method, Arguments(is_complete=False, is_assumed=True), method.node)  # type: ignore[arg-type]
    finally:
        evaluator.open_conditions = conditions


def is_set_after_init(evaluator: Evaluator, owner: Class, name: str) -> bool:
    """Return whether `__post_init__` of a dataclass may replace the value of a field."""
    return any(method.name == "__post_init__" for method in _list_setters(evaluator, owner, name))


def _list_setters(evaluator: Evaluator, owner: Class, name: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the methods of a class, other than its constructor, that assign an attribute of `self`."""
    return [
        member
        for definer in find_ancestors(evaluator, owner)[0]
        for member in definer.node.body
        if isinstance(member, _FUNCTIONS)
        and member.name != "__init__"
        and name in evaluator.get_shape(definer.node).setters.get(member.name, ())
    ]


def _is_none(node: Node) -> bool:
    return isinstance(node, Value) and node.value is None
