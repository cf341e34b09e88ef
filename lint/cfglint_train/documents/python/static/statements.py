"""Statements: code that runs, code that may run, and values that a loop or a handler leaves uncertain.

If a condition cannot be decided, a variable keeps its earlier value or, if it has none, gets the value of the first
branch. The value is marked as depending on the condition. If the chosen value is None and the other is the result of a
call, the result of the call is used instead.
"""

from __future__ import annotations

import ast

from cfglint_train.documents.document import Entry
from cfglint_train.documents.python.static.assignment import assign_target, bind_name, join_names
from cfglint_train.documents.python.static.evaluator import BlockEnd, Evaluator
from cfglint_train.documents.python.static.mappings import REMOVING_METHODS, delete_keys, loosen_keys
from cfglint_train.documents.python.static.operators import evaluate_binary
from cfglint_train.documents.python.static.settings_files import bind_hydra
from cfglint_train.documents.python.static.standard import is_exit
from cfglint_train.documents.python.tree import Record, Step
from cfglint_train.documents.python.values import (
    Class,
    External,
    FileText,
    Function,
    Scope,
    drop_targets,
    evaluate_truth,
    mark_conditional,
)


def walk_block(evaluator: Evaluator, body: list[ast.stmt], scope: Scope) -> BlockEnd | None:
    """Walk statements in order. Return their early end, or None if they run to the end of the block."""
    for statement in body:
        stop = _walk_statement(evaluator, statement, scope)
        if stop is not None:
            return stop
    return None


def _walk_statement(evaluator: Evaluator, node: ast.stmt, scope: Scope) -> BlockEnd | None:
    """Walk one statement. Return the end of its block, or None if the block continues."""
    evaluator.spend_steps()
    if isinstance(node, ast.Assign):
        value = evaluator.evaluate(node.value, scope)
        for target in node.targets:
            assign_target(evaluator, target, value, scope, node.value)
    elif isinstance(node, ast.AnnAssign):
        if node.value is not None:
            assign_target(evaluator, node.target, evaluator.evaluate(node.value, scope), scope, node.value)
    elif isinstance(node, ast.AugAssign):
        _assign_augmented(evaluator, node, scope)
    elif isinstance(node, ast.Delete):
        delete_keys(evaluator, node, scope)
    elif isinstance(node, ast.Return):
        return BlockEnd(evaluator.evaluate(node.value, scope) if node.value is not None else None, True)
    elif isinstance(node, ast.Expr):
        evaluator.evaluate(node.value, scope)
        if is_exit(node):
            return BlockEnd(None, False)
    elif isinstance(node, ast.Raise):
        return BlockEnd(None, False)
    elif isinstance(node, ast.If):
        return _walk_if(evaluator, node, scope)
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        bind_name(evaluator, node.name, bind_hydra(evaluator, Function(node, scope), node.decorator_list), scope)
    elif isinstance(node, ast.ClassDef):
        bind_name(evaluator, node.name, Class(node, scope), scope)
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        _bind_imports(evaluator, node, scope)
    elif isinstance(node, (ast.Global, ast.Nonlocal)):
        scope.declare(node.names, isinstance(node, ast.Global))
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        for item in node.items:
            value = evaluator.evaluate(item.context_expr, scope)
            if item.optional_vars is not None:
                value = value if isinstance(value, FileText) else evaluator.build_unknown(item.context_expr)
                assign_target(evaluator, item.optional_vars, value, scope)
        return walk_block(evaluator, node.body, scope)
    elif isinstance(node, ast.Try):
        return _walk_try(evaluator, node, scope)
    elif isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
        _walk_loop(evaluator, node, scope)
    elif hasattr(ast, "Match") and isinstance(node, ast.Match):
        for case in node.cases:
            _walk_conditional(evaluator, case.body, evaluator.build_condition("match", node), scope)
    return None


def _walk_if(evaluator: Evaluator, node: ast.If, scope: Scope) -> BlockEnd | None:
    test = evaluate_truth(evaluator.evaluate(node.test, scope))
    if test is not None:
        return walk_block(evaluator, node.body if test else node.orelse, scope)
    # A branch that ends the program is not the branch that trains.
    if _is_exit_block(node.body) and not _is_exit_block(node.orelse):
        return walk_block(evaluator, node.orelse, scope)
    if node.orelse and _is_exit_block(node.orelse):
        return walk_block(evaluator, node.body, scope)
    step = evaluator.build_named_condition("if", node.test)
    returns_before = len(scope.conditional_returns)
    body_stop, else_stop = _walk_branches(evaluator, [node.body, *([node.orelse] if node.orelse else [])], step, scope)
    if body_stop is not None and else_stop is not None and body_stop.returns and else_stop.returns:
        del scope.conditional_returns[returns_before:]
        return BlockEnd(mark_conditional(body_stop.value, step), True)
    return None


def _walk_loop(evaluator: Evaluator, node: ast.For | ast.AsyncFor | ast.While, scope: Scope) -> None:
    if isinstance(node, ast.While):
        step = evaluator.build_named_condition("while", node.test)
    else:
        step = evaluator.build_named_condition("for", node.target)
        evaluator.evaluate(node.iter, scope)
        assign_target(evaluator, node.target, evaluator.build_unknown(node.iter), scope)
    # An iteration sees the values that earlier iterations set, so nothing that the body sets is certain.
    _loosen_statements(evaluator, [node], step, scope)
    if isinstance(node, ast.While):
        evaluator.evaluate(node.test, scope)
    _walk_conditional(evaluator, node.body, step, scope)
    _walk_conditional(evaluator, node.orelse, step, scope)


