"""What an unknown key was probably meant to be, and whether that is beyond doubt."""

from __future__ import annotations

import re
from collections.abc import Callable

from cfglint_rules.vocabulary.survey import KeyOccurrence, context, keys_of, target
from cfglint_train.documents.document import Route
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cfglint_schemas.fact import Fact
    from cfglint_schemas.status import Context
    from cfglint_schemas.vocabulary import Vocabulary

IsSure = Callable[[str, str, bool], bool]
"""Whether a likely slip is one: a name, what it may be meant to be, and whether their likeness makes it sure."""

# difflib's ratio from which a name is a slip of another, and by how much the next best must be worse; the ratio from
# which that holds of a single word, and the letters up to which a word is short.
_SLIP: Final = 0.85
_MARGIN: Final = 0.04
_WORD: Final = 0.75
_SHORT: Final = 4


class Proposal(Frozen):
    """A setting that the target release has."""

    route: Route
    sure: bool
    """A clear slip, or another framework's word for the same thing."""
    same: bool = True
    """It has the same words, but for slips. A name with a further word means something else, and no fix writes it."""


def proposals(sighting: KeyOccurrence) -> list[Proposal]:
    """The settings that an unknown key may have been meant to be, the likeliest first."""
    config, keys = sighting.config, keys_of(sighting.config)
    if keys is None:
        return []
    known, release, told = keys.vocabulary_of(config), target(config).release, context(config)
    word = keys.words.same.get(_dotted(sighting.route))
    if word is not None:
        route: Route = tuple(word.split("."))
        fact = known.fact(route, release, told)
        if fact is not None and fact.status().kind == "present" and not fact.deprecated:
            return [Proposal(route, True)]
    if advice(sighting) is not None:
        return []
    return likely(known, sighting.route, release, told, keys.is_sure)


def likely(known: Vocabulary, route: Route, release: str, told: Context, is_sure: IsSure) -> list[Proposal]:
    """The settings of a vocabulary that an unknown one may have been meant to be, the likeliest first."""
    from cfglint_schemas.matches import closest

    wanted = str(route[-1])
    found = [
        match
        for match in closest(known, route, release, told)
        if match.how != "similar" or has_same_words(_own(wanted), _own(str(match.route[-1]))) is not False
    ]
    found = [match for match in found if not _is_leaving(known.fact(match.route, release, told))]
    if not found:
        return []
    likeness = [_likeness(wanted, str(match.route[-1])) for match in found]
    alike = likeness[0] >= _SLIP and all(likeness[0] - other >= _MARGIN for other in likeness[1:])
    sure = found[0].how in ("spelling", "dotted", "words") or (found[0].how == "similar" and alike)
    sure = is_sure(wanted, str(found[0].route[-1]), sure)
    same = [match.how != "similar" or _is_same(is_sure, wanted, str(match.route[-1])) for match in found]
    return [Proposal(match.route, sure and one and match is found[0], one) for match, one in zip(found, same)]


def _is_leaving(fact: Fact | None) -> bool:
    return fact is not None and fact.deprecated


def _is_same(is_sure: IsSure, wanted: str, other: str) -> bool:
    """Whether two names have the same words, and are in groups that mean the same."""
    return has_same_words(_own(wanted), _own(other)) is True and is_sure(wanted, other, True)


def _own(name: str) -> str:
    """A flag without the group that it is in."""
    return name.rpartition(".")[2]


def has_same_words(one: str, other: str) -> bool | None:
    """Whether two names consist of the same words in the same order, but for slips; None where one has further words.

    >>> has_same_words("lr_warmup_steps", "lr_warmup_ratio"), has_same_words("batch_size", "eval_batch_size")
    (False, None)
    """
    words, others = _words(one), _words(other)
    if len(words) == len(others):
        return all(map(_is_slip, words, others))
    whole, rest = sorted((words, others), key=len, reverse=True)
    if _is_letter_apart("".join(whole), "".join(rest)):
        return True  # one word written as two
    left = iter(whole)
    return None if all(any(_is_slip(word, other) for other in left) for word in rest) else False


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]


def _is_slip(word: str, other: str) -> bool:
    """Whether two words are one: alike, cut short or with a letter doubled, and with the same digits.

    Short words and those with digits begin alike (`bf16` is no `fp16`); none has something in front (`undesirable`).
    """
    short, long = sorted((word, other), key=len)
    digits, others = (re.sub(r"\D", "", one) for one in (word, other))
    if digits != others or ((len(short) <= _SHORT or digits) and word[0] != other[0]):
        return False
    if len(long) - len(short) > 1 and long.endswith(short):
        return False
    cut = len(short) > 2 and long.startswith(short)
    doubled = any(long[at] == long[at - 1] and long[:at] + long[at + 1 :] == short for at in range(1, len(long)))
    return cut or doubled or _likeness(word, other) >= _WORD


def _is_letter_apart(long: str, short: str) -> bool:
    """Whether one letter more makes one text the other."""
    return any(long[:at] + long[at + 1 :] == short for at in range(len(long)))


def slip(word: str, words: list[str]) -> str | None:
    """The one of some words that another is a slip of, if there is exactly one."""
    ranked = sorted(((_likeness(word, other), other) for other in words), reverse=True)[:2]
    if not ranked or ranked[0][0] < _SLIP or (len(ranked) > 1 and ranked[0][0] - ranked[1][0] < _MARGIN):
        return None
    return ranked[0][1]


def advice(sighting: KeyOccurrence) -> str | None:
    """What to do instead, where no setting takes the value."""
    keys = keys_of(sighting.config)
    return None if keys is None else keys.words.advice.get(_dotted(sighting.route))


def _dotted(route: Route) -> str:
    return ".".join("*" if isinstance(part, int) else part for part in route)


def _likeness(one: str, other: str) -> float:
    from difflib import SequenceMatcher

    return SequenceMatcher(None, one.lstrip("-"), other.lstrip("-")).ratio()
