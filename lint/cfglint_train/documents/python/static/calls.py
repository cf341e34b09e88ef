"""Calls of the script's own functions and classes, of library functions, and of methods."""

from __future__ import annotations

import ast

from cfglint_train.documents.document import Entry, Node, Scalar, Sequence, Span, Unknown
from cfglint_train.documents.python.static import mappings, settings_files
from cfglint_train.documents.python.static.evaluator import Evaluator
from cfglint_train.documents.python.static.imported import call_foreign
from cfglint_train.documents.python.static.instances import (
    create_instance,
    find_attribute,
    find_base_method,
)
from cfglint_train.documents.python.static.names import evaluate_attribute
from cfglint_train.documents.python.static.standard import FUNCTIONS, TRANSPARENT, compute_builtin
from cfglint_train.documents.python.tree import Record, Step, Value
from cfglint_train.documents.python.values import (
    Argument,
    Arguments,
    Bases,
    Class,
    External,
    FileText,
    Foreign,
    Function,
    ParsedOptions,
    Partial,
    Scope,
    drop_targets,
    mark_conditional,
    merge_arguments,
)
from cfglint_train.foundation.typed import Any, Final

MAX_CALLS: Final = 16


def evaluate_call(evaluator: Evaluator, node: ast.Call, scope: Scope) -> Any:
    """Return the result of a call expression."""
    function = node.func
    if isinstance(function, ast.Name) and function.id == "super":
        return scope.find("super()") or evaluator.build_opaque(node)
    if isinstance(function, ast.Attribute):
        owner = evaluator.evaluate(function.value, scope)
        if isinstance(owner, FileText) and function.attr in ("read", "readlines"):
            return owner
        if isinstance(owner, Bases):
            method = find_base_method(evaluator, owner, function.attr)
            arguments = _evaluate_arguments(evaluator, node, scope)
            return evaluator.build_opaque(node) if method is None else apply_call(evaluator, method, arguments, node)
        if isinstance(owner, (Record, Value, Sequence)) or (
            isinstance(owner, External) and owner.name.startswith("argparse")
        ):
            return _call_method(evaluator, node, owner, function.attr, _evaluate_arguments(evaluator, node, scope))
        target = evaluate_attribute(evaluator, function, scope) if not isinstance(owner, ParsedOptions) else None
    else:
        target = evaluator.evaluate(function, scope)
    arguments = _evaluate_arguments(evaluator, node, scope)
    if target is None:
        return evaluator.build_opaque(node)
    return apply_call(evaluator, target, arguments, node)


def _evaluate_arguments(evaluator: Evaluator, node: ast.Call, scope: Scope) -> Arguments:
    """Return the evaluated arguments of a call.

    The result is incomplete if `*` is used or if `**` unpacks a mapping whose keys are not all known.
    """
    positional: list[Any] = []
    keywords: dict[str, Argument] = {}
    complete = True
    for item in node.args:
        if isinstance(item, ast.Starred):
            complete = False
            evaluator.evaluate(item.value, scope)
        elif complete:
            positional.append(_place_value(evaluator, evaluator.evaluate(item, scope), item))
    for keyword in node.keywords:
        value = evaluator.evaluate(keyword.value, scope)
        if keyword.arg is not None:
            key = evaluator.document.find_key_span(keyword)
            keywords[keyword.arg] = Argument(_place_value(evaluator, value, keyword.value), key)
        elif isinstance(value, Record):
            evaluator.spend_steps(len(value.entries))
            for entry in value.entries:
                name = entry.name or ""
                keywords.setdefault(name, Argument(value.objects.get(name, entry.value), entry.key.span))
            complete = complete and not value.open
        else:
            complete = False
    return Arguments(tuple(positional), keywords, complete)


def _place_value(evaluator: Evaluator, value: Any, expression: ast.expr) -> Any:
    return evaluator.build_node(value, expression) if isinstance(value, Value) else value


def apply_call(evaluator: Evaluator, target: Any, arguments: Arguments, node: ast.Call | ast.stmt) -> Any:
    """Return the result of calling `target` with `arguments`.

    `node` is the call, or a statement if the call is implicit; then only functions of the script are followed.
    """
    if isinstance(target, Function):
        return _enter_function(evaluator, target, arguments)
    if isinstance(target, Partial):
        return apply_call(evaluator, target.target, merge_arguments(target.arguments, arguments), node)
    if not isinstance(node, ast.Call):
        return None
    if isinstance(target, Class):
        return create_instance(evaluator, target, arguments, node)
    if isinstance(target, Foreign):
        _forget_changed_keys(evaluator, External(target.name), arguments, node)
        result = call_foreign(evaluator, target, arguments, node)
        return evaluator.build_opaque(node) if result is None else result
    if isinstance(target, External):
        return _call_library(evaluator, target, arguments, node)
    return evaluator.build_opaque(node)