def _loosen_statements(
    evaluator: Evaluator, body: list[ast.stmt], step: Step, scope: Scope, entered: frozenset[int] = frozenset()
) -> None:
    """Mark everything that statements, or functions they call, may set as depending on a condition."""
    for inner in (node for statement in body for node in ast.walk(statement)):
        evaluator.spend_steps()
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            names = scope.find_owner(inner.id).names
            if inner.id in names:
                names[inner.id] = mark_conditional(names[inner.id], step)
        elif isinstance(inner, (ast.Attribute, ast.Subscript)) and isinstance(inner.ctx, ast.Store):
            key = inner.attr if isinstance(inner, ast.Attribute) else getattr(inner.slice, "value", None)
            owner = evaluator.evaluate(inner.value, scope) if _is_plain_name(inner.value) else None
            for record in [owner] if isinstance(owner, Record) else evaluator.records:
                present = record.get(key) if isinstance(key, str) else None
                if present is not None:
                    evaluator.put(record, Entry(present.key, mark_conditional(present.value, step)))
        elif isinstance(inner, ast.Subscript) and isinstance(inner.ctx, ast.Del):
            if _is_plain_name(inner.value):
                loosen_keys(evaluator, inner, inner.slice, evaluator.evaluate(inner.value, scope))
        elif isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
            if inner.func.attr in REMOVING_METHODS and _is_plain_name(inner.func.value):
                key = inner.args[0] if inner.args else None
                loosen_keys(evaluator, inner, key, evaluator.evaluate(inner.func.value, scope))
        elif isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name):
            function = scope.find(inner.func.id)
            if isinstance(function, Function) and id(function.node) not in entered:
                _loosen_call(evaluator, function, step, entered)


def _loosen_call(evaluator: Evaluator, function: Function, step: Step, entered: frozenset[int]) -> None:
    if isinstance(function.node, ast.Lambda):
        return
    function_scope = Scope(function.scope, len(evaluator.open_conditions))
    for node in ast.walk(function.node):
        if isinstance(node, ast.arg):
            function_scope.names[node.arg] = None  # the argument is unknown
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            function_scope.declare(node.names, isinstance(node, ast.Global))
    _loosen_statements(evaluator, function.node.body, step, function_scope, entered | {id(function.node)})


def _walk_conditional(evaluator: Evaluator, body: list[ast.stmt], step: Step, scope: Scope) -> BlockEnd | None:
    """Walk statements that may not run. Return their early end, or None if they run to the end."""
    return _walk_branches(evaluator, [body], step, scope)[0]


def _walk_branches(
    evaluator: Evaluator, bodies: list[list[ast.stmt]], step: Step, scope: Scope
) -> tuple[BlockEnd | None, BlockEnd | None]:
    """Walk one or two branches of which at most one runs. Return their early ends, None for a branch without one."""
    before, branches, stops = scope.names, [], []
    for body in bodies:
        scope.names = dict(before)
        evaluator.open_conditions.append(step)
        stop = walk_block(evaluator, body, scope)
        evaluator.open_conditions.pop()
        if stop is not None and stop.returns:
            scope.conditional_returns.append((mark_conditional(stop.value, step), step))
        branches.append(scope.names if stop is None else before)  # the code after the branch does not see its names
        stops.append(stop)
    join_names(scope, before, branches, step)
    return stops[0], stops[1] if len(stops) > 1 else None


def _walk_try(evaluator: Evaluator, node: ast.Try, scope: Scope) -> BlockEnd | None:
    stop = walk_block(evaluator, node.body, scope)
    continuing = [handler.body for handler in node.handlers if not _is_exit_block(handler.body)]
    if continuing:  # part of the body may not run
        _loosen_statements(evaluator, node.body, evaluator.build_condition("except", node), scope)
        stop = stop if stop is not None and stop.returns else None
    stop = stop or walk_block(evaluator, node.orelse, scope)
    for body in continuing:
        _walk_conditional(evaluator, body, evaluator.build_condition("except", node), scope)
    return walk_block(evaluator, node.finalbody, scope) or stop


def _bind_imports(evaluator: Evaluator, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
    for alias in node.names:
        if isinstance(node, ast.Import):
            name = alias.name if alias.asname else alias.name.split(".")[0]
            scope.names[alias.asname or name] = External(name)
        elif alias.name != "*":
            module = "." * node.level + (node.module or "")
            scope.names[alias.asname or alias.name] = External(f"{module}.{alias.name}")


def _assign_augmented(evaluator: Evaluator, node: ast.AugAssign, scope: Scope) -> None:
    old_value = evaluator.evaluate(node.target, scope)
    new_value = evaluate_binary(evaluator, node.op, old_value, evaluator.evaluate(node.value, scope), node.value)
    assign_target(evaluator, node.target, drop_targets(new_value), scope)


def _is_plain_name(node: ast.expr) -> bool:
    """Return whether an expression is a dotted name, so that evaluating it has no side effects."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _is_exit_block(body: list[ast.stmt]) -> bool:
    """Return whether a block ends with a `raise` or a call that exits."""
    return bool(body) and (isinstance(body[-1], ast.Raise) or is_exit(body[-1]))
