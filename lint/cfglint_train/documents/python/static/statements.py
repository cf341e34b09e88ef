"""Statements: what runs, what may run, and what a loop or a handler leaves uncertain.

Where a condition cannot be decided, the value that holds if it is false stays, marked as depending on it; of None and
what a call makes, the latter counts.
"""

from __future__ import annotations

import ast

from cfglint_train.documents.document import Entry
from cfglint_train.documents.python.static.assignment import assign, bind
from cfglint_train.documents.python.static.evaluator import Evaluator, Stop
from cfglint_train.documents.python.static.mappings import TAKING, delete, loosen
from cfglint_train.documents.python.static.operators import binary
from cfglint_train.documents.python.static.standard import exits
from cfglint_train.documents.python.tree import Record, Step
from cfglint_train.documents.python.values import Class, External, Function, Scope, elsewhere, hedged, truth


def block(evaluator: Evaluator, body: list[ast.stmt], scope: Scope) -> Stop | None:
    """Walk statements in order; what ended them early, if anything."""
    for statement in body:
        stop = _statement(evaluator, statement, scope)
        if stop is not None:
            return stop
    return None


def _statement(evaluator: Evaluator, node: ast.stmt, scope: Scope) -> Stop | None:
    """Walk one statement; what ended its block, if it did."""
    evaluator.step()
    if isinstance(node, ast.Assign):
        value = evaluator.value(node.value, scope)
        for target in node.targets:
            assign(evaluator, target, value, scope)
    elif isinstance(node, ast.AnnAssign):
        if node.value is not None:
            assign(evaluator, node.target, evaluator.value(node.value, scope), scope)
    elif isinstance(node, ast.AugAssign):
        _augment(evaluator, node, scope)
    elif isinstance(node, ast.Delete):
        delete(evaluator, node, scope)
    elif isinstance(node, ast.Return):
        return Stop(evaluator.value(node.value, scope) if node.value is not None else None, True)
    elif isinstance(node, ast.Expr):
        evaluator.value(node.value, scope)
        if exits(node):
            return Stop(None, False)
    elif isinstance(node, ast.Raise):
        return Stop(None, False)
    elif isinstance(node, ast.If):
        return _if(evaluator, node, scope)
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        bind(evaluator, node.name, Function(node, scope), scope)
    elif isinstance(node, ast.ClassDef):
        bind(evaluator, node.name, Class(node, scope), scope)
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        _import(evaluator, node, scope)
    elif isinstance(node, (ast.Global, ast.Nonlocal)):
        scope.declare(node.names, isinstance(node, ast.Global))
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        for item in node.items:
            evaluator.value(item.context_expr, scope)
            if item.optional_vars is not None:
                assign(evaluator, item.optional_vars, evaluator.unknown(item.context_expr), scope)
        return block(evaluator, node.body, scope)
    elif isinstance(node, ast.Try):
        return _try(evaluator, node, scope)
    elif isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
        _loop(evaluator, node, scope)
    elif hasattr(ast, "Match") and isinstance(node, ast.Match):
        for case in node.cases:
            _perhaps(evaluator, case.body, evaluator.condition("match", node), scope)
    return None


def _if(evaluator: Evaluator, node: ast.If, scope: Scope) -> Stop | None:
    test = truth(evaluator.value(node.test, scope))
    if test is not None:
        return block(evaluator, node.body if test else node.orelse, scope)
    # A branch that ends the program is not the one that trains.
    if _ends(node.body) and not _ends(node.orelse):
        return block(evaluator, node.orelse, scope)
    if node.orelse and _ends(node.orelse):
        return block(evaluator, node.body, scope)
    step = evaluator.named_condition("if", node.test)
    before = len(scope.returned)
    taken = _perhaps(evaluator, node.body, step, scope)
    other = _perhaps(evaluator, node.orelse, step, scope) if node.orelse else None
    if taken is not None and other is not None and taken.returns and other.returns:
        del scope.returned[before:]
        return Stop(hedged(taken.value, step), True)
    return None


def _loop(evaluator: Evaluator, node: ast.For | ast.AsyncFor | ast.While, scope: Scope) -> None:
    if isinstance(node, ast.While):
        step = evaluator.named_condition("while", node.test)
    else:
        step = evaluator.named_condition("for", node.target)
        evaluator.value(node.iter, scope)
        assign(evaluator, node.target, evaluator.unknown(node.iter), scope)
    # A later turn finds what an earlier one left: nothing that the body sets is certain when it is walked.
    _loosen(evaluator, [node], step, scope)
    if isinstance(node, ast.While):
        evaluator.value(node.test, scope)
    _perhaps(evaluator, node.body, step, scope)
    _perhaps(evaluator, node.orelse, step, scope)


