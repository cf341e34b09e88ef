"""Pydantic models and dataclasses as definitions: their fields, and the effect of unknown names."""

from __future__ import annotations

import ast
from typing import Any, Final

from cfglint_schemas.readers.source import (
    Class,
    Field,
    UndecidedError,
    collect_fields,
    evaluate,
    get_dotted_name,
    is_descendant,
    list_ancestors,
)
from cfglint_schemas.readers.table import Definition, TableKey
from cfglint_schemas.readers.types import Fragment, add_bounds, convert_annotation, find_default, parse_call

_EFFECTS: Final = {"ignore": "dropped", "forbid": "error", "allow": "kept"}


class ModelReader:
    """A reader that collects the definitions of a tree of models while it reads their fields.

    Set `enum_names` for OmegaConf: enumeration members are stated by name, not by value. `unknown` is the
    effect of a name that a dataclass lacks; pydantic models state this effect themselves. Set `prefer_alias` if users
    normally write a field's alias.
    """

    __slots__ = ("_classes", "_definitions", "_enum_names", "_prefer_alias", "_unknown")

    def __init__(self, enum_names: bool = False, unknown: str = "error", prefer_alias: bool = False) -> None:
        """Start with no definitions."""
        self._enum_names = enum_names
        self._prefer_alias = prefer_alias
        self._unknown = unknown
        self._classes: dict[str, Class] = {}
        self._definitions: dict[str, Definition] = {}

    def list_definitions(self) -> dict[str, Definition]:
        """Return all definitions that `name_definition` collected, by name."""
        return dict(self._definitions)

    def name_definition(self, class_: Class) -> str | None:
        """Return the name of a model's definition and read it if new; return None for a class that is not a model.

        If two classes have the same name, the first one keeps it, and the name of the second includes its module.
        """
        if not (is_descendant(class_, "BaseModel") or is_dataclass(class_)):
            return None
        name = class_.name
        if name in self._classes and self._classes[name].node is not class_.node:
            name = f"{class_.module.name}.{class_.name}"
        if name not in self._classes:
            self._classes[name] = class_
            self._definitions[name] = Definition(self.read_keys(class_), self.find_unknown_effect(class_))
        return name

    def read_keys(self, class_: Class) -> dict[str, TableKey]:
        """Return a model's keys, including inherited ones, by the name that configurations use."""
        keys: dict[str, TableKey] = {}
        by_name = _is_populated_by_name(class_)
        for field in collect_fields(class_).values():
            if self._enum_names or _is_settable(field):  # OmegaConf sets every field
                name, key = self._read_key(field, by_name)
                keys[name] = key
        return keys

    def find_unknown_effect(self, class_: Class) -> str:
        """Return the effect of a name that the model lacks (pydantic drops it by default)."""
        if not is_descendant(class_, "BaseModel"):
            return self._unknown
        extra = _read_model_config(class_).get("extra", "ignore")
        return _EFFECTS.get(extra, "dropped")

    def _read_key(self, field: Field, by_name: bool) -> tuple[str, TableKey]:
        module = field.owner.module
        schema: Fragment = convert_annotation(module, field.annotation, self.name_definition, self._enum_names)
        arguments = parse_call(field.value, "Field") or {}
        schema = add_bounds(module, schema, arguments)
        schema = {**schema, **find_default(field).build_keywords(schema), **_read_deprecation(arguments)}
        spellings = _read_aliases(field, arguments)
        if spellings and not by_name and field.name not in spellings:
            # pydantic accepts only the alias as an input name.
            return spellings[0], TableKey(schema, tuple(spellings[1:]))
        if spellings and self._prefer_alias:
            return spellings[0], TableKey(schema, tuple(name for name in (*spellings[1:], field.name)))
        return field.name, TableKey(schema, tuple(name for name in spellings if name != field.name))


def _read_deprecation(arguments: dict[str, ast.expr]) -> Fragment:
    """Return the schema keywords of a `Field`'s deprecation; DeepSpeed names the new key in `json_schema_extra`."""
    extra = arguments.get("json_schema_extra")
    if isinstance(extra, ast.Dict):
        words = {key.value: value for key, value in zip(extra.keys, extra.values) if isinstance(key, ast.Constant)}
        arguments = {**{word: value for word, value in words.items() if isinstance(word, str)}, **arguments}
    deprecated = arguments.get("deprecated")
    if deprecated is None or (isinstance(deprecated, ast.Constant) and not deprecated.value):
        return {}
    schema: Fragment = {"deprecated": True}
    replacement = arguments.get("new_param")
    if isinstance(replacement, ast.Constant) and isinstance(replacement.value, str):
        schema["x-replacement"] = replacement.value.split(" or ")
        is_carried = arguments.get("set_new_param")
        schema["x-carried"] = not (isinstance(is_carried, ast.Constant) and is_carried.value is False)
    return schema


def is_dataclass(class_: Class) -> bool:
    """Return whether a class is decorated as a dataclass."""
    return any(
        (get_dotted_name(node.func if isinstance(node, ast.Call) else node) or "").rpartition(".")[2] == "dataclass"
        for node in class_.node.decorator_list
    )


def _is_settable(field: Field) -> bool:
    """Return whether a field can be set; a dataclass field with `field(init=False)` cannot."""
    init = (parse_call(field.value, "field") or {}).get("init")
    return not (isinstance(init, ast.Constant) and init.value is False)


def _read_aliases(field: Field, arguments: dict[str, ast.expr]) -> list[str]:
    """Return the names in a field's `validation_alias`, or else in its `alias`."""
    for argument in ("validation_alias", "alias"):
        node = arguments.get(argument)
        if node is None:
            continue
        words = node.args if isinstance(node, ast.Call) else [node]
        names = []
        for word in words:
            try:
                names.append(evaluate(field.owner.module, word))
            except UndecidedError:
                continue
        return [name for name in names if isinstance(name, str)]
    return []


def _read_model_config(class_: Class) -> dict[str, Any]:
    """Return the settings of a model: its `model_config`, or the inner class `Config` of pydantic 1."""
    for ancestor in list_ancestors(class_):
        for node in ancestor.node.body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "model_config":
                return _read_pairs(ancestor, node.value)
            if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "model_config" and node.value:
                return _read_pairs(ancestor, node.value)
            if isinstance(node, ast.ClassDef) and node.name == "Config":
                return {
                    inner.targets[0].id: _evaluate_setting(ancestor, inner.value)
                    for inner in node.body
                    if isinstance(inner, ast.Assign) and isinstance(inner.targets[0], ast.Name)
                }
    return {}


def _read_pairs(class_: Class, node: ast.expr) -> dict[str, Any]:
    if isinstance(node, ast.Call):
        return {word.arg: _evaluate_setting(class_, word.value) for word in node.keywords if word.arg}
    if isinstance(node, ast.Dict):
        return {
            key.value: _evaluate_setting(class_, value)
            for key, value in zip(node.keys, node.values)
            if isinstance(key, ast.Constant) and isinstance(key.value, str)
        }
    return {}


def _evaluate_setting(class_: Class, node: ast.expr) -> Any:
    try:
        return evaluate(class_.module, node)
    except UndecidedError:
        # `Extra.forbid` of pydantic 1 is defined in another package, so it cannot be evaluated.
        return (get_dotted_name(node) or "").rpartition(".")[2]


def _is_populated_by_name(class_: Class) -> bool:
    configuration = _read_model_config(class_)
    return bool(configuration.get("populate_by_name") or configuration.get("allow_population_by_field_name"))
