"""Misfits: find values that their keys reject after the framework's own reader has converted them."""

from __future__ import annotations

import re

from cfglint_rules.vocabulary.effect_by_release import find_candidate_releases, find_fact
from cfglint_rules.vocabulary.survey import KeyOccurrence, get_checked_keys, get_target_release, get_vocabulary
from cfglint_rules.vocabulary.values import (
    Schema,
    find_refused_item,
    has_enumerated_items,
    is_accepted,
    is_placeholder,
    list_enum_words,
    list_external_words,
)
from cfglint_schemas.fact import KeyFact
from cfglint_train.documents.document import Mapping, Scalar, Sequence, follow
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.framework import load
from cfglint_train.frameworks.keys import Keys
from cfglint_train.frameworks.lens import Config
from cfglint_train.mutations.mutations import get_mutations

BY_TRAINER: Final = "x-trainer"
CHECKED_IF: Final = "x-checked-if"
"""Schema keyword of the conditions, as clauses have them, with which the framework checks the value."""
REGISTRY: Final = "x-registry"
"""Schema keyword of words that a release registers; later releases and users add further words."""
_TEMPLATE_MARK: Final = r"\{\w+\}|\{\{[^{}]*\}\}"
_MAX_SAMPLED_ITEMS: Final = 100
_MAX_CACHED_CHARACTERS: Final = 40


def find_expected_schema(occurrence: KeyOccurrence, keys: Keys) -> Schema | None:
    """Return the schema that the value of a key violates, or None if the value is accepted, unknown or not checked."""
    config, fact = occurrence.config, occurrence.fact
    assert fact is not None
    # Many files have the same short values, so accepted spellings are cached with everything the result depends on.
    node, syntax, spelling = occurrence.entry.value, config.document.syntax, None
    if syntax in ("yaml", "json") and isinstance(node, Scalar) and len(node.text) < _MAX_CACHED_CHARACTERS:
        spelling = (syntax, node.text, node.style, node.tag)
    if spelling in fact.valid_spellings or occurrence.is_overridden:
        return None
    value = _get_sample(occurrence)
    if is_left_open(config, keys, fact, value):
        return None
    schemas = list_schemas(config, fact, get_target_release(config).release)
    if syntax == "shell":
        value = get_first_word(value, schemas)
        if isinstance(value, str) and value.isspace():
            return None  # a truncated line, which SYN007 reports
    if not is_accepted_by_any(config, schemas, value):
        schema = schemas[0] or {}
        return None if _is_excused(occurrence, schema) else schema
    if fact.name in keys.forwarded_settings and not is_known_downstream(
        words := list_accepted_words(keys, fact), value
    ):
        return {"enum": words, BY_TRAINER: True}
    if spelling is not None and CHECKED_IF not in fact.get_schema():
        fact.valid_spellings.add(spelling)
    return None


def _is_excused(occurrence: KeyOccurrence, schema: Schema) -> bool:
    """Return whether a rejected value is blank, replaced by a script, or accepted by another release or a copy."""
    mutations = get_mutations(occurrence.config)
    return (
        (occurrence.value is None and mutations.is_custom(()))  # an empty value in a file that a script fills
        or (REGISTRY in schema and (_is_registered_later(occurrence) or _has_user_code(occurrence.config)))
        or _is_compared_in_copy(occurrence)
        or _is_named_in_copy(occurrence)
        or _is_refused_by_clause(occurrence)
        or _is_template_mark(occurrence)
        or _is_name_placeholder(occurrence, schema)
        or mutations.is_changed(occurrence.route)
    )


def _is_template_mark(occurrence: KeyOccurrence) -> bool:
    """Return whether the value is a placeholder of `str.format` (`{template}`) or Jinja (`{{ length }}`).

    YAML reads these placeholders as mappings.
    """
    node, document = occurrence.entry.value, occurrence.config.document
    return isinstance(node, Mapping) and re.fullmatch(_TEMPLATE_MARK, document.get_text(node.span)) is not None


def _is_name_placeholder(occurrence: KeyOccurrence, schema: Schema) -> bool:
    """Return whether the value is a placeholder: the key's name, or words of it, in capitals (`stage: STAGE`)."""
    value, key = occurrence.value, occurrence.route[-1]
    if not (isinstance(value, str) and isinstance(key, str) and value.isupper()):
        return False
    return {*value.lower().split("_")} <= {*key.lower().split("_")} and not any(
        map(str.isupper, list_enum_words(schema))
    )


def _is_compared_in_copy(occurrence: KeyOccurrence) -> bool:
    """Return whether the code of a copy compares the setting with this undeclared word and does not reject it."""
    copy, value, key = occurrence.config.evidence.vocabulary, occurrence.value, occurrence.route[-1]
    if copy is None or not isinstance(value, str) or not isinstance(key, str) or is_fatal(occurrence):
        return False
    return copy.code.has_condition((key, value), stops=False)


def _is_named_in_copy(occurrence: KeyOccurrence) -> bool:
    """Return whether a value that only some settings check is a text in the code of a copy, which may handle it."""
    copy, value, fact = occurrence.config.evidence.vocabulary, occurrence.value, occurrence.fact
    if copy is None or fact is None or CHECKED_IF not in fact.get_schema():
        return False
    return any(
        isinstance(item, str) and copy.code.has_text(item) for item in (value if isinstance(value, list) else [value])
    )


