"""Rule registry: find rules by code, name or selector. A rule's module is imported when the rule is first needed.

The metadata is in `catalogue.json`, which is built with the wheel. Without that file, as in a checkout, the registry
reads the metadata from the source of the rules.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from json import load

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.foundation.modules import import_module
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.plan.names import Field
from cfglint_train.settings.settings import measure_precision

_FOLDER: Final = os.path.dirname(__file__)


def _read_metadata() -> list[dict[str, Any]]:
    path = os.path.join(_FOLDER, "catalogue.json")
    if not os.path.exists(path):
        from cfglint_rules.catalogue import read

        return read(_FOLDER)
    with open(path, encoding="utf-8") as file:
        metadata: list[dict[str, Any]] = load(file)
    return metadata


def _build_rule(metadata: dict[str, Any]) -> Rule:
    arguments = {name: tuple(value) if isinstance(value, list) else value for name, value in metadata.items()}
    arguments["needs"] = {field: tuple(values) for field, values in metadata.get("needs", {}).items()}
    return Rule._make(map((Rule._field_defaults | arguments).__getitem__, Rule._fields))


RULES: Final = {rule.code: rule for rule in map(_build_rule, _read_metadata())}
ENGINE_RULES: Final = {rule.reported_by_engine: rule for rule in RULES.values() if rule.reported_by_engine is not None}
"""Rules that the engine itself reports, by the occasion on which it does."""


def find_rule(name_or_code: str) -> Rule | None:
    """Return the rule with this code (upper or lower case) or name, or None if there is none."""
    by_code = RULES.get(name_or_code.upper())
    return by_code or next((rule for rule in RULES.values() if rule.name == name_or_code), None)


@cache
def _load_reads() -> Mapping[Field, list[str]]:
    with open(os.path.join(_FOLDER, "reads.json"), encoding="utf-8") as file:
        codes: Mapping[Field, list[str]] = load(file)
    return codes


def list_readers(field: Field) -> list[Rule]:
    """Return the rules that read a plan field; `tools.rule_reads` makes the list."""
    return [RULES[code] for code in _load_reads().get(field, ())]


def match_selector(selector: str) -> frozenset[str]:
    """Return the codes of the rules that a selector matches: ALL, a family, a code or a name."""
    return frozenset(rule.code for rule in RULES.values() if measure_precision((selector,), rule.code, rule.name) >= 0)


def describe_unknown(selector: str) -> str:
    """Return the error message for a selector that matches no rule, with the nearest name if there is one."""
    from difflib import get_close_matches

    padded_code = re.sub(r"(?<![0-9])[0-9]{1,3}$", lambda number: f"{int(number[0]):03}", selector.upper())
    families = sorted({code[:3] for code in RULES})
    names = [*families, *RULES, *(rule.name for rule in RULES.values())]
    suggestions = (
        [padded_code]
        if padded_code in RULES
        else get_close_matches(selector.upper(), names, 1) or get_close_matches(selector, names, 1)
    )
    return f"unknown rule {selector}; " + (
        f"did you mean {suggestions[0]}?" if suggestions else "`cfglint rules` lists all"
    )


def search_rules(words: str) -> list[Rule]:
    """Return the rules whose name or documentation contains all search words.

    Rules with all words in their name come first, then rules with all words in their name and first line, then all
    others. Within each group, rules are sorted by the number of occurrences of the rarest search word.
    """
    search_words = _split_words(words)
    matches = []
    for rule in RULES.values():
        text = load_module(rule).__doc__
        parts = [
            _split_words(part)
            for part in (rule.name, f"{rule.name} {text.partition(chr(10))[0]}", f"{rule.name} {text}")
        ]
        rank = next((rank for rank, part in enumerate(parts) if set(search_words) <= set(part)), None)
        if search_words and rank is not None:
            matches.append((rank, -min(map(parts[-1].count, search_words)), rule))
    return [rule for *_, rule in sorted(matches, key=lambda match: match[:2])]


def _split_words(text: str) -> list[str]:
    """Return the words of a text in lower case, without a final "s"; "out of memory" becomes "oom"."""
    plain = " ".join(text.lower().replace("-", " ").split()).replace("out of memory", "oom")
    return [word.removesuffix("s") for word in re.findall(r"[a-z0-9_]+", plain)]


def load_module(rule: Rule) -> Any:
    """Import the module of a rule and return it."""
    return import_module(f"cfglint_rules.{rule.module}")


_checkers: dict[str, Callable[[Any], Iterable[Report]]] = {}


def get_checker(rule: Rule) -> Callable[[Any], Iterable[Report]]:
    """Return a function that checks a run or config.

    It imports the rule's module on the first call. It returns no reports if the run lacks what the rule needs.
    """
    return partial(_check_if_needed, rule)


def is_needed(rule: Rule, run: Any) -> bool:
    """Return whether a run has the plan values, inputs and capacities without which a rule reports nothing."""
    if rule.needs and not rule.has_needs(run.plan):
        return False
    if rule.inputs and not any(getattr(run.inputs, name) for name in rule.inputs):
        return False
    return not rule.capacities or any(map(run.hardware.is_stated, rule.capacities))


def _check_if_needed(rule: Rule, subject: Any) -> Iterable[Report]:
    if not is_needed(rule, subject):
        return ()
    if rule.code not in _checkers:
        _checkers[rule.code] = load_module(rule).check
    return _checkers[rule.code](subject)
