"""Command-line flags as argparse gets them: every `add_argument` call, read from the text."""

from __future__ import annotations

import ast
from typing import Final

from cfglint_schemas.readers.additions import Addition, Additions
from cfglint_schemas.readers.source import Module, UndecidedError, dotted_name, evaluate
from cfglint_schemas.readers.table import Key
from cfglint_schemas.readers.types import Default, Fragment
from cfglint_train.foundation.frozen import Frozen

_TYPES: Final = {"int": "integer", "float": "number", "str": "string", "bool": "boolean", "str_to_bool": "boolean"}
# What argparse's own actions put into the namespace.
_SWITCHES: Final = {"store_true": False, "store_false": True}


class Flag(Frozen):
    """One `add_argument` call."""

    name: str
    """The long spelling, dashes included."""
    key: Key
    group: str
    """The variable that the call is made on: `parser`, or that of an argument group."""


class Parser(Frozen):
    """The flags of a module's parser."""

    flags: tuple[Flag, ...]
    may_have_more: bool
    """Whether it may take flags beside those (see `Additions`)."""


def parser(module: Module) -> Parser:
    """The flags that a module adds to a parser, here or in functions that make it or get it, in order."""
    additions, found = Additions(module), []
    for addition in additions.found:
        names = [name for name in map(addition.value, addition.call.args) if isinstance(name, str) and name[:1] == "-"]
        if not names:
            continue
        long = next((name for name in names if name.startswith("--")), names[0])
        assert isinstance(addition.call.func, ast.Attribute)
        key = Key(_schema(addition, long), tuple(name for name in names if name != long))
        found.append(Flag(long, key, dotted_name(addition.call.func.value) or ""))
    return Parser(tuple(found), additions.may_have_more)


def _schema(addition: Addition, name: str) -> Fragment:
    words = {word.arg: word.value for word in addition.call.keywords if word.arg}
    action = addition.value(words.get("action"))
    target = addition.value(words.get("dest"), name.lstrip("-").replace("-", "_"))
    elsewhere = {} if target == name.lstrip("-").replace("-", "_") else {"x-sets": target}
    if action in _SWITCHES:
        default = addition.value(words.get("default"), _SWITCHES[action])
        return {"type": "boolean", "default": default, "x-flag": True, **elsewhere}
    schema = _repeated(addition, words, _kind(addition, words))
    return {**schema, **_default(addition, words).keywords(schema), **elsewhere}


def _kind(addition: Addition, words: dict[str, ast.expr]) -> Fragment:
    choices = addition.value(words.get("choices"))
    if isinstance(choices, list):
        return {"enum": choices}
    return {"type": _TYPES.get(dotted_name(words["type"]) or "", "string") if "type" in words else "string"}


def _repeated(addition: Addition, words: dict[str, ast.expr], one: Fragment) -> Fragment:
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


def _default(addition: Addition, words: dict[str, ast.expr]) -> Default:
    if addition.value(words.get("required")):
        return Default(required=True)
    if "default" not in words:
        return Default()
    try:
        return Default(evaluate(addition.module, words["default"], addition.local))
    except UndecidedError:
        return Default(computed=True)
