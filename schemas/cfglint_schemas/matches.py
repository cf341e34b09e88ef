"""What an unknown setting was probably meant to be. Only looked into where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from cfglint_schemas.status import ITEM, UNKNOWN, Context, Route, parts_of
from cfglint_schemas.vocabulary import Vocabulary
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final

# difflib's ratio from which two names are alike, and from which one is surely a slip for the other.
_ALIKE: Final = 0.75
_SLIP: Final = 0.85


class Match(Frozen):
    """A setting that an unknown one may have been meant to be."""

    route: Route
    how: str
    """spelling (case, dashes, underscores), words (in another order), dotted (a route written as one key), place (the
    same name belongs elsewhere), similar."""


def closest(
    vocabulary: Vocabulary, route: Route, release: str, context: Context = UNKNOWN, most: int = 3
) -> list[Match]:
    """The settings nearest to an unknown one, best first.

    `route` is the unknown setting's; only settings that can be given at the release are proposed.
    """
    name = route[-1]
    if not isinstance(name, str):
        return []
    parent = route[:-1]
    here = vocabulary.names(parent, release, context)
    alike = similar(name, tuple(here))
    elsewhere = list(_elsewhere(vocabulary, parent, name, release, context))
    bare, words = _bare(name), _words(name)
    proposals = [
        *(Match((*parent, other), "spelling") for other in here if _bare(other) == bare),
        *(Match(found, "dotted") for found in _dotted(vocabulary, parent, name, release, context)),
        *(Match((*parent, other), "words") for other in here if _words(other) == words),
        *(Match((*parent, other), "similar") for other, ratio in alike if ratio >= _SLIP),
        *(Match(found, "place") for found in elsewhere if ITEM not in found),
        *(Match((*parent, other), "similar") for other, ratio in alike if ratio < _SLIP),
        *(Match(found, "place") for found in elsewhere if ITEM in found),
    ]
    best: dict[Route, Match] = {}
    for proposal in proposals:
        best.setdefault(proposal.route, proposal)
    return list(best.values())[:most]


@lru_cache(maxsize=4096)
def _bare(name: str) -> str:
    return name.replace("-", "").replace("_", "").replace(".", "").lower()


@lru_cache(maxsize=4096)
def _words(name: str) -> str:
    return " ".join(sorted(name.lower().replace("-", " ").replace("_", " ").replace(".", " ").split()))


@lru_cache(maxsize=1024)
def similar(name: str, names: tuple[str, ...]) -> tuple[tuple[str, float], ...]:
    """The most similar names with their ratios, best first. A rule and what a run is meant to be both ask for them."""
    from difflib import SequenceMatcher, get_close_matches

    matcher = SequenceMatcher(b=name)

    def ratio(other: str) -> float:
        matcher.set_seq1(other)
        return matcher.ratio()

    return tuple((other, ratio(other)) for other in get_close_matches(name, names, n=3, cutoff=_ALIKE))


def _dotted(vocabulary: Vocabulary, parent: Route, name: str, release: str, context: Context) -> Iterator[Route]:
    if "." in name and not name.startswith("-"):
        route = (*parent, *parts_of(name))
        fact = vocabulary.fact(route, release, context)
        if fact is not None and not fact.open and fact.status().kind == "present":
            yield route


def _elsewhere(vocabulary: Vocabulary, parent: Route, name: str, release: str, context: Context) -> Iterator[Route]:
    """Every other place where the name can be given, the nearest to the root first."""
    for other in vocabulary.mappings(release, context) if _knows(vocabulary, name, release) else ():
        if other != parent:
            fact = vocabulary.fact((*other, name), release, context)
            if fact is not None and not fact.open and fact.status().kind == "present":
                yield (*other, name)


@lru_cache(maxsize=4096)
def _knows(vocabulary: Vocabulary, name: str, release: str) -> bool:
    """Whether any place has the name. Asked again in each run that an unknown key of a companion belongs to."""
    return vocabulary.knows(name, release)
