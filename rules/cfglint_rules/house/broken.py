"""House rules: report the rules that a run breaks, with fixes that satisfy them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from json import dumps

from cfglint_rules.vocabulary.given_names import ITEM_SUFFIX, find_facts
from cfglint_rules.vocabulary.settings import Settings
from cfglint_rules.vocabulary.survey import get_context
from cfglint_schemas.fact import KeyFact
from cfglint_schemas.status import PRESENT, Route
from cfglint_train.documents.document import MISSING, Delete, Set, Unknown
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.codec import UnreadableError
from cfglint_train.frameworks.lens import Config, format_route
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Place
from cfglint_train.runs.run import Run
from cfglint_train.settings.error import format_path
from cfglint_train.settings.house_rules import HouseRule, Test, is_violated


def list_broken(run: Run) -> Iterator[Report]:
    """Yield a report for every house rule that a run or its configs break."""
    for rule in run.inputs.house_rules:
        if rule.condition:
            yield from _check_condition(run, rule)
        elif rule.field is not None:
            yield from _check_field(run, rule, rule.field)
        else:
            yield from _check_items(run, rule) if ITEM_SUFFIX in rule.key else _check_key(run, rule)


def _check_condition(run: Run, rule: HouseRule) -> Iterator[Report]:
    """Yield a report if known plan fields break a condition."""
    from cfglint_train.settings.conditions import format_number, parse_condition

    def read_number(field: Field) -> int | float | None:
        owner, value = run.find_owner(field), run.plan.get(field)
        is_hidden = not run.is_stated(field) and owner is not None and _can_have_unseen_settings(owner[0])
        return None if is_hidden or not isinstance(value, (int, float)) else value

    condition = parse_condition(rule.condition)
    failures = condition.list_failures(read_number)
    if not failures:
        return
    reason = f": {rule.message}" if rule.message else ""
    numbers = ((field, read_number(field)) for field in condition.fields)
    values = (
        f"{_describe_field(run, field)} is {'unknown' if number is None else format_number(number)}"
        for field, number in numbers
    )
    yield Report(
        f"{failures[0]}; a house rule requires `{rule.condition}`{reason}",
        run.find_place(*condition.fields),
        rule.severity,
        notes=(*failures[1:], ", ".join(values), f"the rule is `{rule.place}` in {format_path(rule.path)}"),
        fields_read=condition.fields,
        claim=f"{rule.path} {rule.place} that" if condition.is_monotone else None,
    )


def _describe_field(run: Run, field: Field) -> str:
    """Return the name of a field, followed by its key if a file states it."""
    name, key = field.removesuffix("_"), run.spell_key(field)
    return f"`{name}` (`{key}`)" if run.is_stated(field) and key != field else f"`{name}`"


def _check_field(run: Run, rule: HouseRule, field: Field) -> Iterator[Report]:
    """Yield a report if a plan field breaks the rule."""
    value, owner = run.plan.get(field), run.find_owner(field)
    is_given = run.is_stated(field)
    if not is_given and owner is not None and _can_have_unseen_settings(owner[0]):
        return
    tested_value = value if is_given or value is not None else MISSING
    broken_test = _find_broken_test(rule, is_given, owner is not None, tested_value)
    if broken_test is None:
        return
    test, new_value = broken_test
    origin = run.get_origin(field)
    is_derived = origin is not None and origin.kind == "inferred"
    name, key = field.removesuffix("_"), run.spell_key(field)
    fix = conflicting_rule = None
    if owner is not None and not is_derived and new_value is not None:
        conflicting_rule = _find_conflicting_rule(run, rule, owner[0], key, new_value)
        fix = (
            Fix("unsafe", f"set `{name}: {_format_value(new_value)}`", {field: new_value})
            if conflicting_rule is None
            else None
        )
    yield _build_report(
        rule, test, _describe_field(run, field), value, run.find_place(field), fix, conflicting_rule, reads=(field,)
    )


def _check_key(run: Run, rule: HouseRule) -> Iterator[Report]:
    """Yield a report for every config whose key breaks the rule.

    If the rule requires the key, only the first config that can have the key must have it.
    """
    is_required = True
    for config in run.configs:
        keys = frameworks.get_keys(config)
        if keys is None:
            continue
        names = find_facts(keys.get_vocabulary(config), rule.key, get_context(config))
        settings = Settings(config, run)
        name = next((name for name in names if settings.find_route(name) is not None), next(iter(names), None))
        if name is None:
            continue
        value = settings.get_value(name)
        is_given = value is not MISSING and value is not None
        is_missing_here = (
            is_required and not is_given and _is_available(names[name]) and not _can_have_unseen_settings(config)
        )
        is_required = is_required and not is_missing_here
        broken_test = _find_broken_test(rule, is_given, is_missing_here, _load_value(config, value, rule))
        if broken_test is not None and not isinstance(value, Unknown):
            yield _build_key_report(run, rule, settings, name, value, *broken_test)


def _check_items(run: Run, rule: HouseRule) -> Iterator[Report]:
    """Yield a report for every list item whose key (`datasets[].type`) breaks the rule."""
    list_key, _, item_key = rule.key.partition(ITEM_SUFFIX)
    item_route = tuple(item_key.removeprefix(".").split(".")) if item_key else ()
    for config in run.configs:
        keys = frameworks.get_keys(config)
        if keys is None or not find_facts(keys.get_vocabulary(config), rule.key, get_context(config)):
            continue
        list_route = Settings(config, run).find_route(list_key)
        items = None if list_route is None else config.get_value(*list_route)
        for number in range(len(items) if list_route is not None and isinstance(items, list) else 0):
            route = (*(list_route or ()), number, *item_route)
            value = config.get_value(*route)
            is_given = value is not MISSING and value is not None
            broken_test = _find_broken_test(rule, is_given, True, _load_value(config, value, rule))
            if broken_test is not None and not isinstance(value, Unknown):
                yield _build_item_report(run, rule, config, route, value, *broken_test)


def _build_item_report(
    run: Run, rule: HouseRule, config: Config, route: Route, value: Any, test: Test, new_value: Any
) -> Report:
    """Return the report on a list item; it marks the item or its list if the item lacks the key."""
    value_after = None if test == "absent" else new_value
    others = (other_rule for other_rule in run.inputs.house_rules if other_rule != rule and other_rule.key == rule.key)
    conflicting_rule = next(
        (
            other_rule
            for other_rule in others
            if _find_broken_test(other_rule, value_after is not None, True, value_after) is not None
        ),
        None,
    )
    place = next(
        (item_place for end in range(len(route), 0, -1) if (item_place := config.find_place(*route[:end]))),
        config.find_top(),
    )
    change = Delete((*config.root, *route)) if test == "absent" else Set((*config.root, *route), new_value)
    description = (
        f"remove `{format_route(route)}`" if test == "absent" else _format_setting(format_route(route), new_value)
    )
    fix = None
    if (test == "absent" or new_value is not None) and not config.find_override(route):
        fix = Fix("unsafe", description, keys=((config, (change,)),)) if conflicting_rule is None else None
    return _build_report(rule, test, f"`{format_route(route)}`", value, place, fix, conflicting_rule)


def _is_available(fact: KeyFact) -> bool:
    return fact.resolve_status().kind == PRESENT and not fact.is_open


def _can_have_unseen_settings(config: Config) -> bool:
    """Return whether a config may have settings that cfglint cannot see."""
    keys = frameworks.get_keys(config)
    return keys is not None and not keys.is_complete(config)


def _build_key_report(
    run: Run, rule: HouseRule, settings: Settings, name: str, value: Any, test: Test, new_value: Any
) -> Report:
    """Return the report on a key of a config."""
    config, route = settings.config, settings.find_home(name)
    place = (
        settings.find_place(name)
        or (config.get_origin(*route).place if config.find_override(route) else None)
        or config.find_top()
    )
    key = format_route(route)
    fix = conflicting_rule = None
    if not config.find_override(route) and (test == "absent" or new_value is not None):
        conflicting_rule = _find_conflicting_rule(run, rule, config, key, MISSING if test == "absent" else new_value)
        if conflicting_rule is None and test == "absent":
            fix = Fix("unsafe", f"remove `{key}`", keys=((config, (Delete((*config.root, *route)),)),))
        elif conflicting_rule is None:
            fix = Fix(
                "unsafe", _format_setting(key, new_value), keys=((config, (Set((*config.root, *route), new_value),)),)
            )
    return _build_report(rule, test, f"`{key}`", value, place, fix, conflicting_rule)


def _find_conflicting_rule(run: Run, rule: HouseRule, config: Config, key: str, new_value: Any) -> HouseRule | None:
    """Return the first other rule about the setting that rejects the value after a fix, or None.

    `new_value` is MISSING if the fix removes the setting.
    """
    for other_rule in run.inputs.house_rules:
        if other_rule == rule or not _is_rule_about(run, other_rule, config, key):
            continue
        if new_value is MISSING:
            # Without the key, the field falls back to a default, which the other rule may reject.
            is_refused = other_rule.field is not None or _find_broken_test(other_rule, False, True, MISSING) is not None
        else:
            is_refused = _find_broken_test(other_rule, True, True, new_value) is not None
        if is_refused:
            return other_rule
    return None


def _is_rule_about(run: Run, rule: HouseRule, config: Config, key: str) -> bool:
    """Return whether a rule covers a key of a config, by any name of the key or by its plan field."""
    if rule.condition:
        return False
    if rule.field is not None:
        owner = run.find_owner(rule.field)
        return owner is not None and owner[0] is config and run.spell_key(rule.field) == key
    keys = frameworks.get_keys(config)
    if keys is None or ITEM_SUFFIX in rule.key:
        return False
    settings = Settings(config, run)
    names = find_facts(keys.get_vocabulary(config), rule.key, get_context(config))
    return any(format_route(settings.find_home(name)) == key for name in names)


def _format_setting(name: str, value: Any) -> str:
    """Return the description of a fix that sets a key: `--flag value` for flags, otherwise `key: value`."""
    return f"set `{name} {_format_value(value)}`" if name.startswith("-") else f"set `{name}: {_format_value(value)}`"


def _build_report(
    rule: HouseRule,
    test: Test,
    name: str,
    value: Any,
    place: Place,
    fix: Fix | None,
    conflicting_rule: HouseRule | None,
    reads: tuple[Field, ...] = (),
) -> Report:
    demand = dict(rule.tests)[test]
    state = "is not set" if test == "present" else "is set" if test == "absent" else f"is {_format_value(value)}"
    reason = f": {rule.message}" if rule.message else ""
    notes = [f"the rule is `{rule.place}` in {format_path(rule.path)}"]
    if conflicting_rule is not None:
        notes.append(
            f"no fix: `{conflicting_rule.place}` in {format_path(conflicting_rule.path)} rejects the required value"
        )
    return Report(
        f"{name} {state}; a house rule {_DEMAND_TEMPLATES[test].format(_format_values(demand))}{reason}",
        place,
        rule.severity,
        fix,
        notes=tuple(notes),
        fields_read=reads,
        claim=f"{rule.path} {rule.place} {test}" if test in ("at-most", "at-least") else None,
    )


_DEMAND_TEMPLATES: Final[dict[Test, str]] = {
    "equals": "requires {}",
    "one-of": "requires one of {}",
    "at-most": "allows at most {}",
    "at-least": "requires at least {}",
    "present": "requires it",
    "absent": "forbids it",
}


def _find_broken_test(rule: HouseRule, is_given: bool, can_be_given: bool, value: Any) -> tuple[Test, Any] | None:
    """Return the first test that fails, with a value that passes it (None if there is none), or None if all pass.

    `is_given` is true if the setting is stated. `can_be_given` is true if the setting can be stated here, so that
    `present` fails if it is not. `value` is MISSING if there is no value.
    """
    pinned_value = dict(rule.tests).get("equals")
    for test, expected in rule.tests:
        if test == "present":
            if not is_given and can_be_given:
                return test, pinned_value
        elif test == "absent":
            if is_given:
                return test, None
        elif (
            value is not MISSING
            and value is not None
            and not isinstance(value, Unknown)
            and is_violated(test, value, expected)
        ):
            return test, None if test == "one-of" else expected
    return None


def _load_value(config: Config, value: Any, rule: HouseRule) -> Any:
    """Return a value as its framework reads it if the rule compares it with a number or boolean, else unchanged."""
    kinds = {
        _get_kind(expected)
        for _, operand in rule.tests
        for expected in (operand if isinstance(operand, tuple) else (operand,))
    }
    loader = frameworks.load(config.framework).loader
    for kind in ("number", "boolean"):
        if kind in kinds and isinstance(value, (str, bool) if kind == "boolean" else str):
            try:
                return getattr(loader, kind).read(value)
            except UnreadableError:
                continue
    return value


def _get_kind(value: Any) -> str:
    return "boolean" if isinstance(value, bool) else "number" if isinstance(value, (int, float)) else "string"


def _format_values(operand: Any) -> str:
    items: Iterable[Any] = operand if isinstance(operand, tuple) else (operand,)
    return ", ".join(map(_format_value, items))


def _format_value(value: Any) -> str:
    """Return a value as a file would contain it."""
    return value if isinstance(value, str) else dumps(value, ensure_ascii=False, default=str)