def _enter_function(evaluator: Evaluator, function: Function, arguments: Arguments) -> Any:
    node = function.node
    is_recursive = function.owner is not None and id(node) in evaluator.active_functions
    if evaluator.call_depth >= MAX_CALLS or is_recursive:
        return None
    scope = Scope(function.scope, len(evaluator.open_conditions))
    _bind_parameters(evaluator, function, arguments, scope)
    evaluator.entered_functions.add(id(node))
    evaluator.call_depth += 1
    evaluator.active_functions.append(id(node))
    try:
        if isinstance(node, ast.Lambda):
            return evaluator.evaluate(node.body, scope)
        stop = evaluator.walk_block(node.body, scope)
    finally:
        evaluator.call_depth -= 1
        evaluator.active_functions.pop()
    if stop is not None and stop.returns:
        value = stop.value
        for _, step in scope.conditional_returns:
            value = mark_conditional(value, step)
        return value
    return scope.conditional_returns[0][0] if scope.conditional_returns else None


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
                span = arguments.keywords[name].key if name in arguments.keywords else value.span
                value = Value(value.span, value.value, (Step("parameter", name, span), *value.how))
            scope.names[name] = value
        elif name in defaults and arguments.is_complete:
            scope.names[name] = evaluator.evaluate(defaults[name], function.scope)
        elif name in defaults and arguments.is_assumed and not _is_none(defaults[name]):
            default = evaluator.evaluate(defaults[name], function.scope)
            scope.names[name] = mark_conditional(
                drop_targets(default), evaluator.build_condition(f"the default of `{name}`", defaults[name])
            )
        else:
            start = evaluator.document.find_span(parameter).start  # type: ignore[arg-type]
            scope.names[name] = Value(Span(start, start + len(name.encode())), Unknown(f"the argument {name}"))
    if arguments.is_complete:
        _bind_variadic(evaluator, function, arguments, scope)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _bind_variadic(evaluator: Evaluator, function: Function, arguments: Arguments, scope: Scope) -> None:
    """Bind the surplus arguments that a function collects in `*args` and `**kwargs`."""
    parameters = function.node.args
    positional = (*parameters.posonlyargs, *parameters.args)
    if parameters.vararg is not None:
        items = arguments.positional[max(0, len(positional) - (function.owner is not None)) :]
        if items and all(isinstance(item, Node) for item in items):
            span = evaluator.document.find_span(parameters.vararg)  # type: ignore[arg-type]
            scope.names[parameters.vararg.arg] = Sequence(span, [*items], True)
    if parameters.kwarg is not None:
        bound = {parameter.arg for parameter in (*positional, *parameters.kwonlyargs)}
        record = Record(evaluator.document.find_span(parameters.kwarg), [])  # type: ignore[arg-type]
        record.level = len(evaluator.open_conditions)
        for name, argument in arguments.keywords.items():
            if name not in bound and isinstance(argument.value, Node):
                evaluator.put(record, Entry(Scalar(argument.key, name, value=name), argument.value))
            elif name not in bound:
                record.open = f"`{name}` is not a value"
        scope.names[parameters.kwarg.arg] = record


def _call_library(evaluator: Evaluator, target: External, arguments: Arguments, node: ast.Call) -> Any:
    handler = evaluator.handlers.get(target.name)
    if handler is not None:
        result = handler(evaluator, node, arguments)
        if result is not None:
            return result
    result = settings_files.evaluate_library(evaluator, target.name, arguments, node)
    if result is not None:
        return result
    if target.name in FUNCTIONS:
        return compute_builtin(evaluator, target.name, arguments, node)
    if target.name == "functools.partial" and arguments.positional:
        return Partial(arguments.positional[0], arguments._replace(positional=arguments.positional[1:]))
    if target.name in TRANSPARENT and arguments.positional:
        value = arguments.positional[-1]
        return evaluator.copy_record(value) if isinstance(value, Record) and value.call is None else value
    if target.name == "dataclasses.replace" and arguments.positional:
        return evaluator.replace_keys(arguments.positional[0], arguments, node)
    parts = target.parts
    if parts[-1][:1].isupper():
        return evaluator.build_record(node, target.name, arguments, evaluator.fields.get(parts[-1], ()), how=target.how)
    if len(parts) > 1 and parts[-2][:1].isupper():
        fields = evaluator.fields.get(parts[-1], ())
        _forget_changed_keys(evaluator, target, arguments, node)
        return evaluator.build_record(node, ".".join(parts[:-1]), arguments, fields, factory=parts[-1], how=target.how)
    _forget_changed_keys(evaluator, target, arguments, node)
    return evaluator.build_opaque(node)


def _forget_changed_keys(evaluator: Evaluator, target: External, arguments: Arguments, node: ast.Call) -> None:
    """Mark as unknown the keys that a function of another module may change in the records passed to it."""
    values: list[tuple[int | str, Any]] = [*enumerate(arguments.positional)]
    values += [(name, argument.value) for name, argument in arguments.keywords.items()]
    for parameter, value in values:
        if isinstance(value, Record):
            mappings.alter_attributes(evaluator, value, evaluator.find_changes(target, parameter, value), node)


def _call_method(evaluator: Evaluator, node: ast.Call, owner: Any, name: str, arguments: Arguments) -> Any:
    if isinstance(owner, Record):
        member = find_attribute(evaluator, owner, name) if owner.owner is not None else owner.objects.get(name)
        if member is not None:
            return apply_call(evaluator, member, arguments, node)
    if name == "parse_args":
        return evaluator.build_options(node)
    if name == "parse_known_args":
        pair: list[Any] = [evaluator.build_options(node), evaluator.build_unknown(node)]
        return Sequence(evaluator.document.find_span(node), pair, True)
    method = evaluator.methods.get(name)
    if method is not None:
        result = method(evaluator, node, owner, arguments)
        if result is not None:
            return result
    result = settings_files.evaluate_method(evaluator, owner, name, arguments, node)
    if result is not None:
        return result
    if isinstance(owner, Record):
        if name == "replace":
            return evaluator.replace_keys(owner, arguments, node)
        if name == "copy" and owner.call is None:
            return evaluator.copy_record(owner)
        if name in ("copy", "merge") or name.startswith("with_"):
            return owner
        if name == "get":
            return mappings.read_key(evaluator, node, owner, arguments)
        if name in mappings.METHODS:
            return mappings.apply_method(evaluator, node, owner, name, arguments)
        class_entry = owner.get("_CLASS_")
        if class_entry is not None and isinstance(class_entry.value, Value):
            _forget_changed_keys(evaluator, External(f"{class_entry.value.value}.{name}"), arguments, node)
    return evaluator.build_opaque(node)
