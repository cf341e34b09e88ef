"""Values from other modules of the repository: constants, configurations, and what functions and classes there return.

Each module has a walk of its own, because the places of its values lie in another file. A value that leaves a module
gets the place of the expression that imports it, and no fix changes it.
"""

from __future__ import annotations

import ast
import os

from cfglint_train.documents.document import Entry, Node, Scalar, Sequence, Span, Unknown
from cfglint_train.documents.python.script import PythonScript
from cfglint_train.documents.python.static.evaluator import BudgetError, Evaluator
from cfglint_train.documents.python.static.instances import find_ancestors
from cfglint_train.documents.python.static.modules import find_module
from cfglint_train.documents.python.tree import Record, Step, Value
from cfglint_train.documents.python.values import (
    Argument,
    Arguments,
    Class,
    External,
    Foreign,
    Function,
    ParsedOptions,
    Partial,
    Scope,
    is_conditional,
    mark_conditional,
)
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final

MAX_MODULES: Final = 8
"""Maximum number of modules that the walk over a script also walks."""
MAX_SIZE: Final = 200_000
"""Maximum number of bytes in these modules."""
MAX_IMPORTS: Final = 64
"""Maximum number of modules that are looked up for a script."""
_VALUE: Final = "value"


class _Received(Frozen):
    """A value of another module and its copy in the script, each with its entries at the time of copying."""

    value: Any
    copy: Any
    entries: list[Entry]
    copied_entries: list[Entry]


def resolve_import(evaluator: Evaluator, target: External) -> Foreign | None:
    """Return a class, function or value of another module of the repository, or None if it has no such name.

    A class that derives from a library's class stays a name, which other code follows.
    """
    if target.name not in evaluator.imported:
        evaluator.imported[target.name] = None  # for an import in a circle
        evaluator.imported[target.name] = _find_import(evaluator, target.name)
    foreign: Foreign | None = evaluator.imported[target.name]
    return foreign if foreign is None or not target.how else foreign._replace(how=target.how)


def _find_import(evaluator: Evaluator, name: str) -> Foreign | None:
    module, _, last = name.rpartition(".")
    is_followed = bool(module.strip(".")) and module.partition(".")[0] not in evaluator.libraries
    walk = _open_module(evaluator, module) if is_followed else None
    value = None if walk is None else walk.module.names.get(last)
    if isinstance(value, External):
        return None if walk is None else resolve_import(walk, value)
    if value is None or (isinstance(value, Class) and not find_ancestors(walk or evaluator, value)[1]):
        return None
    return Foreign(walk, value, name)


def _open_module(evaluator: Evaluator, module: str) -> Any:
    """Return the walk over a module of the repository, or None if it is no such module or the budget is spent."""
    walks = evaluator.module_walks
    folder = os.path.dirname(evaluator.document.path)
    key = f"{folder}:{module}" if module.startswith(".") else module
    if key not in walks:
        walks[key] = None
        document = find_module(evaluator.document, module) if len(walks) <= MAX_IMPORTS else None
        walks[key] = None if document is None else _walk_module(evaluator, document)
    return walks[key]


def _walk_module(evaluator: Evaluator, document: PythonScript) -> Any:
    walks = evaluator.module_walks
    path = os.path.abspath(document.path)
    if path in walks:
        return walks[path]
    walks[path] = None
    opened = [walk for name, walk in walks.items() if walk is not None and name == os.path.abspath(walk.document.path)]
    size = sum(len(walk.document.source) for walk in opened) + len(document.source)
    if len(opened) >= MAX_MODULES or size > MAX_SIZE or path == os.path.abspath(evaluator.document.path):
        return None
    walk = evaluator.build_walk(document)
    walk.module_walks, walk.is_program = walks, False
    walk.run()
    evaluator.awaits_file = evaluator.awaits_file or walk.awaits_file
    walks[path] = None if walk.is_exhausted else walk
    return walks[path]


def receive_value(evaluator: Evaluator, foreign: Foreign, node: ast.AST) -> Any:
    """Return a value of another module as a value of the script, at the place of `node`.

    Classes, functions and instances stay in their module.
    """
    span = evaluator.document.find_span(node)  # type: ignore[arg-type]
    present = evaluator.received.get(id(foreign.value))
    if present is not None and _list_entries(foreign.value) == present.entries:
        value = present.copy
    else:  # new, or changed by its module
        value = _convert(evaluator, foreign.walk, foreign.value, span, foreign.name, {}, _find_statement(foreign))
        if present is not None and isinstance(value, Record) and _list_entries(present.copy) != present.copied_entries:
            value.implicit, value.open = True, "its module and the script change it"
            value.entries[:] = []
        evaluator.received[id(foreign.value)] = _Received(
            foreign.value, value, _list_entries(foreign.value), _list_entries(value)
        )
    if isinstance(value, Value):
        value = Value(span, value.value, value.how)
    for step in foreign.how:
        value = mark_conditional(value, step)
    return value


def _find_statement(foreign: Foreign) -> Step | None:
    """Return the place of a constant in its module, where a user edits it, or None for any other value."""
    value = foreign.value
    is_constant = isinstance(value, (Value, Sequence)) or (isinstance(value, Record) and value.call is None)
    if not is_constant or foreign.walk.module.names.get(foreign.name.rpartition(".")[2]) is not value:
        return None
    return Step("file", foreign.name.rpartition(".")[2], value.span, foreign.walk.document)


def _list_entries(value: Any) -> list[Entry]:
    return list(value.entries) if isinstance(value, Record) and value.owner is None else []


