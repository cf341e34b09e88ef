"""Find the keys that house rules and `--set` name in the vocabularies.

Flags are accepted with or without dashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cfglint_schemas.fact import KeyFact
from cfglint_schemas.status import PRESENT, UNKNOWN, Context, Route
from cfglint_schemas.vocabulary import Vocabulary
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.registry import list_frameworks


def find_facts(vocabulary: Vocabulary, key: str, context: Context = UNKNOWN) -> dict[str, KeyFact]:
    """Return the facts that a vocabulary has for a key, by name, newer names first; empty if it has none."""
    facts: dict[str, KeyFact] = {}
    for spelling in _list_spellings(key):
        route = _parse_route(spelling)
        fact = vocabulary.find_fact(route, vocabulary.newest, context)
        top = fact if len(route) == 1 else vocabulary.find_fact(route[:1], vocabulary.newest, context)
        if fact is not None and top is not None and not top.is_open:  # an open mapping accepts any name
            status = fact.resolve_status()
            if status.kind != PRESENT:
                for name in status.new_names:
                    newer_fact = vocabulary.find_fact(_parse_route(name), vocabulary.newest, context)
                    if newer_fact is not None:
                        facts[name] = newer_fact
            facts[spelling] = fact
    return facts


def _list_spellings(key: str) -> tuple[str, ...]:
    key = key.removesuffix(ITEM_SUFFIX)  # `datasets[]` alone: the items have no keys, so look up the list
    bare = key.lstrip("-")
    return tuple(dict.fromkeys((key, bare, bare.replace("-", "_"), f"--{bare}", f"--{bare.replace('-', '_')}")))


ITEM_SUFFIX: Final = "[]"
"""Suffix that marks a list in the path of a key of its items: `datasets[].type`."""


def _parse_route(name: str) -> Route:
    if name.startswith("-"):
        return (name,)
    parts: list[str | int] = []
    for part in name.split("."):
        parts += [part.removesuffix(ITEM_SUFFIX), 0] if part.endswith(ITEM_SUFFIX) else [part]
    return tuple(parts)


def explain_unknown(key: str, framework_names: tuple[str, ...]) -> str | None:
    """Return the message for a key that none of the named frameworks (or no framework) has, else None."""
    names = [name for name in (framework_names or list_frameworks()) if frameworks.load(name).keys is not None]
    if any(_is_known(name, key) for name in names):
        return None
    suggestion = find_similar(key, names)
    titles = " or ".join(list_frameworks()[name].title for name in framework_names) or "any framework"
    return f"is not a key of {titles}: {key!r}" + (f"; did you mean {suggestion}?" if suggestion else "")


def find_similar(key: str, names: Iterable[str]) -> str | None:
    """Return the key of the named frameworks that is most similar to `key`, or None."""
    from difflib import get_close_matches

    keys = sorted({spelling for name in names for spelling in _list_keys(name)})
    matches = get_close_matches(key, keys, 1) or get_close_matches(f"--{key}", keys, 1)
    return matches[0] if matches else None


def _is_known(framework: str, key: str) -> bool:
    vocabulary, contexts = _load_contexts(framework)
    return any(find_facts(vocabulary, key, context) for context in contexts)


def _list_keys(framework: str) -> Iterator[str]:
    vocabulary, contexts = _load_contexts(framework)
    for context in contexts:
        yield from (".".join(map(str, fact.route)) for fact in vocabulary.iterate_keys(vocabulary.newest, context))


def _load_contexts(framework: str) -> tuple[Vocabulary, list[Context]]:
    """Return a framework's vocabulary and a context for each of its entry points."""
    keys = frameworks.load(framework).keys
    assert keys is not None
    entry, vocabulary = list_frameworks()[framework].default_entry, keys.vocabulary
    return vocabulary, [Context(entry=entry_point) for entry_point in ([entry] if entry else vocabulary.entries)]
