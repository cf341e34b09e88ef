"""Checks in a release's code: the words that it accepts for a setting, and refuses all others.

Each function returns None unless the source shows all words: the code that is read ends in a `raise` or an `assert`.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from cfglint_schemas.readers.source import (
    Class,
    Module,
    Source,
    UndecidedError,
    evaluate,
    get_dotted_name,
    list_ancestors,
)

Words = list[Any]


def find_branch_words(tree: ast.AST, module: Module, expression: str, switch: str = "") -> Words | None:
    """Return the words with which branches below `tree` compare an expression, if another word raises an error.

    The expression is a name, or a chain of attributes that ends in `expression`. Branches that only raise refuse their
    words. Branches are `if x == "a": ... elif x in ("b", "c"): ... else: raise`, or returns before a `raise`. A branch
    on the words of `switch` may return: the caller knows the words that are accepted there.
    """
    for body in _list_bodies(tree):
        words = _read_branches(module, body, expression, switch)
        if words is not None:
            return words
    return None


def _list_bodies(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the bodies of functions: anything deeper may not run."""
    yield from (node.body for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def _read_branches(module: Module, body: list[ast.stmt], expression: str, switch: str) -> Words | None:
    words: Words = []
    is_open = False
    for statement in body:
        if isinstance(statement, ast.If):
            if switch and _find_compared_words(module, statement.test, switch):
                continue
            accepted, ends = _read_chain(module, statement, expression)
            words += accepted
            if accepted and ends is True:
                return None if is_open else words
            is_open |= ends is None
        elif isinstance(statement, ast.Raise):
            return None if is_open else words or None
        is_open |= not isinstance(statement, ast.If) and _has_return(statement)
        is_open |= _changes_word(statement, expression)
    return None


def _has_return(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Return) for part in ast.walk(node))


def _changes_word(statement: ast.stmt, expression: str) -> bool:
    """Return whether a statement may replace the word in an expression by another, as an alias does."""
    nodes = [node for node in ast.walk(statement) if isinstance(node, ast.expr) and _is_named(node, expression)]
    is_stored = [isinstance(getattr(node, "ctx", None), ast.Store) for node in nodes]
    return any(is_stored) and not (isinstance(statement, ast.Assign) and all(is_stored))


def _read_chain(module: Module, branch: ast.If, expression: str) -> tuple[Words, bool | None]:
    """Return the words that a chain of branches accepts, and whether it ends in a raise.

    None: it has a branch that may accept other words.
    """
    words: Words = []
    while True:
        compared = _find_compared_words(module, branch.test, expression)
        if not compared:
            return words, None if words or _has_return(branch) else False
        words += () if _is_raise(branch.body) else compared
        if not branch.orelse or _is_raise(branch.orelse):
            return words, bool(branch.orelse)
        following = branch.orelse[0]
        if len(branch.orelse) != 1 or not isinstance(following, ast.If):
            return words, None
        branch = following


def _is_raise(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Raise)


def _find_compared_words(module: Module, test: ast.expr, expression: str) -> Words:
    """Return the words that a condition compares an expression with, or an empty list if it does anything else."""
    if isinstance(test, ast.BoolOp):
        parts = [_find_compared_words(module, value, expression) for value in test.values]
        return [word for part in parts for word in part] if isinstance(test.op, ast.Or) and all(parts) else []
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and _is_named(test.left, expression)):
        return []
    try:
        value = evaluate(module, test.comparators[0])
    except UndecidedError:
        return []
    if isinstance(test.ops[0], ast.Eq):
        return [value]
    return list(value) if isinstance(test.ops[0], ast.In) and isinstance(value, (list, dict)) else []


def _is_named(node: ast.expr, expression: str) -> bool:
    return f".{get_dotted_name(node) or ''}".endswith(f".{expression}")


def find_asserted_words(tree: ast.AST, module: Module, expression: str) -> Words | None:
    """Return the words that an `assert` that always runs in a function below `tree` accepts for an expression."""
    for body in _list_bodies(tree):
        for statement in body:
            if _has_return(statement) or _changes_word(statement, expression):
                break
            if isinstance(statement, ast.Assert) and (
                words := _find_compared_words(module, statement.test, expression)
            ):
                return words
    return None


