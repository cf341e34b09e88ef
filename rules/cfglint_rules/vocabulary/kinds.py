"""Items that may be one of several kinds: which of them a framework's reader takes an item for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cfglint_rules.vocabulary.survey import KeyOccurrence, context, target, vocabulary
from cfglint_schemas.fact import Fact
from cfglint_train.foundation.typed import Any
from cfglint_train.frameworks.lens import Config

Fits = Callable[[Config, Mapping[str, Any], Any], bool]


def is_taken_for_another(sighting: KeyOccurrence, fits: Fits) -> bool:
    """Whether the item of a list that a key is in is read as one of another kind, which lacks the key.

    pydantic tries all kinds of a union: one that drops names that it does not know, and takes all others, is enough.
    """
    known, config = vocabulary(sighting.config), sighting.config
    item = config.value(*sighting.route[:-1])
    if known is None or len(sighting.route) < 2 or not isinstance(item, Mapping):
        return False
    release, here = target(config).release, context(config)
    kinds = known.definitions(sighting.route[:-1], release, here)
    if len(kinds) < 2:
        return False
    name = str(sighting.route[-1])
    for kind in kinds:
        if known.canonical(kind, name, release) is None and known.effect_in(kind, release) == "dropped":
            facts = {fact.name: fact for fact in known.facts_of(kind, release, here)}
            if _takes(facts, item, lambda schema, value: fits(config, schema, value)):
                return True
    return False


def _takes(facts: Mapping[str, Fact], item: Mapping[Any, Any], fits: Callable[[Mapping[str, Any], Any], bool]) -> bool:
    """Whether every value of an item fits the settings of a kind, and none that the kind needs is missing."""
    present = {name: fact for name, fact in facts.items() if fact.status().kind == "present"}
    if any("x-required" in fact.schema() and name not in item for name, fact in present.items()):
        return False
    return all(fits(present[name].schema(), value) for name, value in item.items() if name in present)
