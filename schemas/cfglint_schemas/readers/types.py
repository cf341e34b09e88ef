"""Python annotations as JSON Schema: the accepted values of a key, and its default.

The fragments use `type`, `enum`, `anyOf`, `items`, `additionalProperties`, `$ref`, `pattern` and the bounds of numbers
and lists. A type that another package defines is `{"x-external": NAME}`; its values are unknown.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final

from cfglint_schemas.readers.source import (
    Assignment,
    Class,
    External,
    Field,
    Module,
    Symbol,
    UndecidedError,
    evaluate,
    get_dotted_name,
    is_enum,
    list_members,
    unquote_annotation,
)
from cfglint_train.foundation.frozen import Frozen

Fragment = dict[str, Any]
Refer = Callable[[Class], "str | None"]
"""Function that returns the name of the definition of a class with keys, or None for any other class."""

_SCALARS: Final[dict[str, str]] = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "None": "null",
    "Path": "string",
    "PathLike": "string",
    "PosixPath": "string",
    "StrictStr": "string",
    "StrictInt": "integer",
    "StrictFloat": "number",
    "StrictBool": "boolean",
}
_LISTS: Final = frozenset(("list", "List", "Sequence", "Iterable", "Collection", "set", "Set", "frozenset", "conlist"))
_DICTS: Final = frozenset(("dict", "Dict", "Mapping", "MutableMapping", "DictConfig", "OrderedDict"))
_ANY: Final = frozenset(("Any", "object"))
_BOUNDS: Final[dict[str, str]] = {
    "ge": "minimum",
    "le": "maximum",
    "gt": "exclusiveMinimum",
    "lt": "exclusiveMaximum",
    "min_length": "minItems",
    "MinLen": "minItems",
}


def convert_annotation(
    module: Module, node: ast.expr, refer: Refer, enum_names: bool = False, depth: int = 0
) -> Fragment:
    """Return the schema of an annotation; it is empty if any value is possible.

    With `enum_names`, types mean what they mean to OmegaConf (2.3.0 `_utils.py`: get_list_element_type): enumerations
    accept the names of their members instead of the values, and a tuple of one type any number of values.
    """
    if depth > 20:
        return {}
    module.source.count_steps()
    node = unquote_annotation(node)

    def convert_child(child: ast.expr) -> Fragment:
        return convert_annotation(module, child, refer, enum_names, depth + 1)

    if isinstance(node, ast.Constant) and node.value is None:
        return {"type": "null"}
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return unite([convert_child(node.left), convert_child(node.right)])
    if isinstance(node, ast.Subscript):
        name = (get_dotted_name(node.value) or "").rpartition(".")[2]
        arguments = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        if name == "Optional":
            return unite([convert_child(arguments[0]), {"type": "null"}])
        if name == "Union":
            return unite([convert_child(argument) for argument in arguments])
        if name == "Literal":
            return _convert_literal(module, arguments)
        if name == "Annotated":
            return _apply_metadata(module, convert_child(arguments[0]), arguments[1:])
        if name in _LISTS or (enum_names and name in ("tuple", "Tuple") and len(arguments) == 1):
            items = convert_child(arguments[0])
            return {"type": "array", "items": items} if items else {"type": "array"}
        if name in ("tuple", "Tuple"):
            return _convert_tuple(
                [convert_child(argument) for argument in arguments if not _is_ellipsis(argument)], arguments
            )
        if name in _DICTS:
            values = convert_child(arguments[1]) if len(arguments) > 1 else {}
            return {"type": "object", "additionalProperties": values} if values else {"type": "object"}
        if name in ("type", "Type", "Callable"):
            return {"x-external": name}
        return convert_child(node.value)
    dotted = get_dotted_name(node)
    if dotted is None:
        return {}
    return _convert_name(module, dotted, refer, enum_names, depth)


def _convert_name(module: Module, dotted: str, refer: Refer, enum_names: bool, depth: int) -> Fragment:
    name = dotted.rpartition(".")[2]
    try:
        symbol: Symbol | None = module.resolve_name(dotted)
    except UndecidedError:
        symbol = None
    if isinstance(symbol, Class):
        if is_enum(symbol):
            members_by_name = list_members(symbol)
            values: list[Any] = []
            for value in members_by_name if enum_names else members_by_name.values():
                values.extend([value] if _is_absent(value, values) else [])
            return {"enum": values}
        reference = refer(symbol)
        return {"x-external": symbol.name} if reference is None else {"$ref": f"#/$defs/{reference}"}
    if isinstance(symbol, Assignment):
        return _convert_alias(symbol, refer, enum_names, depth)
    if name in _SCALARS:
        return {"type": _SCALARS[name]}
    if name in _LISTS or name in ("tuple", "Tuple"):
        return {"type": "array"}
    if name in _DICTS:
        return {"type": "object"}
    if name in _ANY:
        return {}
    return {"x-external": symbol.name if isinstance(symbol, External) else dotted}


def _convert_alias(symbol: Assignment, refer: Refer, enum_names: bool, depth: int) -> Fragment:
    """Return the schema of a type alias (`PathOrStr = Union[str, PathLike]`), a NewType or a TypeVar's bound."""
    node = symbol.node
    if isinstance(node, ast.Call):
        callee = (get_dotted_name(node.func) or "").rpartition(".")[2]
        if callee == "NewType" and len(node.args) == 2:
            return convert_annotation(symbol.module, node.args[1], refer, enum_names, depth + 1)
        if callee == "TypeVar":
            bound = next((keyword.value for keyword in node.keywords if keyword.arg == "bound"), None)
            return {} if bound is None else convert_annotation(symbol.module, bound, refer, enum_names, depth + 1)
        return {}
    return convert_annotation(symbol.module, node, refer, enum_names, depth + 1)


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis


