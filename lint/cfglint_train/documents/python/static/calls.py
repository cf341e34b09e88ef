"""Calls: of the script's own functions and classes, of the library, of methods."""

from __future__ import annotations

import ast

from cfglint_train.documents.document import Entry, Node, Scalar, Sequence, Span, Unknown
from cfglint_train.documents.python.static import mappings
from cfglint_train.documents.python.static.evaluator import Evaluator
from cfglint_train.documents.python.static.names import attribute
from cfglint_train.documents.python.static.standard import FUNCTIONS, TRANSPARENT, computed
from cfglint_train.documents.python.tree import Record, Step, Value
from cfglint_train.documents.python.values import (
    Argument,
    Arguments,
    Class,
    External,
    Function,
    Options,
    Partial,
    Scope,
    hedged,
    joined,
)
from cfglint_train.foundation.typed import Any, Final

MAX_CALLS: Final = 16


def call(evaluator: Evaluator, node: ast.Call, scope: Scope) -> Any:
    """What a call in the script yields."""
    function = node.func
    if isinstance(function, ast.Attribute):
        owner = evaluator.value(function.value, scope)
        if isinstance(owner, (Record, Value, Sequence)) or (
            isinstance(owner, External) and owner.name.startswith("argparse")
        ):
            return _method(evaluator, node, owner, function.attr, _arguments(evaluator, node, scope))
        target = attribute(evaluator, function, scope) if not isinstance(owner, Options) else None
    else:
        target = evaluator.value(function, scope)
    arguments = _arguments(evaluator, node, scope)
    if target is None:
        return evaluator.opaque(node)
    return apply(evaluator, target, arguments, node)


def _arguments(evaluator: Evaluator, node: ast.Call, scope: Scope) -> Arguments:
    """The arguments of a call, evaluated."""
    positional: list[Any] = []
    keywords: dict[str, Argument] = {}
    complete = True
    for item in node.args:
        if isinstance(item, ast.Starred):
            complete = False
            evaluator.value(item.value, scope)
        elif complete:
            positional.append(_placed(evaluator, evaluator.value(item, scope), item))
    for keyword in node.keywords:
        value = evaluator.value(keyword.value, scope)
        if keyword.arg is not None:
            key = evaluator.document.key_span(keyword)
            keywords[keyword.arg] = Argument(_placed(evaluator, value, keyword.value), key)
        elif isinstance(value, Record):
            evaluator.step(len(value.entries))
            for entry in value.entries:
                keywords.setdefault(entry.name or "", Argument(entry.value, entry.key.span))
            complete = complete and not value.open
        else:
            complete = False
    return Arguments(tuple(positional), keywords, complete)


def _placed(evaluator: Evaluator, value: Any, where: ast.expr) -> Any:
    return evaluator.node(value, where) if isinstance(value, Value) else value


def apply(evaluator: Evaluator, target: Any, arguments: Arguments, node: ast.Call | ast.stmt) -> Any:
    """What a call yields."""
    if isinstance(target, Function):
        return _enter(evaluator, target, arguments)
    if isinstance(target, Partial):
        return apply(evaluator, target.target, joined(target.arguments, arguments), node)
    if not isinstance(node, ast.Call):
        return None
    if isinstance(target, Class):
        return _instance(evaluator, target, arguments, node)
    if isinstance(target, External):
        return _library(evaluator, target, arguments, node)
    return evaluator.opaque(node)


def _enter(evaluator: Evaluator, function: Function, arguments: Arguments) -> Any:
    node = function.node
    if evaluator.calls >= MAX_CALLS:
        return None
    scope = Scope(function.scope, len(evaluator.undecided))
    _bind_parameters(evaluator, function, arguments, scope)
    evaluator.called.add(id(node))
    evaluator.calls += 1
    try:
        if isinstance(node, ast.Lambda):
            return evaluator.value(node.body, scope)
        stop = evaluator.block(node.body, scope)
    finally:
        evaluator.calls -= 1
    if stop is not None and stop.returns:
        value = stop.value
        for _, step in scope.returned:
            value = hedged(value, step)
        return value
    return scope.returned[0][0] if scope.returned else None


def _bind_parameters(evaluator: Evaluator, function: Function, arguments: Arguments, scope: Scope) -> None:
    parameters = function.node.args
    names = [parameter.arg for parameter in (*parameters.posonlyargs, *parameters.args)]
    values = dict(zip(names, ([function.owner] if function.owner is not None else []) + list(arguments.positional)))
    values.update({name: argument.value for name, argument in arguments.keywords.items()})
    defaults = dict(zip(reversed(names), reversed(parameters.defaults)))
    defaults.update(
        {p.arg: default for p, default in zip(parameters.kwonlyargs, parameters.kw_defaults) if default is not None}
    )
    for parameter in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs):
        name = parameter.arg
        if name in values:
            value = values[name]
            if isinstance(value, Value):
                place = arguments.keywords[name].key if name in arguments.keywords else value.span
                value = Value(value.span, value.value, (Step("parameter", name, place), *value.how))
            scope.names[name] = value
        elif name in defaults and arguments.complete:
            scope.names[name] = evaluator.value(defaults[name], function.scope)
        else:
            start = evaluator.document.span(parameter).start  # type: ignore[arg-type]
            scope.names[name] = Value(Span(start, start + len(name.encode())), Unknown(f"the argument {name}"))
    if arguments.complete:
        _bind_further(evaluator, function, arguments, scope)


