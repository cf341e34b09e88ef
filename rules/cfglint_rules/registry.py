"""Find rules by code, name or selector. A rule's module is imported when the rule is first needed.

Their metadata is in `catalogue.json`, which is made with the wheel; a checkout has none, and reads it from the modules.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from json import load

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.settings.settings import selects

_FOLDER: Final = os.path.dirname(__file__)


def _metadata() -> list[dict[str, Any]]:
    path = os.path.join(_FOLDER, "catalogue.json")
    if not os.path.exists(path):
        from cfglint_rules.catalogue import read

        return read(_FOLDER)
    with open(path, encoding="utf-8") as file:
        found: list[dict[str, Any]] = load(file)
    return found


def _rule(metadata: dict[str, Any]) -> Rule:
    needs = {field: tuple(values) for field, values in metadata.pop("needs", {}).items()}
    others: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in metadata.items()
    }
    return Rule(**others, needs=needs)


RULES: Final = {rule.code: rule for rule in map(_rule, _metadata())}
OF_ENGINE: Final = {rule.reported_by_engine: rule for rule in RULES.values() if rule.reported_by_engine is not None}
"""The rules under which the engine itself reports, by what it reports."""


def find(name_or_code: str) -> Rule | None:
    """A rule by its code (in any case) or its name."""
    by_code = RULES.get(name_or_code.upper())
    return by_code or next((rule for rule in RULES.values() if rule.name == name_or_code), None)


def meant(selector: str) -> frozenset[str]:
    """The codes of the rules that a selector means: ALL, a family, a code or a name."""
    return frozenset(rule.code for rule in RULES.values() if selects((selector,), rule.code, rule.name) >= 0)


def unknown(selector: str) -> str:
    """What to say of a selector that means no rule."""
    from difflib import get_close_matches

    numbered = re.sub(r"(?<![0-9])[0-9]{1,3}$", lambda number: f"{int(number[0]):03}", selector.upper())
    families = sorted({code[:3] for code in RULES})
    names = [*families, *RULES, *(rule.name for rule in RULES.values())]
    near = (
        [numbered]
        if numbered in RULES
        else get_close_matches(selector.upper(), names, 1) or get_close_matches(selector, names, 1)
    )
    return f"unknown rule {selector}; " + (f"did you mean {near[0]}?" if near else "`cfglint rules` lists all")


def about(words: str) -> list[Rule]:
    """The rules whose name or documentation has all of some words: those with the words in their name or first line
    first, then those that have them most often.
    """
    wanted = _words(words)
    found = []
    for rule in RULES.values():
        text = module(rule).__doc__
        first, whole = _words(f"{rule.name} {text.partition(chr(10))[0]}"), _words(f"{rule.name} {text}")
        if wanted and set(wanted) <= set(whole):
            found.append((not set(wanted) <= set(first), -min(map(whole.count, wanted)), rule))
    return [rule for *_, rule in sorted(found, key=lambda one: one[:2])]


def _words(text: str) -> list[str]:
    """The words of a text, without the s of a plural."""
    plain = " ".join(text.lower().replace("-", " ").split()).replace("out of memory", "oom")
    return [word.removesuffix("s") for word in re.findall(r"[a-z0-9_]+", plain)]


def module(rule: Rule) -> Any:
    """The module of a rule."""
    return import_module(f"cfglint_rules.{rule.module}")


_checkers: dict[str, Callable[[Any], Iterable[Report]]] = {}


def checker(rule: Rule) -> Callable[[Any], Iterable[Report]]:
    """Return the function that checks a run or a configuration: nothing is reported of a run without what it needs."""
    return partial(_check, rule)


def _check(rule: Rule, subject: Any) -> Iterable[Report]:
    if rule.needs and not rule.has_needs(subject.plan):
        return ()
    if rule.code not in _checkers:
        _checkers[rule.code] = module(rule).check
    return _checkers[rule.code](subject)
