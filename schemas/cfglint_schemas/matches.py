"""Corrections of unknown keys: find the keys that were probably intended. Only imported if a key is unknown."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from cfglint_schemas.status import ITEM, UNKNOWN, Context, Route, split_route
from cfglint_schemas.vocabulary import Vocabulary
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final

# Minimum difflib ratios for two names to count as similar, and for one to count as a typo of the other.
_MIN_SIMILAR: Final = 0.75
_MIN_TYPO: Final = 0.85


class KeyMatch(Frozen):
    """A key that may have been intended by an unknown key."""

    route: Route
    reason: str
    """Relation to the unknown key: spelling (differs in case, dashes or underscores), words (same words in another
    order), dotted (a route written as one key), place (the same name is accepted elsewhere) or similar.
    """


def find_closest(
    vocabulary: Vocabulary, route: Route, release: str, context: Context = UNKNOWN, limit: int = 3
) -> list[KeyMatch]:
    """Return at most `limit` keys closest to the unknown key at `route`, best first.

    Only keys that the release accepts are returned.
    """
    name = route[-1]
    if not isinstance(name, str):
        return []
    parent = route[:-1]
    siblings = vocabulary.list_names(parent, release, context)
    similar_names = find_similar(name, tuple(siblings))
    elsewhere = list(_find_elsewhere(vocabulary, parent, name, release, context))
    normalized, words = _normalize(name), _sort_words(name)
    proposals = [
        *(KeyMatch((*parent, other), "spelling") for other in siblings if _normalize(other) == normalized),
        *(KeyMatch(candidate, "dotted") for candidate in _find_dotted(vocabulary, parent, name, release, context)),
        *(KeyMatch((*parent, other), "words") for other in siblings if _sort_words(other) == words),
        *(KeyMatch((*parent, other), "similar") for other, ratio in similar_names if ratio >= _MIN_TYPO),
        *(KeyMatch(candidate, "place") for candidate in elsewhere if ITEM not in candidate),
        *(KeyMatch((*parent, other), "similar") for other, ratio in similar_names if ratio < _MIN_TYPO),
        *(KeyMatch(candidate, "place") for candidate in elsewhere if ITEM in candidate),
    ]
    best: dict[Route, KeyMatch] = {}
    for proposal in proposals:
        best.setdefault(proposal.route, proposal)
    return list(best.values())[:limit]


@lru_cache(maxsize=4096)
def _normalize(name: str) -> str:
    return name.replace("-", "").replace("_", "").replace(".", "").lower()


@lru_cache(maxsize=4096)
def _sort_words(name: str) -> str:
    return " ".join(sorted(name.lower().replace("-", " ").replace("_", " ").replace(".", " ").split()))


@lru_cache(maxsize=1024)
def find_similar(name: str, names: tuple[str, ...]) -> tuple[tuple[str, float], ...]:
    """Return up to three most similar names with their ratios, best first.

    Cached because a rule and the correction of typos both call it with the same names.
    """
    from difflib import SequenceMatcher, get_close_matches

    matcher = SequenceMatcher(b=name)

    def compute_ratio(other: str) -> float:
        matcher.set_seq1(other)
        return matcher.ratio()

    return tuple((other, compute_ratio(other)) for other in get_close_matches(name, names, n=3, cutoff=_MIN_SIMILAR))


def _find_dotted(vocabulary: Vocabulary, parent: Route, name: str, release: str, context: Context) -> Iterator[Route]:
    if "." in name and not name.startswith("-"):
        route = (*parent, *split_route(name))
        fact = vocabulary.find_fact(route, release, context)
        if fact is not None and not fact.is_open and fact.resolve_status().kind == "present":
            yield route


def _find_elsewhere(
    vocabulary: Vocabulary, parent: Route, name: str, release: str, context: Context
) -> Iterator[Route]:
    """Yield the routes of the name in other mappings that accept it, nearest to the root first."""
    for other in vocabulary.list_mappings(release, context) if _has_name(vocabulary, name, release) else ():
        if other != parent:
            fact = vocabulary.find_fact((*other, name), release, context)
            if fact is not None and not fact.is_open and fact.resolve_status().kind == "present":
                yield (*other, name)


@lru_cache(maxsize=4096)
def _has_name(vocabulary: Vocabulary, name: str, release: str) -> bool:
    """Return whether any definition has the name.

    Cached because every run that uses a companion looks up its unknown keys again.
    """
    return vocabulary.has_name(name, release)
