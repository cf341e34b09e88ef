"""House rules: read the `[[require]]` tables, which state conditions and required values of plan fields or keys."""

from __future__ import annotations

from math import inf

from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.globs import Glob
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final, Literal
from cfglint_train.foundation.wording import suggest_name
from cfglint_train.frameworks.registry import list_frameworks, map_spellings
from cfglint_train.plan.names import Field
from cfglint_train.settings.error import format_path

if TYPE_CHECKING:
    from cfglint_train.settings.reader import Reader

Test = Literal["equals", "one-of", "at-most", "at-least", "present", "absent"]

_VALUES: Final = ("equals", "one-of", "at-most", "at-least")
_PRESENCE: Final = ("present", "absent")
_COMBINABLE: Final = ({"present", *_VALUES[:1]}, {"present", "one-of"}, {"present", "at-most", "at-least"})
"""Sets of operators that may be combined in a rule."""
_SUBJECTS: Final = ("field", "key")
_OTHERS: Final = ("message", "severity", "paths", "frameworks")
_SEVERITIES: Final = ("error", "warning", "info")
_SCALARS: Final = (str, int, float, bool)


class HouseRule(Frozen):
    """A requirement on a plan field, on a key, or on several plan fields."""

    condition: str
    """Condition on several plan fields (`settings.conditions`); empty for a rule about a field or a key."""
    field: Field | None
    """Plan field that the rule is about, or None for a key or a condition."""
    key: str
    """Key as written in the settings; empty for a rule about a field or a condition."""
    tests: tuple[tuple[Test, Any], ...]
    """Operators and their operands in the order of evaluation; `present` precedes the operators that test a value."""
    message: str
    severity: Literal["error", "warning", "info"]
    paths: tuple[Glob, ...]
    """Patterns of the files to which the rule applies; empty for all files."""
    frameworks: tuple[str, ...]
    """Frameworks to which the rule applies; empty for all frameworks."""
    path: str
    """Path of the settings file."""
    place: str
    """Name in the settings file: `require[0]`, or `tool.cfglint.require[0]` in a pyproject.toml."""


def read_house_rules(reader: Reader, value: Any, inherited: tuple[HouseRule, ...] = ()) -> tuple[HouseRule, ...]:
    """Read the house rules of a settings file; `inherited` are the rules of the files that it extends.

    Raise SettingsError for an invalid rule, and for two rules that no value satisfies.
    """
    rules: list[HouseRule] = []
    for number, entry in enumerate(reader.read_tables("require", value)):
        place = f"require[{number}]"
        rule = _read_rule(reader, entry, place)
        for other in (*inherited, *rules):
            if _has_same_subject(rule, other) and _is_contradiction(dict(rule.tests), dict(other.tests)):
                where = (
                    f"`{other.place}`" if other.path == rule.path else f"`{other.place}` of {format_path(other.path)}"
                )
                raise reader.build_error(place, f"contradicts {where}: no value satisfies both")
        rules.append(rule)
    return tuple(rules)


def _has_same_subject(rule: HouseRule, other: HouseRule) -> bool:
    """Return whether two rules are about the same setting and certainly apply to common files and frameworks."""
    if rule.condition or other.condition:
        return False
    is_same_setting = (rule.field, _normalize_key(rule.key)) == (other.field, _normalize_key(other.key))
    files = not rule.paths or not other.paths or rule.paths == other.paths
    frameworks = not rule.frameworks or not other.frameworks or {*rule.frameworks} & {*other.frameworks}
    return is_same_setting and files and bool(frameworks)


def _normalize_key(key: str) -> str:
    return key.lstrip("-").replace("-", "_")


def _is_contradiction(rule: dict[Test, Any], other: dict[Test, Any]) -> bool:
    """Return whether neither a value nor its absence can pass the tests of both rules."""
    both = (rule, other)
    if any("present" in tests for tests in both) and any("absent" in tests for tests in both):
        return True
    for pinned, opposing in (both, both[::-1]):
        values = (pinned["equals"],) if "equals" in pinned else pinned.get("one-of")
        if values is not None:
            return not any(
                all(not is_violated(test, value, operand) for test, operand in opposing.items()) for value in values
            )
    lowest = max((tests["at-least"] for tests in both if "at-least" in tests), default=-inf)
    return bool(lowest > min((tests["at-most"] for tests in both if "at-most" in tests), default=inf))


def is_violated(test: Test, value: Any, operand: Any) -> bool:
    """Return whether a value fails a test; it never fails `present` and `absent`, which callers check themselves."""
    if test in _PRESENCE:
        return False
    if test == "equals":
        return not _is_equal(value, operand)
    if test == "one-of":
        return not any(_is_equal(value, choice) for choice in operand)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return bool(value > operand if test == "at-most" else value < operand)


def _is_equal(value: Any, operand: Any) -> bool:
    return isinstance(value, bool) == isinstance(operand, bool) and bool(value == operand)