def read_foreign_attribute(evaluator: Evaluator, owner: Foreign, name: str, node: ast.expr) -> Any:
    """Return an attribute of a class or an instance of another module."""
    walk, expression = owner.walk, _build_expression(owner.walk, f"{_VALUE}.{name}")
    scope = Scope(walk.module, 0)
    scope.names[_VALUE] = owner.value
    value = _run_apart(walk, lambda: walk.evaluate(expression, scope))
    if value is None:
        return evaluator.build_unknown(node)
    return receive_value(evaluator, Foreign(walk, value, f"{owner.name}.{name}", owner.how), node)


def set_foreign_attribute(evaluator: Evaluator, owner: Foreign, name: str, value: Any) -> None:
    """Set an attribute of an instance of another module; the value is unknown if the statement may not run."""
    walk, record = owner.walk, owner.value
    if not isinstance(record, Record):
        return
    expression = _build_expression(walk, _VALUE)
    span = walk.document.find_span(expression)
    sent = _convert(walk, evaluator, value, span, "", {})
    if evaluator.open_conditions or not isinstance(sent, Node):
        sent = Value(span, Unknown(f"`{name}` is set in another module"))
    _run_apart(walk, lambda: walk.set_key(record, name, sent, span, expression))


def call_foreign(evaluator: Evaluator, target: Foreign, arguments: Arguments, node: ast.expr) -> Any:
    """Return the result of calling a function or a class of another module."""
    walk, expression = target.walk, _build_expression(target.walk, f"{_VALUE}()")
    span, memo = walk.document.find_span(expression), {}  # type: ignore[var-annotated]
    sent = Arguments(
        tuple(_convert(walk, evaluator, value, span, "", memo) for value in arguments.positional),
        {
            name: Argument(_convert(walk, evaluator, argument.value, span, "", memo), span)
            for name, argument in arguments.keywords.items()
        },
        arguments.is_complete,
    )
    value = _run_apart(walk, lambda: walk.apply_call(target.value, sent, expression))
    evaluator.awaits_file = evaluator.awaits_file or walk.awaits_file
    if value is None:
        return None
    name = target.name if isinstance(target.value, Class) else ""
    return receive_value(evaluator, Foreign(walk, value, name, target.how), node)


def _run_apart(walk: Any, work: Any) -> Any:
    """Return the result of work in another module's walk, outside all conditions there, or None if it cannot finish."""
    conditions, walk.open_conditions = walk.open_conditions, []
    try:
        return work()
    except (BudgetError, RecursionError):
        return None
    finally:
        walk.open_conditions = conditions


def _build_expression(walk: Any, text: str) -> ast.expr:
    """Return an expression that is not in the text of a module, located at its first statement."""
    expression = ast.parse(text, mode="eval").body
    first = walk.document.module.body[0]
    for node in ast.walk(expression):
        ast.copy_location(node, first)
    walk.expressions.append(expression)
    return expression


def _convert(
    target: Any, source: Any, value: Any, span: Span, name: str, memo: dict[int, Any], stated: Step | None = None
) -> Any:
    """Return a value of the walk `source` as a value of the walk `target`, at one place.

    `stated`: the place that states the value, unless it was read from a settings file.
    """
    if isinstance(value, Foreign):
        return value.value if value.walk is target else value
    if isinstance(value, (Function, Class, Partial, ParsedOptions)) or getattr(value, "owner", None) is not None:
        return Foreign(source, value, name)
    if isinstance(value, Value):
        return Value(span, value.value, _place_steps(value.how, span, ("depends", "option"), stated))
    if isinstance(value, External):
        return None if value.name.startswith(".") else External(value.name)
    if isinstance(value, Sequence):
        target.spend_steps(1 + len(value.items))
        items = [_convert(target, source, item, span, "", memo, stated) for item in value.items]
        return Sequence(span, [Value(span, Unknown("an item")) if item is None else item for item in items], True)
    if not isinstance(value, Record):
        return None
    if id(value) in memo:
        return memo[id(value)]
    target.spend_steps(1 + len(value.entries))
    record = memo[id(value)] = Record(span, [], open_=value.open)
    record.sealed, record.implicit, record.level = (
        "another module creates it",
        value.implicit,
        len(target.open_conditions),
    )
    record.how = _place_steps(value.how, span, ("depends",), stated)
    if (
        any(step.kind == "depends" for step in record.how) and value.get("_FACTORY_") is None
    ):  # conditions around it may concern releases
        record.implicit, record.open = True, "another module creates it under a condition"
        return record
    for entry in value.entries:
        if value.call is None and is_conditional(entry.value):
            record.open = record.open or "another module may set further keys"
            continue
        inner = None if stated is None else stated._replace(text=entry.name or "", span=entry.span)
        item = _convert(target, source, value.objects.get(entry.name or "", entry.value), span, "", memo, inner)
        node = item if isinstance(item, Node) else Value(span, Unknown(f"`{entry.name}`"))
        target.put(record, Entry(Scalar(span, entry.name or "", value=entry.name), node))
        if item is not None and not isinstance(item, Node):
            record.objects[entry.name or ""] = item
    return record


def _place_steps(steps: tuple[Step, ...], span: Span, kinds: tuple[str, ...], stated: Step | None) -> tuple[Step, ...]:
    """Return the steps of some kinds at a place, after those that lead into a file, or else `stated`."""
    in_file = tuple(step for step in steps if step.kind == "file") or ((stated,) if stated is not None else ())
    return (*in_file, *(Step(step.kind, step.text, span) for step in steps if step.kind in kinds))
