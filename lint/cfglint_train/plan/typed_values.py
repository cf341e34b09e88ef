"""Typed values of plan fields, as stated in a plan file, an axis or a house rule."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.plan.enumerations import list_choices
from cfglint_train.plan.fields import ALL, FIELDS, Plan, Role
from cfglint_train.plan.names import Field


def parse_field(name: str) -> Field:
    """Return the field with this name, or raise `UsageError` if there is none."""
    for field in FIELDS:
        if field.removesuffix("_") == name.removesuffix("_"):
            return field
    import difflib  # imported here because it is needed for a wrong name only

    near = [field.removesuffix("_") for field in difflib.get_close_matches(name, FIELDS, n=2, cutoff=0.5)]
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise UsageError(f"unknown plan field {name}{hint} (docs/plan-file.md lists them)")


def get_field_type(field: Field) -> str:
    """Return the type of a field's known values as Python writes it: `int`, `tuple[str, ...]`."""
    group, name = field.split(".")
    kind = str(type(getattr(Plan(), group)).__annotations__[name])
    return kind.removesuffix(" | None")


_INT_OR_ALL: Final = "int | Literal['all']"
_SCALARS: Final[Mapping[str, tuple[type, ...]]] = {
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "bool": (bool,),
    _INT_OR_ALL: (int,),
}


def convert_value(field: Field, value: Any) -> Any:
    """Return a value in the type that the plan holds; null means unknown.

    Raise `UsageError` if the type is wrong, the value is not one of the field's choices, or a number is negative or
    infinite.
    """
    if value is None:
        return None
    kind = get_field_type(field)
    if kind == "tuple[Role, ...]":
        return tuple(_build_role(field, item) for item in _check_list(field, value))
    if kind.startswith("tuple[tuple"):
        if not isinstance(value, dict):
            raise UsageError(f"{field} must be an object, not {value!r}")
        return tuple(value.items())
    if kind.startswith("tuple"):
        items = _check_list(field, value)
        if not all(isinstance(item, str) for item in items):
            raise UsageError(f"{field} must be a list of names")
        return items
    if kind == _INT_OR_ALL and value == ALL:
        return value
    types = _SCALARS.get(kind, (str,))
    if "int" in kind and isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise UsageError(f"{field} must be {_ARTICLE.get(kind, 'text')}, not {value!r}")
    valid_values = list_choices(field)
    if valid_values is not None and value not in valid_values:
        raise UsageError(f"{field} must be one of {', '.join(valid_values)}, not {value!r}")
    if isinstance(value, (int, float)) and not isinstance(value, bool) and not 0 <= value < inf:
        raise UsageError(f"{field} must be 0 or more, not {value!r}")
    return value


def parse_value(field: Field, text: str) -> Any:
    """Parse a field's value from a command line (`4`, `full`, `true`), or raise `UsageError` if it is invalid."""
    kind, word = get_field_type(field), text.strip()
    if kind == "bool":
        return convert_value(field, {"true": True, "yes": True, "false": False, "no": False}.get(word.lower(), word))
    if kind.startswith(("int", "float")):
        try:
            number = float(word)
        except ValueError:
            return convert_value(field, word)
        return convert_value(field, int(number) if number.is_integer() else number)
    if kind.startswith("tuple"):
        raise UsageError(f"{field} is a list and cannot be an axis")
    return convert_value(field, word)


_ARTICLE: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    _INT_OR_ALL: "a whole number or all",
}


def _check_list(field: Field, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise UsageError(f"{field} must be a list, not {value!r}")
    return tuple(value)


def _build_role(field: Field, value: Any) -> Role:
    names = tuple(Role.__annotations__)
    if not isinstance(value, dict) or not {"name", "trained"} <= value.keys() <= set(names):
        raise UsageError(f"{field} must be a list of objects with {', '.join(names)}; name and trained are required")
    return Role(**{"model": None, **value})