def _loosen(
    evaluator: Evaluator, body: list[ast.stmt], step: Step, scope: Scope, entered: frozenset[int] = frozenset()
) -> None:
    """Mark all that statements may set, they or the functions that they call, as resting on a condition."""
    for inner in (found for statement in body for found in ast.walk(statement)):
        evaluator.step()
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            names = scope.owner(inner.id).names
            if inner.id in names:
                names[inner.id] = hedged(names[inner.id], step)
        elif isinstance(inner, (ast.Attribute, ast.Subscript)) and isinstance(inner.ctx, ast.Store):
            key = inner.attr if isinstance(inner, ast.Attribute) else getattr(inner.slice, "value", None)
            owner = evaluator.value(inner.value, scope) if _plain(inner.value) else None
            for record in [owner] if isinstance(owner, Record) else evaluator.made:
                present = record.get(key) if isinstance(key, str) else None
                if present is not None:
                    evaluator.put(record, Entry(present.key, hedged(present.value, step)))
        elif isinstance(inner, ast.Subscript) and isinstance(inner.ctx, ast.Del):
            if _plain(inner.value):
                loosen(evaluator, inner, inner.slice, evaluator.value(inner.value, scope))
        elif isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
            if inner.func.attr in TAKING and _plain(inner.func.value):
                key = inner.args[0] if inner.args else None
                loosen(evaluator, inner, key, evaluator.value(inner.func.value, scope))
        elif isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name):
            function = scope.find(inner.func.id)
            if isinstance(function, Function) and id(function.node) not in entered:
                _loosen_call(evaluator, function, step, entered)


def _loosen_call(evaluator: Evaluator, function: Function, step: Step, entered: frozenset[int]) -> None:
    if isinstance(function.node, ast.Lambda):
        return
    inside = Scope(function.scope, len(evaluator.undecided))
    for node in ast.walk(function.node):
        if isinstance(node, ast.arg):
            inside.names[node.arg] = None  # whatever it is given
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            inside.declare(node.names, isinstance(node, ast.Global))
    _loosen(evaluator, function.node.body, step, inside, entered | {id(function.node)})


def _perhaps(evaluator: Evaluator, body: list[ast.stmt], step: Step, scope: Scope) -> Stop | None:
    """Walk statements that may or may not run."""
    evaluator.undecided.append(step)
    stop = block(evaluator, body, scope)
    evaluator.undecided.pop()
    if stop is not None and stop.returns:
        scope.returned.append((hedged(stop.value, step), step))
    return stop


def _try(evaluator: Evaluator, node: ast.Try, scope: Scope) -> Stop | None:
    stop = block(evaluator, node.body, scope)
    going = [handler.body for handler in node.handlers if not _ends(handler.body)]
    if going:  # some of what the body sets may not be reached
        _loosen(evaluator, node.body, evaluator.condition("except", node), scope)
        stop = stop if stop is not None and stop.returns else None
    stop = stop or block(evaluator, node.orelse, scope)
    for body in going:
        _perhaps(evaluator, body, evaluator.condition("except", node), scope)
    return block(evaluator, node.finalbody, scope) or stop


def _import(evaluator: Evaluator, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
    for alias in node.names:
        if isinstance(node, ast.Import):
            name = alias.name if alias.asname else alias.name.split(".")[0]
            scope.names[alias.asname or name] = External(name)
        elif alias.name != "*":
            module = "." * node.level + (node.module or "")
            scope.names[alias.asname or alias.name] = External(f"{module}.{alias.name}")


def _augment(evaluator: Evaluator, node: ast.AugAssign, scope: Scope) -> None:
    before = evaluator.value(node.target, scope)
    after = binary(evaluator, node.op, before, evaluator.value(node.value, scope), node.value)
    assign(evaluator, node.target, elsewhere(after), scope)


def _plain(node: ast.expr) -> bool:
    """Whether an expression only names something: reading it changes nothing."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _ends(body: list[ast.stmt]) -> bool:
    """Whether a block ends the program."""
    return bool(body) and (isinstance(body[-1], ast.Raise) or exits(body[-1]))