def _bind_further(evaluator: Evaluator, function: Function, arguments: Arguments, scope: Scope) -> None:
    """Bind the arguments that `*given` and `**given` of a function take."""
    parameters = function.node.args
    named = (*parameters.posonlyargs, *parameters.args)
    if parameters.vararg is not None:
        items = arguments.positional[max(0, len(named) - (function.owner is not None)) :]
        if items and all(isinstance(item, Node) for item in items):
            place = evaluator.document.span(parameters.vararg)  # type: ignore[arg-type]
            scope.names[parameters.vararg.arg] = Sequence(place, [*items], True)
    if parameters.kwarg is not None:
        taken = {parameter.arg for parameter in (*named, *parameters.kwonlyargs)}
        record = Record(evaluator.document.span(parameters.kwarg), [])  # type: ignore[arg-type]
        record.level = len(evaluator.undecided)
        for name, argument in arguments.keywords.items():
            if name not in taken and isinstance(argument.value, Node):
                evaluator.put(record, Entry(Scalar(argument.key, name, value=name), argument.value))
            elif name not in taken:
                record.open = f"`{name}` is no value"
        scope.names[parameters.kwarg.arg] = record


def _instance(evaluator: Evaluator, owner: Class, arguments: Arguments, node: ast.Call) -> Record:
    """An object of a class of the script: its fields, as far as its own methods leave them alone."""
    shape = evaluator.shape(owner.node)
    record = evaluator.record(node, owner.node.name, arguments, shape.fields)
    for given in (*arguments.positional, *(argument.value for argument in arguments.keywords.values())):
        if isinstance(given, Record):
            kept = [entry.name for entry in given.entries if entry.name in shape.stored]
            mappings.alter(evaluator, given, [name for name in kept if name is not None], node)
    evaluator.step(len(shape.own))
    for name in shape.own:
        key = Scalar(evaluator.document.span(node), name, value=name)
        evaluator.put(record, Entry(key, evaluator.unknown(node, f"{owner.node.name} sets {name} itself")))
    record.sealed = record.sealed or "it is an object of the script's own class"
    return record


def _library(evaluator: Evaluator, target: External, arguments: Arguments, node: ast.Call) -> Any:
    handler = evaluator.handlers.get(target.name)
    if handler is not None:
        answer = handler(evaluator, node, arguments)
        if answer is not None:
            return answer
    if target.name in FUNCTIONS:
        return computed(evaluator, target.name, arguments, node)
    if target.name == "functools.partial" and arguments.positional:
        return Partial(arguments.positional[0], arguments._replace(positional=arguments.positional[1:]))
    if target.name in TRANSPARENT and arguments.positional:
        value = arguments.positional[-1]
        return evaluator.copied(value) if isinstance(value, Record) and value.call is None else value
    if target.name == "dataclasses.replace" and arguments.positional:
        return evaluator.replaced(arguments.positional[0], arguments, node)
    parts = target.parts
    if parts[-1][:1].isupper():
        return evaluator.record(node, target.name, arguments, evaluator.fields.get(parts[-1], ()), how=target.how)
    if len(parts) > 1 and parts[-2][:1].isupper():
        fields = evaluator.fields.get(parts[-1], ())
        _alter(evaluator, target, arguments, node)
        return evaluator.record(node, ".".join(parts[:-1]), arguments, fields, factory=parts[-1], how=target.how)
    _alter(evaluator, target, arguments, node)
    return evaluator.opaque(node)


def _alter(evaluator: Evaluator, target: External, arguments: Arguments, node: ast.Call) -> None:
    """Forget what a function of another module may change of the records that it is given."""
    every: list[tuple[int | str, Any]] = [*enumerate(arguments.positional)]
    every += [(name, argument.value) for name, argument in arguments.keywords.items()]
    for place, given in every:
        if isinstance(given, Record):
            mappings.alter(evaluator, given, evaluator.changes(target, place, given), node)


def _method(evaluator: Evaluator, node: ast.Call, owner: Any, name: str, arguments: Arguments) -> Any:
    if name == "parse_args":
        return evaluator.options(node)
    if name == "parse_known_args":
        pair: list[Any] = [evaluator.options(node), evaluator.unknown(node)]
        return Sequence(evaluator.document.span(node), pair, True)
    method = evaluator.methods.get(name)
    if method is not None:
        answer = method(evaluator, node, owner, arguments)
        if answer is not None:
            return answer
    if isinstance(owner, Record):
        if name == "replace":
            return evaluator.replaced(owner, arguments, node)
        if name == "copy" and owner.call is None:
            return evaluator.copied(owner)
        if name in ("copy", "merge") or name.startswith("with_"):
            return owner
        if name in mappings.METHODS:
            return mappings.method(evaluator, node, owner, name, arguments)
        made_by = owner.get("_CLASS_")
        if made_by is not None and isinstance(made_by.value, Value):
            _alter(evaluator, External(f"{made_by.value.value}.{name}"), arguments, node)
    return evaluator.opaque(node)