def _is_refused_by_clause(occurrence: KeyOccurrence) -> bool:
    """Return whether KEY006 reports a value that only some settings check, with a remedy of its own."""
    from cfglint_rules.vocabulary.clauses import find_refused_keys  # few values are refused

    is_checked_by_condition = occurrence.fact is not None and CHECKED_IF in occurrence.fact.get_schema()
    return is_checked_by_condition and bool(find_refused_keys(occurrence.config, (occurrence,)))


def _has_user_code(config: Config) -> bool:
    """Return whether the run loads a user's module, which may register words."""
    keys = get_checked_keys(config)
    return keys is not None and keys.has_user_code(config)


def _is_registered_later(occurrence: KeyOccurrence) -> bool:
    """Return whether no release is stated and the newest known source, released or not, accepts the word."""
    framework_vocabulary = get_vocabulary(occurrence.config)
    return (
        framework_vocabulary is not None
        and not find_candidate_releases(occurrence.config).is_stated
        and is_accepted_at(occurrence, framework_vocabulary.releases[-1])
    )


def is_accepted_at(occurrence: KeyOccurrence, release: str) -> bool:
    """Return whether a release has the key and accepts its value."""
    fact = find_fact(occurrence, release)
    return fact is not None and is_accepted_by_framework(occurrence.config, fact.get_schema(), occurrence.value)


def list_accepted_words(keys: Keys, fact: KeyFact) -> tuple[str, ...]:
    """Return the words that the framework or the library it forwards a setting to accepts."""
    downstream, additional = keys.forwarded_settings[fact.name]
    return tuple(dict.fromkeys((*list_external_words(downstream), *additional, *list_enum_words(fact.get_schema()))))


def is_known_downstream(words: tuple[str, ...], value: Any) -> bool:
    """Return whether the receiving library knows the word; True for placeholders, empty and non-string values."""
    from fnmatch import fnmatchcase  # few values are patterns

    if not isinstance(value, str) or not value or is_placeholder(value):
        return True
    return value in words or any(fnmatchcase(value, word) for word in words if "*" in word)


def _get_sample(occurrence: KeyOccurrence) -> Any:
    """Return the value, shortened to the first items if it is a long list (OLMo lists thousands of files)."""
    node = follow(occurrence.entry.value)
    if isinstance(node, Sequence) and len(node.items) > _MAX_SAMPLED_ITEMS:
        return [occurrence.config.document.build_value(item) for item in node.items[:_MAX_SAMPLED_ITEMS]]
    return occurrence.value


def get_first_word(value: Any, schemas: list[Schema | None]) -> Any:
    """Return the first of several words if an option accepts only one word; SYN007 reports the others."""
    return value[0] if isinstance(value, list) and not any(map(_is_multi_word, schemas)) else value


def _is_multi_word(schema: Schema | None) -> bool:
    """Return whether an option accepts more than one word."""
    return schema is None or schema.get("type") == "array" or "anyOf" in schema


def list_schemas(config: Config, fact: KeyFact, release: str | None = None) -> list[Schema | None]:
    """Return the enforced schema of each definition of a setting; None for a definition that is not enforced."""
    return [
        _get_checked_schema(config, definition.get_schema(release), fact.name)
        for definition in (fact, *fact.alternatives)
    ]


def is_left_open(config: Config, keys: Keys, fact: KeyFact, value: Any) -> bool:
    """Return whether a value is a placeholder, or words that a user's program may accept in addition."""
    if isinstance(value, str) and value in keys.placeholders:
        return True
    return isinstance(value, (str, list)) and keys.can_accept_more(fact.name, config)


def pick_refused(config: Config, schema: Schema, value: Any) -> Any:
    """Return the first item that a list may not have, or the value itself if its schema enumerates no items."""
    is_item = isinstance(value, list) and has_enumerated_items(schema)
    return find_refused_item(schema, value, load(config.framework).loader) if is_item else value


def is_accepted_by_any(config: Config, schemas: list[Schema | None], value: Any) -> bool:
    """Return whether any of several definitions accepts a value."""
    return any(schema is None or is_accepted_by_framework(config, schema, value) for schema in schemas)


def _get_checked_schema(config: Config, schema: Schema, name: str) -> Schema | None:
    """Return the part of a schema that the framework enforces, or None if it enforces none."""
    keys = get_checked_keys(config)
    if keys is None or (CHECKED_IF in schema and not _is_checked(config, keys, schema[CHECKED_IF])):
        return None
    return keys.extract_enforced(schema, name)


def _is_checked(config: Config, keys: Keys, conditions: Schema) -> bool:
    """Return whether the framework's own trainer runs, with settings with which it checks a value."""
    from cfglint_rules.vocabulary.clauses import check_tests  # few values are checked by condition
    from cfglint_rules.vocabulary.settings import Settings

    return keys.has_trainer(config, is_inherited=False) and check_tests(conditions, Settings(config))


def is_accepted_by_framework(config: Config, schema: Schema, value: Any) -> bool:
    """Return whether the framework's reader accepts a value."""
    keys = get_checked_keys(config)
    accepted = None if keys is None else keys.is_accepted(schema, value)
    return is_accepted(schema, value, load(config.framework).loader) if accepted is None else accepted


def is_fatal(occurrence: KeyOccurrence) -> bool:
    """Return whether a rejected value stops the framework."""
    keys = get_checked_keys(occurrence.config)
    if keys is None or not keys.is_fatal(occurrence.route):
        return False
    from cfglint_rules.vocabulary.kinds import is_read_as_another_kind  # few values are refused

    return not is_read_as_another_kind(occurrence, is_accepted_by_framework)
