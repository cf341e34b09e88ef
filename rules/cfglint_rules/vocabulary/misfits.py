"""Values that their keys do not take, as the framework's own reader converts them."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from cfglint_rules.vocabulary.effect_by_release import fact_at, window_of
from cfglint_rules.vocabulary.kinds import is_taken_for_another
from cfglint_rules.vocabulary.survey import KeyOccurrence, keys_of, target, vocabulary
from cfglint_rules.vocabulary.values import Schema, elsewhere, fits, is_filled_in, members
from cfglint_schemas.fact import Fact
from cfglint_train.documents.document import Mapping, Scalar, Sequence, follow
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.framework import load
from cfglint_train.frameworks.keys import Keys
from cfglint_train.frameworks.lens import Config
from cfglint_train.mutations.mutations import mutations_of

BY_TRAINER: Final = "x-trainer"
REGISTRY: Final = "x-registry"
"""The words are what a release registers: later ones, and its users, add their own."""
_MARK: Final = r"\{\w+\}|\{\{[^{}]*\}\}"
_ENOUGH: Final = 100
_SHORT: Final = 40


def misfit(sighting: KeyOccurrence, keys: Keys) -> Schema | None:
    """Return what a key takes, or None if it takes its value or nothing is known of either."""
    config, fact = sighting.config, sighting.fact
    assert fact is not None
    # Most values are words that other files give to the same setting, too. All that they follow from:
    node, syntax, spelling = sighting.entry.value, config.document.syntax, None
    if syntax in ("yaml", "json") and isinstance(node, Scalar) and len(node.text) < _SHORT:
        spelling = (syntax, node.text, node.style, node.tag)
    if spelling in fact.fitting or sighting.overridden:
        return None
    value = _sample(sighting)
    if isinstance(value, str) and (value in keys.filled_in or keys.may_take_more(fact.name, config)):
        return None
    schemas = schemas_of(config, fact, target(config).release)
    if syntax == "shell":
        value = first_word(value, schemas)
        if isinstance(value, str) and value.isspace():
            return None  # a line that is cut, which SYN007 says
    if not fits_one(config, schemas, value):
        schema = schemas[0] or {}
        return None if _is_excused(sighting, schema) else schema
    if fact.name in keys.handed_on and not is_handed_on(words := words_of(keys, fact), value):
        return {"enum": words, BY_TRAINER: True}
    if spelling is not None:
        fact.fitting.add(spelling)
    return None


def _is_excused(sighting: KeyOccurrence, schema: Schema) -> bool:
    """Return whether a value is a blank of a form, a mark that a script replaces, or a word that is known elsewhere."""
    mutations = mutations_of(sighting.config)
    return (
        (sighting.value is None and mutations.is_own(()))  # what is left empty in a file that a script names
        or (REGISTRY in schema and _is_registered_later(sighting))
        or _is_compared(sighting)
        or _is_marked(sighting)
        or _is_named_for(sighting, schema)
        or mutations.is_set(sighting.route)
    )


def _is_marked(sighting: KeyOccurrence) -> bool:
    """Whether the value is a mark of `str.format` (`{template}`) or Jinja (`{{ length }}`), for YAML a mapping."""
    node, document = sighting.entry.value, sighting.config.document
    return isinstance(node, Mapping) and re.fullmatch(_MARK, document.text(node.span)) is not None


def _is_named_for(sighting: KeyOccurrence, schema: Schema) -> bool:
    """Whether the value is the key's name in capitals, or words of it (`stage: STAGE`): a mark in a template."""
    value, key = sighting.value, sighting.route[-1]
    if not (isinstance(value, str) and isinstance(key, str) and value.isupper()):
        return False
    return {*value.lower().split("_")} <= {*key.lower().split("_")} and not any(map(str.isupper, members(schema)))


def _is_compared(sighting: KeyOccurrence) -> bool:
    """Whether the code of a copy compares the setting with the word, which no declaration has and nothing refuses."""
    copy, value, key = sighting.config.evidence.vocabulary, sighting.value, sighting.route[-1]
    if copy is None or not isinstance(value, str) or not isinstance(key, str) or stops(sighting):
        return False
    return copy.code.asks((key, value), stops=False)


def _is_registered_later(sighting: KeyOccurrence) -> bool:
    """Whether the newest sources that are known, released or not, have the word, and no release is stated."""
    known = vocabulary(sighting.config)
    return known is not None and not window_of(sighting.config).stated and takes_at(sighting, known.releases[-1])


def takes_at(sighting: KeyOccurrence, release: str) -> bool:
    """Return whether a release has the key and takes its value."""
    fact = fact_at(sighting, release)
    return fact is not None and fits_framework(sighting.config, fact.schema(), sighting.value)


def words_of(keys: Keys, fact: Fact) -> tuple[str, ...]:
    """The words that the framework or the HF Trainer has for a setting."""
    handed, own = keys.handed_on[fact.name]
    return tuple(dict.fromkeys((*elsewhere(handed), *own, *members(fact.schema()))))


def is_handed_on(words: tuple[str, ...], value: Any) -> bool:
    """Whether the word is known in the end; True for other values."""
    if not isinstance(value, str) or not value or is_filled_in(value):
        return True
    return value in words or any(fnmatchcase(value, word) for word in words if "*" in word)


def _sample(sighting: KeyOccurrence) -> Any:
    """The value; of a long list (OLMo's thousands of files), as much as shows what its items are."""
    node = follow(sighting.entry.value)
    if isinstance(node, Sequence) and len(node.items) > _ENOUGH:
        return [sighting.config.document.plain(item) for item in node.items[:_ENOUGH]]
    return sighting.value


def first_word(value: Any, schemas: list[Schema | None]) -> Any:
    """Of several words the one that an option takes; those behind it belong to no flag, which SYN007 says."""
    return value[0] if isinstance(value, list) and not any(map(_takes_several, schemas)) else value


def _takes_several(schema: Schema | None) -> bool:
    """Whether an option takes more than one word."""
    return schema is None or schema.get("type") == "array" or "anyOf" in schema


def schemas_of(config: Config, fact: Fact, release: str | None = None) -> list[Schema | None]:
    """What a setting takes, by each of its definitions; None for one that is not enforced."""
    return [_checked(config, one.schema(release), fact.name) for one in (fact, *fact.others)]


def fits_one(config: Config, schemas: list[Schema | None], value: Any) -> bool:
    """Return whether a value fits one of several definitions."""
    return any(schema is None or fits_framework(config, schema, value) for schema in schemas)


def _checked(config: Config, schema: Schema, name: str) -> Schema | None:
    """The part of a schema that values are checked against; None where they are not."""
    keys = keys_of(config)
    return None if keys is None else keys.part(schema, name)


def fits_framework(config: Config, schema: Schema, value: Any) -> bool:
    """Return whether a framework's reader takes a value."""
    keys = keys_of(config)
    taken = None if keys is None else keys.takes(schema, value)
    return fits(schema, value, load(config.framework).loader) if taken is None else taken


def stops(sighting: KeyOccurrence) -> bool:
    """Return whether a value that does not fit stops the framework."""
    keys = keys_of(sighting.config)
    return keys is not None and keys.stops(sighting.route) and not is_taken_for_another(sighting, fits_framework)
