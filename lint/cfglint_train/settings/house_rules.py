"""The rules of a house, `[[require]]` of the settings: what a plan field or a key must be, with a reason."""

from __future__ import annotations

from math import inf

from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.globs import Glob
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final, Literal
from cfglint_train.foundation.wording import did_you_mean
from cfglint_train.frameworks.registry import listed, spellings
from cfglint_train.plan.names import Field
from cfglint_train.settings.error import told

if TYPE_CHECKING:
    from cfglint_train.settings.reader import Reader

Test = Literal["equals", "one-of", "at-most", "at-least", "present", "absent"]

_VALUES: Final = ("equals", "one-of", "at-most", "at-least")
_PRESENCE: Final = ("present", "absent")
_TOGETHER: Final = ({"present", *_VALUES[:1]}, {"present", "one-of"}, {"present", "at-most", "at-least"})
"""Operators that may be combined."""
_OTHERS: Final = ("field", "key", "message", "severity", "paths", "frameworks")
_SEVERITIES: Final = ("error", "warning", "info")
_SCALARS: Final = (str, int, float, bool)


class HouseRule(Frozen):
    """One of them."""

    field: Field | None
    """The plan field that it is about; None: a key."""
    key: str
    """The key as the settings name it; empty for a field."""
    tests: tuple[tuple[Test, Any], ...]
    """Operators and what they compare with; `present` before those that look at the value."""
    message: str
    severity: Literal["error", "warning", "info"]
    paths: tuple[Glob, ...]
    """The files that it is for; none: all."""
    frameworks: tuple[str, ...]
    """The frameworks that it is for; none: all."""
    path: str
    """The settings file."""
    place: str
    """Its name there: `require[0]`, in pyproject.toml behind `tool.cfglint.`."""


def house_rules(reader: Reader, stated: Any, before: tuple[HouseRule, ...] = ()) -> tuple[HouseRule, ...]:
    """The rules of a settings file. `before`: those of the files that it extends. Raises SettingsError, also for two
    rules that no value meets.
    """
    found: list[HouseRule] = []
    for number, entry in enumerate(reader.tables("require", stated)):
        place = f"require[{number}]"
        rule = _rule(reader, entry, place)
        for other in (*before, *found):
            if _is_about_the_same(rule, other) and _contradict(dict(rule.tests), dict(other.tests)):
                where = f"`{other.place}`" if other.path == rule.path else f"`{other.place}` of {told(other.path)}"
                raise reader.error(place, f"contradicts {where}: no value meets both")
        found.append(rule)
    return tuple(found)


def _is_about_the_same(rule: HouseRule, other: HouseRule) -> bool:
    """Whether two rules are about one setting, and every file of one of them is a file of the other."""
    alike = (rule.field, _plain(rule.key)) == (other.field, _plain(other.key))
    files = not rule.paths or not other.paths or rule.paths == other.paths
    frameworks = not rule.frameworks or not other.frameworks or {*rule.frameworks} & {*other.frameworks}
    return alike and files and bool(frameworks)


def _plain(key: str) -> str:
    return key.lstrip("-").replace("-", "_")


def _contradict(rule: dict[Test, Any], other: dict[Test, Any]) -> bool:
    """Whether no value, and no missing one, passes the tests of both."""
    both = (rule, other)
    if any("present" in one for one in both) and any("absent" in one for one in both):
        return True
    for pinned, against in (both, both[::-1]):
        values = (pinned["equals"],) if "equals" in pinned else pinned.get("one-of")
        if values is not None:
            return not any(all(not fails(test, value, wanted) for test, wanted in against.items()) for value in values)
    lowest = max((one["at-least"] for one in both if "at-least" in one), default=-inf)
    return bool(lowest > min((one["at-most"] for one in both if "at-most" in one), default=inf))


def fails(test: Test, value: Any, wanted: Any) -> bool:
    """Whether a value fails a test; those of presence look at no value."""
    if test in _PRESENCE:
        return False
    if test == "equals":
        return not _equal(value, wanted)
    if test == "one-of":
        return not any(_equal(value, one) for one in wanted)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return bool(value > wanted if test == "at-most" else value < wanted)


def _equal(value: Any, wanted: Any) -> bool:
    return isinstance(value, bool) == isinstance(wanted, bool) and bool(value == wanted)


