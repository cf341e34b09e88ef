"""Tests of settings in clauses (`refusals.json`, `idle.json`).

A test is a word (`"on"`), or an object of operators, all of which must pass: `{"is": "integer", "above": 1}`. Most
operators test one value, which is MISSING if the setting is not given. A relation compares the value with the value of
another setting: `{"not-a-multiple-of": "eval_steps"}`. `cfglint_train/frameworks/clauses.schema.json` describes every
word and operator. A setting with an unknown value fails every test; `clauses` ensures that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from cfglint_train.documents.document import MISSING, Unknown
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    Test = str | Mapping[str, Any]

# Strings that some loaders read as false although they are truthy in Python.
_FALSE_TEXTS: Final = frozenset(("false", "no", "off", "n", "f", "0", "", "none", "null"))


def evaluate_test(test: Test, value: Any) -> bool:
    """Return whether a value passes a test, without the test's relations to other settings."""
    if isinstance(test, str):
        return WORDS[test](value)
    return all(OPERATORS[name](value, operand) for name, operand in test.items() if not _is_relation(name, operand))


def list_relations(test: Test) -> Iterator[tuple[str, str]]:
    """Yield the relations of a test, each with the name of the other setting."""
    if not isinstance(test, str):
        yield from ((name, operand) for name, operand in test.items() if _is_relation(name, operand))


def _is_relation(name: str, operand: Any) -> bool:
    return name in RELATIONS and isinstance(operand, str)


def is_on(value: Any) -> bool:
    """Return whether a value is given and not false, zero, empty or a string that means false (`"no"`)."""
    return value is not None and not (isinstance(value, str) and value.lower() in _FALSE_TEXTS) and bool(value)


def is_given(value: Any) -> bool:
    """Return whether a value is given and not null."""
    return value is not MISSING and value is not None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


WORDS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "known": lambda value: True,
    "on": is_on,
    "off": lambda value: not value,
    "given": is_given,
    "absent": lambda value: not is_given(value),
    "true": lambda value: value is True,
    "false": lambda value: value is False,
    "zero": lambda value: _is_number(value) and value == 0,
    "odd": lambda value: isinstance(value, (int, float)) and value % 2 == 1,
    "fractional": lambda value: isinstance(value, float) and not value.is_integer(),
    "integer": lambda value: isinstance(value, int),
    "text": lambda value: isinstance(value, str),
    "list": lambda value: isinstance(value, list),
}


def _is_outside(value: Any, interval: str) -> bool:
    """Return whether a number is outside an interval such as `[0, 1)`."""
    if not _is_number(value):
        return False
    lower, upper = map(float, interval[1:-1].split(","))
    is_above = value >= lower if interval[0] == "[" else value > lower
    return not (is_above and (value <= upper if interval[-1] == "]" else value < upper))


def _has_part(value: Any, parts: list[str]) -> bool:
    return isinstance(value, str) and any(part in value.lower() for part in parts)


def _is_match(value: Any, pattern: str) -> bool:
    return isinstance(value, str) and re.fullmatch(pattern, value) is not None


def _has_item_ending(value: Any, endings: list[str]) -> bool:
    if not isinstance(value, (list, tuple)):  # a list from the file, or a plan field
        return False
    return any(isinstance(item, str) and item.endswith(tuple(endings)) for item in value)


def _count_items(value: Any) -> int | None:
    """Return the number of items in a list or of comma-separated names in a string, or None for other values."""
    if isinstance(value, list):
        return len(value)
    return value.count(",") + 1 if isinstance(value, str) else None


def _has_item_like(value: Any, tests: Mapping[str, Test]) -> bool:
    """Return whether a list has a section whose keys pass their tests; a key with an unknown value fails its test."""
    for item in value if isinstance(value, list) else ():
        values = {name: item.get(name, MISSING) for name in tests} if isinstance(item, dict) else {}
        if values and all(
            not isinstance(values[name], Unknown) and evaluate_test(test, values[name]) for name, test in tests.items()
        ):
            return True
    return False


OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "is": lambda value, word: evaluate_test(word, value),
    "in": lambda value, wanted: any(value == item and type(value) is type(item) for item in wanted),
    "in-any-case": lambda value, wanted: isinstance(value, str) and value.lower() in wanted,
    "other-than": lambda value, unwanted: is_given(value) and value not in unwanted,
    "not-in": lambda value, unwanted: value is MISSING or value not in unwanted,
    "absent-or": lambda value, wanted: not is_given(value) or value in wanted,
    "above": lambda value, limit: _is_number(value) and value > limit,
    "below": lambda value, limit: _is_number(value) and value < limit,
    "outside": _is_outside,
    "containing": _has_part,
    "matching": _is_match,
    "only": lambda value, test: isinstance(value, list) and len(value) == 1 and evaluate_test(test, value[0]),
    "listing": _has_item_ending,
    "with-an-item": _has_item_like,
    "more-than": lambda value, limit: (_count_items(value) or 0) > limit,
    "naming-more-than": lambda value, names: isinstance(value, dict) and any(name not in names for name in value),
    "not": lambda value, test: not evaluate_test(test, value),
    "any": lambda value, tests: any(evaluate_test(test, value) for test in tests),
    "all": lambda value, tests: all(evaluate_test(test, value) for test in tests),
}


def _is_above(value: Any, other: Any) -> bool:
    return _is_number(value) and _is_number(other) and bool(value > other)


def _is_not_multiple(value: Any, other: Any) -> bool:
    return _is_number(value) and _is_number(other) and other > 0 and bool(value % other)


def _is_multiple(value: Any, other: Any) -> bool:
    return _is_number(value) and _is_number(other) and value > 0 and other > 0 and value % other == 0


def _has_different_count(value: Any, other: Any) -> bool:
    counts = _count_items(value), _count_items(other)
    return None not in counts and counts[0] != counts[1]


def _list_items(value: Any) -> set[str]:
    """Return the texts of a list, or the comma-separated names in a string."""
    items = value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple)) else ()
    return {item.strip() for item in items if isinstance(item, str)} - {""}


RELATIONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "above": _is_above,
    "below": lambda value, other: _is_above(other, value),
    "differs-from": lambda value, other: is_given(value) and is_given(other) and value != other,
    "a-multiple-of": _is_multiple,
    "not-a-multiple-of": _is_not_multiple,
    "not-as-many-as": _has_different_count,
    "sharing-an-item-with": lambda value, other: not _list_items(value).isdisjoint(_list_items(other)),
}