def find_registered_words(source: Source, folder: str, *decorators: str, argument: str = "") -> Words | None:
    """Return the words that calls of decorators below a folder register, as their first or as a keyword argument."""
    words: Words = []
    for decorator in decorators:
        for module in source.list_modules(folder, decorator.rpartition(".")[2]):
            for call in ast.walk(module.tree):
                if not isinstance(call, ast.Call) or not _is_named(call.func, decorator):
                    continue
                value = next((keyword.value for keyword in call.keywords if keyword.arg == argument), None)
                try:
                    word = evaluate(module, value or call.args[0])
                except (IndexError, UndecidedError):
                    return None
                words += word if isinstance(word, list) else [word]
    return list(dict.fromkeys(words)) or None


def find_field_words(class_: Class) -> Mapping[str, tuple[Words, Collection[str]]]:
    """Return the words that the `__post_init__` of a dataclass accepts for each field, and the fields to leave unset.

    Other words are refused if the fields to leave unset are None: the code replaces the value by theirs.

    Read are asserts and `if self.x not in (...): raise` that run whatever the other fields are. A field that is checked
    only if it is not None accepts None, too. A field to which the code assigns otherwise may accept an alias, so it has
    no words.
    """
    words: dict[str, Words] = {}
    sources: dict[str, set[str]] = {}
    for ancestor in list_ancestors(class_):
        functions = (node for node in ancestor.node.body if isinstance(node, ast.FunctionDef))
        function = next((node for node in functions if node.name == "__post_init__"), None)
        if function is None:
            continue
        local: dict[str, Any] = {}
        for field, other in _list_changed_fields(function):
            sources.setdefault(field, set()).add(other)
        calls_parent = False
        for statement in function.body:
            calls_parent |= ast.unparse(statement).removeprefix("return ") == "super().__post_init__()"
            if _has_return(statement):
                break
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                _evaluate_local(ancestor.module, statement.value, statement.targets[0].id, local)
            for field, accepted in _read_field_check(ancestor.module, statement, local):
                words.setdefault(field, accepted)
        if not calls_parent:
            break
    others = {field: sorted(sources.get(field, ())) for field in words}
    return {field: (accepted, others[field]) for field, accepted in words.items() if "" not in others[field]}


def _list_changed_fields(function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """Yield each field to which a method assigns, with the field that must not be None, or an empty string.

    If the method calls `setattr`, every string may name a field.
    """
    is_set = "setattr" in ast.unparse(function)
    for statement in function.body:
        other = "" if is_set or not isinstance(statement, ast.If) else _find_stated_field(statement)
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                yield _find_self_field(node), other
            elif is_set and isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value, other


def _find_stated_field(branch: ast.If) -> str:
    """Return the field in `if self.field is not None` without other branches, or an empty string."""
    match branch:
        case ast.If(ast.Compare(left, [ast.IsNot()], [ast.Constant(None)]), orelse=[]):
            return _find_self_field(left)
    return ""


def _evaluate_local(module: Module, node: ast.expr, name: str, local: dict[str, Any]) -> None:
    try:
        local[name] = evaluate(module, node, local)
    except UndecidedError:
        local.pop(name, None)


def _read_field_check(module: Module, statement: ast.stmt, local: Mapping[str, Any]) -> Iterable[tuple[str, Words]]:
    if isinstance(statement, ast.If):
        test = statement.test
        if _is_raise(statement.body) and len(statement.body) == 1:
            return _read_membership(module, test, local, ast.NotIn)
        field = _find_stated_field(statement)
        checks = (check for inner in statement.body for check in _read_field_check(module, inner, local))
        return [(name, [*accepted, None]) for name, accepted in checks if field and name == field]
    return _read_membership(module, statement.test, local, ast.In) if isinstance(statement, ast.Assert) else ()


def _read_membership(
    module: Module, test: ast.expr, local: Mapping[str, Any], operator: type[ast.cmpop]
) -> Iterable[tuple[str, Words]]:
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], operator) and (field := _find_self_field(test.left)):
        try:
            accepted = evaluate(module, test.comparators[0], dict(local))
        except UndecidedError:
            return ()
        if isinstance(accepted, list):
            return [(field, accepted)]
    return ()


def _find_self_field(node: ast.expr) -> str:
    """Return the field in `self.field`, or an empty string."""
    head, _, field = (get_dotted_name(node) or "").partition(".")
    return field if head == "self" and "." not in field else ""
