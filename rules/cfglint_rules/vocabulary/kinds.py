"""Lists with items of several kinds: check whether an item is read as a kind that lacks one of its keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cfglint_rules.vocabulary.survey import KeyOccurrence, get_context, get_target_release, get_vocabulary
from cfglint_schemas.fact import KeyFact
from cfglint_train.foundation.typed import Any
from cfglint_train.frameworks.lens import Config

IsAccepted = Callable[[Config, Mapping[str, Any], Any], bool]


def is_read_as_another_kind(occurrence: KeyOccurrence, is_accepted: IsAccepted) -> bool:
    """Return whether the list item that contains a key is read as another kind of item, which lacks the key.

    pydantic tries all members of a union, so it is enough that one kind drops unknown names and accepts all other keys.
    """
    framework_vocabulary, config = get_vocabulary(occurrence.config), occurrence.config
    item = config.get_value(*occurrence.route[:-1])
    if framework_vocabulary is None or len(occurrence.route) < 2 or not isinstance(item, Mapping):
        return False
    release, key_context = get_target_release(config).release, get_context(config)
    kinds = framework_vocabulary.list_definitions(occurrence.route[:-1], release, key_context)
    if len(kinds) < 2:
        return False
    name = str(occurrence.route[-1])
    for kind in kinds:
        if (
            framework_vocabulary.resolve_spelling(kind, name, release) is None
            and framework_vocabulary.get_effect(kind, release) == "dropped"
        ):
            facts = {fact.name: fact for fact in framework_vocabulary.list_facts(kind, release, key_context)}
            if _is_accepted_as_kind(facts, item, lambda schema, value: is_accepted(config, schema, value)):
                return True
    return False


def _is_accepted_as_kind(
    facts: Mapping[str, KeyFact], item: Mapping[Any, Any], is_accepted: Callable[[Mapping[str, Any], Any], bool]
) -> bool:
    """Return whether a kind accepts all values of an item and the item has every required key."""
    present = {name: fact for name, fact in facts.items() if fact.resolve_status().kind == "present"}
    if any("x-required" in fact.get_schema() and name not in item for name, fact in present.items()):
        return False
    return all(is_accepted(present[name].get_schema(), value) for name, value in item.items() if name in present)