def _convert_literal(module: Module, arguments: list[ast.expr]) -> Fragment:
    values: list[Any] = []
    for argument in arguments:
        value = evaluate(module, argument)
        values.extend(value if isinstance(value, list) else [value])
    return {"enum": values}


def _convert_tuple(items: list[Fragment], arguments: list[ast.expr]) -> Fragment:
    if any(_is_ellipsis(argument) for argument in arguments):
        return {"type": "array", "items": items[0]} if items and items[0] else {"type": "array"}
    schema: Fragment = {"type": "array", "minItems": len(items), "maxItems": len(items)}
    if any(items):
        schema["items"] = unite(items)
    return schema


def _apply_metadata(module: Module, schema: Fragment, extras: list[ast.expr]) -> Fragment:
    for extra in extras:
        if not isinstance(extra, ast.Call):
            continue
        name = (get_dotted_name(extra.func) or "").rpartition(".")[2]
        if name in _BOUNDS and extra.args:
            schema = add_bounds(module, schema, {name: extra.args[0]})
        elif name == "Field":
            schema = add_bounds(
                module, schema, {keyword.arg: keyword.value for keyword in extra.keywords if keyword.arg}
            )
        elif name == "StringConstraints":
            schema = _add_pattern(module, schema, extra.keywords)
    return schema


def _add_pattern(module: Module, schema: Fragment, keywords: list[ast.keyword]) -> Fragment:
    """Return the schema of a string with the regular expression of `StringConstraints(pattern=...)`, if it has one."""
    pattern = next((keyword.value for keyword in keywords if keyword.arg == "pattern"), None)
    if pattern is None:
        return schema
    try:
        return {**schema, "pattern": evaluate(module, pattern)}
    except UndecidedError:
        return schema


def add_bounds(module: Module, schema: Fragment, arguments: dict[str, ast.expr]) -> Fragment:
    """Return the schema with the bounds in the arguments of `Field(ge=..., lt=...)`."""
    bounded = dict(schema)
    for name, keyword in _BOUNDS.items():
        if name in arguments:
            try:
                bound = evaluate(module, arguments[name])
            except UndecidedError:
                continue
            # `min_length` limits both strings and lists; the schema only has the bound of a list.
            if isinstance(bound, (int, float)) and (keyword != "minItems" or bounded.get("type") == "array"):
                bounded[keyword] = bound
    return bounded


