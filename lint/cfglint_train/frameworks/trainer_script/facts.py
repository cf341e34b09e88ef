"""Entries of the tree that represents a script, and lookups in its functions, classes and imports."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from cfglint_train.documents.document import Entry, Node, Scalar, Span
from cfglint_train.documents.python.script import PythonScript
from cfglint_train.documents.python.static.evaluator import BudgetError, Evaluator
from cfglint_train.documents.python.static.instances import find_method, imagine_instance
from cfglint_train.documents.python.static.modules import find_imports
from cfglint_train.documents.python.static.walk import Walk
from cfglint_train.documents.python.syntax import get_callee_name, get_last_name
from cfglint_train.documents.python.tree import OtherCallSetting, Record, Value
from cfglint_train.documents.python.values import Arguments, Class, Function
from cfglint_train.foundation.typed import Any, Final

_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


def build_entry(name: str, node: Node, place: Span | None = None) -> Entry:
    """Return an entry whose key is at `place`, or at the place of its value by default."""
    return Entry(Scalar(place or node.span, name, value=name), node)


def build_fact(name: str, node: Node, place: Span | None = None) -> OtherCallSetting:
    """Return a fact about a run: a part that is not an argument of any call in the script."""
    return OtherCallSetting(None, "", build_entry(name, node, place))


def get_text(record: Record, name: str) -> str:
    """Return the string value of a key, or an empty string if its value is not a string."""
    entry = record.get(name)
    value = entry.value.value if entry is not None and isinstance(entry.value, Value) else None
    return value if isinstance(value, str) else ""


def get_class(record: Record) -> str:
    """Return the class whose call created a record, with its module if the script imports the class."""
    return get_text(record, "_CLASS_")


def find_field_default(evaluator: Evaluator, owner: Class, name: str) -> Any:
    """Return the default of a field of the script's own class, or None if it has none."""
    member = evaluator.get_shape(owner.node).members.get(name)
    value = evaluator.evaluate(member, owner.scope) if isinstance(member, ast.expr) else None
    if isinstance(value, Record) and get_class(value) == "dataclasses.field":
        default = value.get("default")
        return None if default is None else default.value
    return value


def find_uncalled(evaluator: Evaluator, makes: Callable[[str], object]) -> Iterator[Function]:
    """Yield the module's functions that the walk has not entered and that contain a call of interest.

    `makes` receives the name of the called function and decides whether the call is of interest.
    """
    for value in list(evaluator.module.names.values()):
        if isinstance(value, Function) and id(value.node) not in evaluator.entered_functions:
            calls = (inner for inner in ast.walk(value.node) if isinstance(inner, ast.Call))
            if any(makes(get_callee_name(call)) for call in calls):
                yield value


def enter_uncalled(evaluator: Walk, makes: Callable[[str], object]) -> None:
    """Enter the functions and methods that lead to a call of interest and that the walk has not entered.

    Those that no other of them calls come first. `makes` receives the name of the called function and decides whether
    the call is of interest.
    """
    owners = _list_definitions(evaluator)
    callees = {
        node: {get_callee_name(call) for call in ast.walk(node) if isinstance(call, ast.Call)} for node in owners
    }
    callers: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = {}
    for node, names in callees.items():
        for name in names:
            callers.setdefault(name, []).append(node)
    direct = [node for node in owners if any(map(makes, callees[node] | _list_trainer_names(node)))]
    leading = list(direct)
    present, followed_names = set(direct), set[str]()
    for node in leading:  # grows
        names = {node.name, getattr(owners[node], "name", "")} if node.name == "__init__" else {node.name}
        for name in names - followed_names:
            leading += [other for other in callers.get(name, ()) if other not in present]
            present.update(callers.get(name, ()))
        followed_names |= names
    roots = [node for node in leading if all(other is node for other in callers.get(node.name, ()))]
    instances: dict[int, Record] = {}
    for node in (*sorted(roots, key=lambda node: node.lineno), *sorted(direct, key=lambda node: node.lineno)):
        if id(node) not in evaluator.entered_functions:
            _enter(evaluator, node, owners[node], instances)


def _list_trainer_names(node: ast.AST) -> set[str]:
    """Return the names of trainers that a function mentions, such as in `trainer_class = SFTTrainer`."""
    return {name for inner in ast.walk(node) if "Trainer" in (name := get_last_name(inner))}


def _list_definitions(evaluator: Evaluator) -> dict[ast.FunctionDef | ast.AsyncFunctionDef, Function | Class]:
    """Return the module's functions and the methods of its classes, each with its function or its class."""
    owners: dict[ast.FunctionDef | ast.AsyncFunctionDef, Function | Class] = {}
    for value in list(evaluator.module.names.values()):
        if isinstance(value, Function) and not isinstance(value.node, ast.Lambda):
            owners[value.node] = value
        elif isinstance(value, Class):
            owners.update({item: value for item in value.node.body if isinstance(item, _FUNCTIONS)})
    return owners


def _enter(
    evaluator: Walk,
    node: ast.FunctionDef | ast.AsyncFunctionDef,
    owner: Function | Class,
    instances: dict[int, Record],
) -> None:
    """Enter a function, or a method of an imagined instance, with unknown arguments."""
    arguments = Arguments(is_complete=False, is_assumed=True)
    if isinstance(owner, Function):
        evaluator.try_call(owner, arguments, node)
        return
    try:
        if id(owner.node) not in instances:
            instances[id(owner.node)] = imagine_instance(evaluator, owner)
        method = find_method(evaluator, owner, node.name, instances[id(owner.node)])
    except (BudgetError, RecursionError):
        evaluator.is_exhausted = True
        return
    if method is not None and id(node) not in evaluator.entered_functions:
        before = len(evaluator.records)
        evaluator.try_call(method, arguments, node)
        evaluator.imagined_calls.update(map(id, evaluator.records[before:]))


def count_targets(document: PythonScript, node: ast.Call) -> int:
    """Return the number of names to which a script assigns the objects of a parser, or 0 if it is unknown."""
    targets = [target for item in document.list_nodes(ast.Assign) if item.value is node for target in item.targets]
    names = targets[0].elts if len(targets) == 1 and isinstance(targets[0], (ast.Tuple, ast.List)) else []
    return 0 if any(isinstance(name, ast.Starred) for name in names) else len(names)


def find_full_name(document: PythonScript, node: ast.expr) -> str:
    """Return a name with the module that the script imports it from, or "".

    Empty if no import or several imports provide the name. Relative imports do not count.
    """
    if isinstance(node, ast.Attribute):
        owner = node.value
        modules = {
            alias.asname or alias.name: alias.name
            for statement in document.list_nodes(ast.Import)
            for alias in statement.names
        }
        return f"{modules[owner.id]}.{node.attr}" if isinstance(owner, ast.Name) and owner.id in modules else ""
    imported = find_imports(document, getattr(node, "id", ""))
    names = [f"{module}.{name}" for module, name in imported if not module.startswith(".")]
    return names[0] if len(names) == 1 else ""
