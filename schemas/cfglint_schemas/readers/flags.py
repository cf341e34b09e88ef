"""Command-line flags of argparse: every `add_argument` call, read from the source."""

from __future__ import annotations

import ast
from typing import Final

from cfglint_schemas.readers.additions import ArgumentCall, ArgumentCalls
from cfglint_schemas.readers.source import Module, UndecidedError, evaluate, get_dotted_name
from cfglint_schemas.readers.table import TableKey
from cfglint_schemas.readers.types import FieldDefault, Fragment
from cfglint_train.foundation.frozen import Frozen

_TYPES: Final = {"int": "integer", "float": "number", "str": "string", "bool": "boolean", "str_to_bool": "boolean"}
# Default of a flag with these argparse actions.
_SWITCH_VALUES: Final = {"store_true": False, "store_false": True}


class ParserFlag(Frozen):
    """A flag that an `add_argument` call adds."""

    name: str
    """Long spelling with its dashes, or the first spelling if none is long."""
    key: TableKey
    group: str
    """Object on which `add_argument` is called: `parser`, or the variable of an argument group."""


class ParserFlags(Frozen):
    """The flags of a module's parser."""

    flags: tuple[ParserFlag, ...]
    may_have_more: bool
    """True if the parser may accept more flags (see `ArgumentCalls.may_have_more`)."""


def read_parser(module: Module) -> ParserFlags:
    """Return the flags that a module adds to a parser, in order.

    Functions that create or receive the parser are followed.
    """
    additions, flags = ArgumentCalls(module), []
    for addition in additions.calls:
        names = [
            name
            for name in map(addition.evaluate_argument, addition.call.args)
            if isinstance(name, str) and name[:1] == "-"
        ]
        if not names:
            continue
        long_name = next((name for name in names if name.startswith("--")), names[0])
        assert isinstance(addition.call.func, ast.Attribute)
        key = TableKey(_build_schema(addition, long_name), tuple(name for name in names if name != long_name))
        flags.append(ParserFlag(long_name, key, get_dotted_name(addition.call.func.value) or ""))
    return ParserFlags(tuple(flags), additions.may_have_more)


def _build_schema(addition: ArgumentCall, name: str) -> Fragment:
    words = {word.arg: word.value for word in addition.call.keywords if word.arg}
    action = addition.evaluate_argument(words.get("action"))
    target = addition.evaluate_argument(words.get("dest"), name.lstrip("-").replace("-", "_"))
    destination = {} if target == name.lstrip("-").replace("-", "_") else {"x-sets": target}
    if action in _SWITCH_VALUES:
        default = addition.evaluate_argument(words.get("default"), _SWITCH_VALUES[action])
        return {"type": "boolean", "default": default, "x-flag": True, **destination}
    schema = _apply_nargs(addition, words, _build_type(addition, words))
    return {**schema, **_read_default(addition, words).build_keywords(schema), **destination}


def _build_type(addition: ArgumentCall, words: dict[str, ast.expr]) -> Fragment:
    choices = addition.evaluate_argument(words.get("choices"))
    if isinstance(choices, list):
        return {"enum": choices}
    return {"type": _TYPES.get(get_dotted_name(words["type"]) or "", "string") if "type" in words else "string"}


def _apply_nargs(addition: ArgumentCall, words: dict[str, ast.expr], item: Fragment) -> Fragment:
    nargs = addition.evaluate_argument(words.get("nargs"))
    if nargs == "?":
        return {**item, "x-optional": True}
    if nargs not in ("*", "+") and not isinstance(nargs, int):
        return item
    array: Fragment = {"type": "array", "items": item}
    if nargs != "*":
        array["minItems"] = 1 if nargs == "+" else nargs
    if isinstance(nargs, int):
        array["maxItems"] = nargs
    if isinstance(nargs, int) and nargs > 1:
        return array
    # A list of one word looks like a single word on the command line; an empty list looks like a switch.
    return {"anyOf": [array, item, {"enum": [True]}] if nargs == "*" else [array, item]}


def _read_default(addition: ArgumentCall, words: dict[str, ast.expr]) -> FieldDefault:
    if addition.evaluate_argument(words.get("required")):
        return FieldDefault(required=True)
    if "default" not in words:
        return FieldDefault()
    try:
        return FieldDefault(evaluate(addition.module, words["default"], addition.local))
    except UndecidedError:
        return FieldDefault(computed=True)