def _read_rule(reader: Reader, entry: dict[str, Any], place: str) -> HouseRule:
    where = f"{place}."
    reader.check_keys(entry, ("that", *_SUBJECTS, *_VALUES, *_PRESENCE, *_OTHERS), where)
    if "that" not in entry and ("field" in entry) == ("key" in entry):
        raise reader.build_error(
            place, "needs either `field` (a plan field), `key` (a framework key) or `that` (a condition)"
        )
    condition = _read_condition(reader, entry, where)
    field, key = _read_field(reader, entry, where), _read_text(reader, entry, where, "key")
    return HouseRule(
        condition,
        field,
        key,
        () if condition else tuple(_read_tests(reader, entry, place, field)),
        _read_text(reader, entry, where, "message"),
        reader.read_choice(f"{where}severity", entry.get("severity", "warning"), _SEVERITIES),
        reader.read_globs(f"{where}paths", entry.get("paths", [])),
        _read_frameworks(reader, entry, where),
        reader.source,
        reader.prefix + place,
    )


def _read_condition(reader: Reader, entry: dict[str, Any], where: str) -> str:
    if "that" not in entry:
        return ""
    for name in (*_SUBJECTS, *_VALUES, *_PRESENCE):
        if name in entry:
            raise reader.build_error(f"{where}{name}", "cannot be combined with `that`")
    from cfglint_train.settings.conditions import parse_condition

    text = _read_text(reader, entry, where, "that")
    try:
        return parse_condition(text).text
    except UsageError as error:
        raise reader.build_error(f"{where}that", str(error)) from None


def _read_field(reader: Reader, entry: dict[str, Any], where: str) -> Field | None:
    if "field" not in entry:
        return None
    from cfglint_train.plan.typed_values import parse_field

    try:
        return parse_field(_read_text(reader, entry, where, "field"))
    except UsageError as error:
        raise reader.build_error(f"{where}field", f"is invalid: {error}") from None


def _read_text(reader: Reader, entry: dict[str, Any], where: str, name: str) -> str:
    value = entry.get(name, "")
    if not isinstance(value, str) or (name in entry and not value.strip()):
        raise reader.build_error(f"{where}{name}", f"must be text, not {value!r}")
    return value.strip()


def _read_frameworks(reader: Reader, entry: dict[str, Any], where: str) -> tuple[str, ...]:
    names = []
    for name in reader.read_strings(f"{where}frameworks", entry.get("frameworks", [])):
        plain = map_spellings().get(name.lower(), name.lower())
        if plain not in list_frameworks():
            hint = suggest_name(plain, list_frameworks(), f"known: {', '.join(list_frameworks())}")
            raise reader.build_error(f"{where}frameworks", f"names an unknown framework, {name!r}; {hint}")
        names.append(plain)
    return tuple(names)


def _read_tests(reader: Reader, entry: dict[str, Any], place: str, field: Field | None) -> list[tuple[Test, Any]]:
    """Read the tests of a rule, in the order of evaluation."""
    where = f"{place}."
    for name in _PRESENCE:
        if name in entry and entry[name] is not True:
            raise reader.build_error(f"{where}{name}", f"must be true, not {entry[name]!r}")
    order: tuple[Test, ...] = ("present", "absent", "equals", "one-of", "at-least", "at-most")
    names = [name for name in order if name in entry]
    if not names:
        raise reader.build_error(place, f"requires nothing; add one of {', '.join((*_VALUES, *_PRESENCE))}")
    if len(names) > 1 and not any(combination >= set(names) for combination in _COMBINABLE):
        raise reader.build_error(f"{where}{names[1]}", f"cannot be combined with {names[0]}")
    tests: list[tuple[Test, Any]] = [
        (name, _read_operand(reader, f"{where}{name}", name, entry[name], field)) for name in names
    ]
    limits = dict(tests)
    if {"at-least", "at-most"} <= limits.keys() and limits["at-least"] > limits["at-most"]:
        raise reader.build_error(f"{where}at-least", f"is above at-most ({limits['at-least']} > {limits['at-most']})")
    return tests


def _read_operand(reader: Reader, key: str, name: Test, value: Any, field: Field | None) -> Any:
    """Read the operand of an operator; for a plan field, convert it to the type of the field."""
    if name in _PRESENCE:
        return value
    if name in ("at-most", "at-least"):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise reader.build_error(key, f"must be a number, not {value!r}")
        if field is not None:
            _check_numeric(reader, key, field)
        return value
    if name == "one-of":
        if not isinstance(value, list) or not value or not all(isinstance(item, _SCALARS) for item in value):
            raise reader.build_error(key, f"must be a list of values, not {value!r}")
        return tuple(_convert(reader, key, item, field) for item in value)
    if not isinstance(value, _SCALARS):
        raise reader.build_error(key, f"must be a number, text, true or false, not {value!r}")
    return _convert(reader, key, value, field)


def _check_numeric(reader: Reader, key: str, field: Field) -> None:
    from cfglint_train.plan.typed_values import get_field_type

    if not get_field_type(field).startswith(("int", "float")):
        raise reader.build_error(key, f"compares numbers, but {field} is not a number")


def _convert(reader: Reader, key: str, value: Any, field: Field | None) -> Any:
    if field is None:
        return value
    from cfglint_train.plan.typed_values import convert_value, get_field_type

    if get_field_type(field).startswith("tuple"):
        raise reader.build_error(key, f"compares single values, but {field} is a list; use present or absent")
    try:
        return convert_value(field, value)
    except UsageError as error:
        raise reader.build_error(key, f"is invalid: {error}") from None
