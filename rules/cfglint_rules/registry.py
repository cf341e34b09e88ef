"""Find rules by code, name or selector. A rule's module is imported when the rule is first needed: what they state is
in `catalogue.json`, which `python -m tools.rules` makes of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from json import load

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.settings.settings import selects


def _rules() -> Iterator[tuple[str, Rule]]:
    with open(os.path.join(os.path.dirname(__file__), "catalogue.json"), encoding="utf-8") as file:
        for stated in load(file):
            needs = {field: tuple(values) for field, values in stated.pop("needs", {}).items()}
            fields: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value for name, value in stated.items()
            }
            yield fields["code"], Rule(**fields, needs=needs)


RULES: Final = dict(_rules())
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


_checkers: dict[str, Callable[[Any], Iterator[Report]]] = {}


def checker(rule: Rule) -> Callable[[Any], Iterator[Report]]:
    """The function that checks."""
    if rule.code not in _checkers:
        _checkers[rule.code] = module(rule).check
    return _checkers[rule.code]