def unite(parts: list[Fragment]) -> Fragment:
    """Return the union of schemas: plain types in one list, literals in one enumeration, the rest as alternatives."""
    flat: list[Fragment] = []
    for part in parts:
        if part == {}:
            return {}
        if set(part) == {"anyOf"}:
            flat.extend(part["anyOf"])
        elif set(part) == {"type"} and isinstance(part["type"], list):
            flat.extend({"type": name} for name in part["type"])
        else:
            flat.append(part)
    types: list[str] = []
    values: list[Any] = []
    others: list[Fragment] = []
    for part in flat:
        if set(part) == {"type"}:
            if part["type"] not in types:
                types.append(part["type"])
        elif set(part) == {"enum"}:
            values.extend(value for value in part["enum"] if _is_absent(value, values))
        elif part not in others:
            others.append(part)
    if values and "null" in types and not (len(types) > 1 or others):
        return {"enum": [*values, *([None] if _is_absent(None, values) else [])]}
    alternatives: list[Fragment] = [{"enum": values}] if values else []
    alternatives.extend(others)
    if types:
        alternatives.append({"type": types[0] if len(types) == 1 else sorted(types, key=_TYPE_ORDER.index)})
    return alternatives[0] if len(alternatives) == 1 else {"anyOf": alternatives}


_TYPE_ORDER: Final = ("boolean", "integer", "number", "string", "array", "object", "null")


def _is_absent(value: Any, values: list[Any]) -> bool:
    return not any(type(value) is type(other) and value == other for other in values)


class FieldDefault(Frozen):
    """The default of a field: `value`, unless the field is `required` or the default is `computed` at run time."""

    value: Any = None
    required: bool = False
    computed: bool = False

    def build_keywords(self, schema: Fragment) -> Fragment:
        """Return the default as a schema keyword: `default`, `x-required`, or `x-computed` (at run time).

        `5e8` becomes an integer for an integer key. Infinity and NaN count as computed, because JSON has neither.
        """
        if self.required:
            return {"x-required": True}
        value = self.value
        if isinstance(value, float) and schema.get("type") == "integer" and value.is_integer():
            value = int(value)
        if self.computed or (isinstance(value, float) and (value != value or value in (float("inf"), float("-inf")))):
            return {"x-computed": True}
        return {"default": value}


def parse_call(node: ast.expr | None, *callees: str) -> dict[str, ast.expr] | None:
    """Return the keyword arguments of a call to one of `callees` (`Field`, `field`), or None for other expressions.

    The first positional argument counts as `default`.
    """
    if not isinstance(node, ast.Call) or (get_dotted_name(node.func) or "").rpartition(".")[2] not in callees:
        return None
    arguments = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
    if node.args:
        arguments["default"] = node.args[0]
    return arguments


def find_default(field: Field) -> FieldDefault:
    """Return the default of a dataclass or pydantic field."""
    if field.value is None:
        return FieldDefault(required=True)
    arguments = parse_call(field.value, "Field", "field", "HfArg")
    if arguments is None:
        return _evaluate_default(field.owner.module, field.value)
    if "default" in arguments:
        if _is_ellipsis(arguments["default"]):
            return FieldDefault(required=True)
        return _evaluate_default(field.owner.module, arguments["default"])
    factory = arguments.get("default_factory")
    if factory is None:
        return FieldDefault(required=True)
    if isinstance(factory, ast.Lambda):
        return _evaluate_default(field.owner.module, factory.body)
    empty: Any = {"list": [], "dict": {}, "set": [], "tuple": []}.get(get_dotted_name(factory) or "")
    return FieldDefault(computed=True) if empty is None else FieldDefault(empty)


def _evaluate_default(module: Module, node: ast.expr) -> FieldDefault:
    try:
        return FieldDefault(evaluate(module, node))
    except UndecidedError:
        return FieldDefault(computed=True)
