"""What a run breaks of the rules of the house, and what would keep them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from json import dumps

from cfglint_rules.vocabulary.given_names import ITEMS, known_as
from cfglint_rules.vocabulary.settings import Settings
from cfglint_rules.vocabulary.survey import context
from cfglint_schemas.fact import Fact
from cfglint_schemas.status import PRESENT, Route
from cfglint_train.documents.document import MISSING, Delete, Set, Unknown
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.codec import Unreadable
from cfglint_train.frameworks.lens import Config, spelled
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Place
from cfglint_train.runs.run import Run
from cfglint_train.settings.error import told
from cfglint_train.settings.house_rules import HouseRule, Test, fails


def broken(run: Run) -> Iterator[Report]:
    """One report for every rule that a run, or a configuration of it, breaks."""
    for rule in run.parts.require:
        if rule.field is not None:
            yield from _of_field(run, rule, rule.field)
        else:
            yield from _of_items(run, rule) if ITEMS in rule.key else _of_key(run, rule)


def _of_field(run: Run, rule: HouseRule, field: Field) -> Iterator[Report]:
    """What is wrong with a field of the plan."""
    value, owner = run.plan.get(field), run.owner(field)
    given = run.stated(field)
    if not given and owner is not None and _is_open(owner[0]):
        return
    asked = value if given or value is not None else MISSING
    broken = _broken(rule, given, owner is not None, asked)
    if broken is None:
        return
    test, wanted = broken
    origin = run.origin(field)
    derived = origin is not None and origin.kind == "inferred"
    name, key = field.removesuffix("_"), run.spell(field)
    fix = against = None
    if owner is not None and not derived and wanted is not None:
        against = _against(run, rule, owner[0], key, wanted)
        fix = Fix("unsafe", f"`{name}: {_shown(wanted)}`", {field: wanted}) if against is None else None
    shown = f"`{name}` (`{key}`)" if given and key != field else f"`{name}`"
    yield _report(rule, test, shown, value, run.place(field), fix, against, reads=(field,))


def _of_key(run: Run, rule: HouseRule) -> Iterator[Report]:
    """What is wrong with a key in the configurations of a run. It must be present in the first that can have it."""
    owed = True
    for config in run.configs:
        keys = frameworks.keys_of(config)
        if keys is None:
            continue
        names = known_as(keys.vocabulary_of(config), rule.key, context(config))
        settings = Settings(config, run)
        name = next((name for name in names if settings.route(name) is not None), next(iter(names), None))
        if name is None:
            continue
        value = settings.value(name)
        given = value is not MISSING and value is not None
        has = owed and not given and _has(names[name]) and not _is_open(config)
        owed = owed and not has
        broken = _broken(rule, given, has, _loaded(config, value, rule))
        if broken is not None and not isinstance(value, Unknown):
            yield _at_key(run, rule, settings, name, value, *broken)


def _of_items(run: Run, rule: HouseRule) -> Iterator[Report]:
    """What is wrong with a key of the items of a list (`datasets[].type`), item by item."""
    outer, _, inner = rule.key.partition(ITEMS)
    below = tuple(inner.removeprefix(".").split(".")) if inner else ()
    for config in run.configs:
        keys = frameworks.keys_of(config)
        if keys is None or not known_as(keys.vocabulary_of(config), rule.key, context(config)):
            continue
        found = Settings(config, run).route(outer)
        items = None if found is None else config.value(*found)
        for number in range(len(items) if found is not None and isinstance(items, list) else 0):
            route = (*(found or ()), number, *below)
            value = config.value(*route)
            given = value is not MISSING and value is not None
            broken = _broken(rule, given, True, _loaded(config, value, rule))
            if broken is not None and not isinstance(value, Unknown):
                yield _at_item(run, rule, config, route, value, *broken)


def _at_item(run: Run, rule: HouseRule, config: Config, route: Route, value: Any, test: Test, wanted: Any) -> Report:
    """What is wrong with one item; the key of the list is marked where the item has none."""
    after = None if test == "absent" else wanted
    others = (one for one in run.parts.require if one != rule and one.key == rule.key)
    against = next((one for one in others if _broken(one, after is not None, True, after) is not None), None)
    place = next((found for end in range(len(route), 0, -1) if (found := config.place(*route[:end]))), config.top())
    change = Delete((*config.root, *route)) if test == "absent" else Set((*config.root, *route), wanted)
    shown = f"remove `{spelled(route)}`" if test == "absent" else _setting(spelled(route), wanted)
    fix = None
    if (test == "absent" or wanted is not None) and not config.override(route):
        fix = Fix("unsafe", shown, keys=((config, (change,)),)) if against is None else None
    return _report(rule, test, f"`{spelled(route)}`", value, place, fix, against)


def _has(fact: Fact) -> bool:
    return fact.status().kind == PRESENT and not fact.open


def _is_open(config: Config) -> bool:
    """Whether a configuration may state settings out of sight."""
    keys = frameworks.keys_of(config)
    return keys is not None and not keys.is_complete(config)


def _at_key(run: Run, rule: HouseRule, settings: Settings, name: str, value: Any, test: Test, wanted: Any) -> Report:
    """What is wrong with a key of one configuration."""
    config, route = settings.config, settings.home(name)
    place = settings.place(name) or (config.origin(*route).place if config.override(route) else None) or config.top()
    key = spelled(route)
    fix = against = None
    if not config.override(route) and (test == "absent" or wanted is not None):
        against = _against(run, rule, config, key, MISSING if test == "absent" else wanted)
        if against is None and test == "absent":
            fix = Fix("unsafe", f"remove `{key}`", keys=((config, (Delete((*config.root, *route)),)),))
        elif against is None:
            fix = Fix("unsafe", _setting(key, wanted), keys=((config, (Set((*config.root, *route), wanted),)),))
    return _report(rule, test, f"`{key}`", value, place, fix, against)


def _against(run: Run, rule: HouseRule, config: Config, key: str, wanted: Any) -> HouseRule | None:
    """The first other rule about the same setting that refuses what a fix would make of it (MISSING: it goes)."""
    for one in run.parts.require:
        if one == rule or not _is_about(run, one, config, key):
            continue
        if wanted is MISSING:
            # The value of a field is then a default.
            refused = one.field is not None or _broken(one, False, True, MISSING) is not None
        else:
            refused = _broken(one, True, True, wanted) is not None
        if refused:
            return one
    return None


def _is_about(run: Run, rule: HouseRule, config: Config, key: str) -> bool:
    """Whether a rule asks for a key of a configuration, by any of its names or as a field of the plan."""
    if rule.field is not None:
        owner = run.owner(rule.field)
        return owner is not None and owner[0] is config and run.spell(rule.field) == key
    keys = frameworks.keys_of(config)
    if keys is None or ITEMS in rule.key:
        return False
    settings = Settings(config, run)
    names = known_as(keys.vocabulary_of(config), rule.key, context(config))
    return any(spelled(settings.home(name)) == key for name in names)


def _setting(name: str, value: Any) -> str:
    """A setting with its value, for a fix."""
    return f"`{name} {_shown(value)}`" if name.startswith("-") else f"`{name}: {_shown(value)}`"


def _report(
    rule: HouseRule,
    test: Test,
    name: str,
    value: Any,
    place: Place,
    fix: Fix | None,
    against: HouseRule | None,
    reads: tuple[Field, ...] = (),
) -> Report:
    asked = dict(rule.tests)[test]
    said = "is not set" if test == "present" else "is set" if test == "absent" else f"is {_shown(value)}"
    reason = f": {rule.message}" if rule.message else ""
    notes = [f"the rule is `{rule.place}` of {told(rule.path)}"]
    if against is not None:
        notes.append(f"no fix: `{against.place}` of {told(against.path)} refuses what this rule asks for")
    return Report(
        f"{name} {said}; a house rule {_DEMANDS[test].format(_listed(asked))}{reason}",
        place,
        rule.severity,
        fix,
        notes=tuple(notes),
        reads=reads,
        claim=f"{rule.path} {rule.place} {test}" if test in ("at-most", "at-least") else None,
    )


_DEMANDS: Final[dict[Test, str]] = {
    "equals": "asks for {}",
    "one-of": "asks for one of {}",
    "at-most": "allows at most {}",
    "at-least": "asks for at least {}",
    "present": "asks for it",
    "absent": "forbids it",
}


def _broken(rule: HouseRule, given: bool, can_be: bool, value: Any) -> tuple[Test, Any] | None:
    """The first test that fails, and the value that would pass it where there is one.

    `given`: the setting is stated. `can_be`: it could be, and it is known whether it is. `value`: MISSING without one.
    """
    pinned = dict(rule.tests).get("equals")
    for test, wanted in rule.tests:
        if test == "present":
            if not given and can_be:
                return test, pinned
        elif test == "absent":
            if given:
                return test, None
        elif (
            value is not MISSING and value is not None and not isinstance(value, Unknown) and fails(test, value, wanted)
        ):
            return test, None if test == "one-of" else wanted
    return None


def _loaded(config: Config, value: Any, rule: HouseRule) -> Any:
    """A value of a file as its framework takes it, where that is what the rule compares it with."""
    kinds = {_kind(one) for _, wanted in rule.tests for one in (wanted if isinstance(wanted, tuple) else (wanted,))}
    loader = frameworks.load(config.framework).loader
    for kind in ("number", "boolean"):
        if kind in kinds and isinstance(value, (str, bool) if kind == "boolean" else str):
            try:
                return getattr(loader, kind).read(value)
            except Unreadable:
                continue
    return value


def _kind(value: Any) -> str:
    return "boolean" if isinstance(value, bool) else "number" if isinstance(value, (int, float)) else "string"


def _listed(wanted: Any) -> str:
    items: Iterable[Any] = wanted if isinstance(wanted, tuple) else (wanted,)
    return ", ".join(map(_shown, items))


def _shown(value: Any) -> str:
    """A value as a file would have it."""
    return value if isinstance(value, str) else dumps(value, ensure_ascii=False, default=str)