def _rule(reader: Reader, entry: dict[str, Any], place: str) -> HouseRule:
    where = f"{place}."
    reader.only(entry, (*_VALUES, *_PRESENCE, *_OTHERS), where)
    if ("field" in entry) == ("key" in entry):
        raise reader.error(place, "needs either `field` (of the plan) or `key` (of a framework)")
    field, key = _field(reader, entry, where), _text(reader, entry, where, "key")
    return HouseRule(
        field,
        key,
        tuple(_tests(reader, entry, place, field)),
        _text(reader, entry, where, "message"),
        reader.choice(f"{where}severity", entry.get("severity", "warning"), _SEVERITIES),
        reader.globs(f"{where}paths", entry.get("paths", [])),
        _frameworks(reader, entry, where),
        reader.source,
        reader.prefix + place,
    )


def _field(reader: Reader, entry: dict[str, Any], where: str) -> Field | None:
    if "field" not in entry:
        return None
    from cfglint_train.plan.typed_values import field_named

    try:
        return field_named(_text(reader, entry, where, "field"))
    except UsageError as error:
        raise reader.error(f"{where}field", f"is invalid: {error}") from None


def _text(reader: Reader, entry: dict[str, Any], where: str, name: str) -> str:
    value = entry.get(name, "")
    if not isinstance(value, str) or (name in entry and not value.strip()):
        raise reader.error(f"{where}{name}", f"must be text, not {value!r}")
    return value.strip()


def _frameworks(reader: Reader, entry: dict[str, Any], where: str) -> tuple[str, ...]:
    found = []
    for name in reader.strings(f"{where}frameworks", entry.get("frameworks", [])):
        plain = spellings().get(name.lower(), name.lower())
        if plain not in listed():
            hint = did_you_mean(plain, listed(), f"known: {', '.join(listed())}")
            raise reader.error(f"{where}frameworks", f"names an unknown framework, {name!r}; {hint}")
        found.append(plain)
    return tuple(found)


def _tests(reader: Reader, entry: dict[str, Any], place: str, field: Field | None) -> list[tuple[Test, Any]]:
    """What is required, in the order in which it is asked."""
    where = f"{place}."
    for name in _PRESENCE:
        if name in entry and entry[name] is not True:
            raise reader.error(f"{where}{name}", f"must be true, not {entry[name]!r}")
    order: tuple[Test, ...] = ("present", "absent", "equals", "one-of", "at-least", "at-most")
    names = [name for name in order if name in entry]
    if not names:
        raise reader.error(place, f"requires nothing; add one of {', '.join((*_VALUES, *_PRESENCE))}")
    if len(names) > 1 and not any(together >= set(names) for together in _TOGETHER):
        raise reader.error(f"{where}{names[1]}", f"cannot be combined with {names[0]}")
    tests: list[tuple[Test, Any]] = [
        (name, _wanted(reader, f"{where}{name}", name, entry[name], field)) for name in names
    ]
    limits = dict(tests)
    if {"at-least", "at-most"} <= limits.keys() and limits["at-least"] > limits["at-most"]:
        raise reader.error(f"{where}at-least", f"is above at-most ({limits['at-least']} > {limits['at-most']})")
    return tests


def _wanted(reader: Reader, key: str, name: Test, value: Any, field: Field | None) -> Any:
    """What an operator compares with, as the plan or a file has it."""
    if name in _PRESENCE:
        return value
    if name in ("at-most", "at-least"):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise reader.error(key, f"must be a number, not {value!r}")
        if field is not None:
            _numeric(reader, key, field)
        return value
    if name == "one-of":
        if not isinstance(value, list) or not value or not all(isinstance(item, _SCALARS) for item in value):
            raise reader.error(key, f"must be a list of values, not {value!r}")
        return tuple(_typed(reader, key, item, field) for item in value)
    if not isinstance(value, _SCALARS):
        raise reader.error(key, f"must be a number, text, true or false, not {value!r}")
    return _typed(reader, key, value, field)


def _numeric(reader: Reader, key: str, field: Field) -> None:
    from cfglint_train.plan.typed_values import field_type

    if not field_type(field).startswith(("int", "float")):
        raise reader.error(key, f"compares numbers, and {field} is not a number")


def _typed(reader: Reader, key: str, value: Any, field: Field | None) -> Any:
    if field is None:
        return value
    from cfglint_train.plan.typed_values import field_type, field_value

    if field_type(field).startswith("tuple"):
        raise reader.error(key, f"compares single values, and {field} is a list; it can be present or absent")
    try:
        return field_value(field, value)
    except UsageError as error:
        raise reader.error(key, f"is invalid: {error}") from None
