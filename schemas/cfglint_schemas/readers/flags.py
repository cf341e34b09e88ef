"""Command-line flags as argparse gets them: every `add_argument` call, read from the text."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, Final

from cfglint_schemas.readers.source import External, Function, Module, UndecidedError, dotted_name, evaluate
from cfglint_schemas.readers.table import Key
from cfglint_schemas.readers.types import Default, Fragment
from cfglint_train.foundation.frozen import Frozen

_TYPES: Final = {"int": "integer", "float": "number", "str": "string", "bool": "boolean", "str_to_bool": "boolean"}
# What argparse's own actions put into the namespace.
_SWITCHES: Final = {"store_true": False, "store_false": True}
_OF_PARSERS: Final = ("add_argument", "parse_args")
# Packages whose parsers have no flags of their own.
_PARSERS: Final = ("argparse", "configargparse")


class Flag(Frozen):
    """One `add_argument` call."""

    name: str
    """The long spelling, dashes included."""
    key: Key
    group: str
    """The variable that the call is made on: `parser`, or that of an argument group."""


def flags(module: Module) -> Iterator[Flag]:
    """Every flag that a module adds to a parser, here or in functions that it hands the parser to, in order."""
    for addition in _all(module):
        names = [name for name in map(addition.value, addition.call.args) if isinstance(name, str) and name[:1] == "-"]
        if not names:
            continue
        long = next((name for name in names if name.startswith("--")), names[0])
        assert isinstance(addition.call.func, ast.Attribute)
        key = Key(_schema(addition, long), tuple(name for name in names if name != long))
        yield Flag(long, key, dotted_name(addition.call.func.value) or "")


def _all(module: Module) -> Iterator[_Addition]:
    seen: set[str] = set()
    for call in _making(module):
        maker = _maker(module, call)
        if isinstance(maker, Function):
            yield from _of_function(module, maker, seen)
    yield from _additions(module, module.tree, {}, seen)


def may_have_more(module: Module) -> bool:
    """Whether the parser of a module comes from a function whose text is not there: its flags are unknown."""
    return any(isinstance(_maker(module, call), External) for call in _making(module))


def _making(module: Module) -> Iterator[ast.Call]:
    """The calls whose result a module adds flags to, or reads the command line with."""
    nodes = [node for node in ast.walk(module.tree) if isinstance(node, (ast.Attribute, ast.Assign))]
    parsers = {
        node.value.id
        for node in nodes
        if isinstance(node, ast.Attribute) and node.attr in _OF_PARSERS and isinstance(node.value, ast.Name)
    }
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            if not parsers.isdisjoint(names):
                yield node.value


def _maker(module: Module, call: ast.Call) -> Function | External | None:
    """The function that makes a parser: None for one of argparse, of the parser itself, and one that is not found."""
    name = dotted_name(call.func)
    try:
        symbol = module.resolve(name) if name else None
    except UndecidedError:
        return None
    if isinstance(symbol, External):
        return None if symbol.name.partition(".")[0] in _PARSERS else symbol
    return symbol if isinstance(symbol, Function) else None


class _Addition(Frozen):
    """One `add_argument` call, with the values of the loop variables around it."""

    module: Module
    call: ast.Call
    local: dict[str, Any]

    def value(self, node: ast.expr | None, otherwise: Any = None) -> Any:
        """What an argument evaluates to."""
        if node is None:
            return otherwise
        try:
            return evaluate(self.module, node, self.local)
        except UndecidedError:
            return otherwise


def _additions(module: Module, tree: ast.AST, local: dict[str, Any], seen: set[str]) -> Iterator[_Addition]:
    for node in ast.iter_child_nodes(tree):
        module.source.step()
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            for value in _values(module, node.iter, local):
                for statement in node.body:
                    yield from _additions(module, ast.Module([statement], []), {**local, node.target.id: value}, seen)
            continue
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
                yield _Addition(module, node, local)
            elif any(isinstance(argument, ast.Name) and argument.id == "parser" for argument in node.args):
                yield from _elsewhere(module, node, seen)
        yield from _additions(module, node, local, seen)
        if isinstance(node, (ast.Assign, ast.Expr)) and _parses(node):
            return  # what is added behind it comes too late


def _parses(statement: ast.stmt) -> bool:
    """Whether a statement reads the command line."""
    return any(isinstance(node, ast.Attribute) and node.attr == "parse_args" for node in ast.walk(statement))


def _values(module: Module, node: ast.expr, local: dict[str, Any]) -> list[Any]:
    try:
        values = evaluate(module, node, local)
    except UndecidedError:
        return []
    return values if isinstance(values, list) else []


def _elsewhere(module: Module, call: ast.Call, seen: set[str]) -> Iterator[_Addition]:
    """The additions of a function of another module that gets the parser."""
    name = dotted_name(call.func)
    try:
        symbol = module.resolve(name) if name else None
    except UndecidedError:
        return
    if isinstance(symbol, External) and module.source.lacks(symbol.name):
        raise UndecidedError(f"{symbol.name}, which adds flags, is missing")
    if isinstance(symbol, Function):
        yield from _of_function(module, symbol, seen)


def _of_function(module: Module, function: Function, seen: set[str]) -> Iterator[_Addition]:
    """The additions of a function of another module, once; those of the module itself are met where they are."""
    place = f"{function.module.name}.{function.node.name}"
    if function.module is not module and place not in seen:
        seen.add(place)
        yield from _additions(function.module, function.node, {}, seen)


def _schema(addition: _Addition, name: str) -> Fragment:
    words = {word.arg: word.value for word in addition.call.keywords if word.arg}
    action = addition.value(words.get("action"))
    target = addition.value(words.get("dest"), name.lstrip("-").replace("-", "_"))
    elsewhere = {} if target == name.lstrip("-").replace("-", "_") else {"x-sets": target}
    if action in _SWITCHES:
        default = addition.value(words.get("default"), _SWITCHES[action])
        return {"type": "boolean", "default": default, "x-flag": True, **elsewhere}
    schema = _repeated(addition, words, _kind(addition, words))
    return {**schema, **_default(addition, words).keywords(schema), **elsewhere}


def _kind(addition: _Addition, words: dict[str, ast.expr]) -> Fragment:
    choices = addition.value(words.get("choices"))
    if isinstance(choices, list):
        return {"enum": choices}
    return {"type": _TYPES.get(dotted_name(words["type"]) or "", "string") if "type" in words else "string"}


def _repeated(addition: _Addition, words: dict[str, ast.expr], one: Fragment) -> Fragment:
    nargs = addition.value(words.get("nargs"))
    if nargs == "?":
        return {**one, "x-optional": True}
    if nargs not in ("*", "+") and not isinstance(nargs, int):
        return one
    several: Fragment = {"type": "array", "items": one}
    if nargs != "*":
        several["minItems"] = 1 if nargs == "+" else nargs
    if isinstance(nargs, int):
        several["maxItems"] = nargs
    if isinstance(nargs, int) and nargs > 1:
        return several
    # Of a list of one word a command line shows no more than the word, and of an empty one no more than the flag.
    return {"anyOf": [several, one, {"enum": [True]}] if nargs == "*" else [several, one]}


def _default(addition: _Addition, words: dict[str, ast.expr]) -> Default:
    if addition.value(words.get("required")):
        return Default(required=True)
    if "default" not in words:
        return Default()
    try:
        return Default(evaluate(addition.module, words["default"], addition.local))
    except UndecidedError:
        return Default(computed=True)
