"""Proposals for unknown keys: find the settings that were probably intended, and decide whether that is certain."""

from __future__ import annotations

import re
from collections.abc import Callable

from cfglint_rules.vocabulary.survey import KeyOccurrence, get_checked_keys, get_context, get_target_release
from cfglint_train.documents.document import Route
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cfglint_schemas.fact import KeyFact
    from cfglint_schemas.status import Context
    from cfglint_schemas.vocabulary import Vocabulary

IsSure = Callable[[str, str, bool], bool]
"" """Decision on whether a correction is certain.

The arguments are the name, its correction, and whether the two are similar enough.
"""

# Thresholds of difflib's ratio: minimum for a typo in a name, minimum lead over the second-best name, and minimum for a
# typo in a single word. Words of up to `_MAX_SHORT_LENGTH` letters count as short.
_MIN_NAME_SIMILARITY: Final = 0.85
_MIN_LEAD: Final = 0.04
_MIN_WORD_SIMILARITY: Final = 0.75
_MAX_SHORT_LENGTH: Final = 4


class Proposal(Frozen):
    """A setting that an unknown key may stand for."""

    route: Route
    is_sure: bool
    """True for a clear typo, or for another framework's name for the same setting."""
    has_same_words: bool = True
    """True if the name has the same words, apart from typos. A name with a different word is a different setting, so no
    fix writes it.
    """


def list_proposals(occurrence: KeyOccurrence) -> list[Proposal]:
    """Return the settings that an unknown key may stand for, the most likely first."""
    config, keys = occurrence.config, get_checked_keys(occurrence.config)
    if keys is None:
        return []
    vocabulary, release, key_context = (
        keys.get_vocabulary(config),
        get_target_release(config).release,
        get_context(config),
    )
    word = keys.words.same.get(_format_route(occurrence.route))
    if word is not None:
        route: Route = tuple(word.split("."))
        fact = vocabulary.find_fact(route, release, key_context)
        if fact is not None and fact.resolve_status().kind == "present" and not fact.is_deprecated:
            return [Proposal(route, True)]
    if find_advice(occurrence) is not None:
        return []
    return find_proposals(vocabulary, occurrence.route, release, key_context, keys.is_confident)


def find_proposals(
    vocabulary: Vocabulary, route: Route, release: str, key_context: Context, is_sure: IsSure
) -> list[Proposal]:
    """Return the settings of a vocabulary that an unknown name may stand for, the most likely first."""
    from cfglint_schemas.matches import find_closest

    name = str(route[-1])
    matches = [
        match
        for match in find_closest(vocabulary, route, release, key_context)
        if match.reason != "similar"
        or has_same_words(_strip_group(name), _strip_group(str(match.route[-1]))) is not False
    ]
    matches = [match for match in matches if _is_writable(vocabulary.find_fact(match.route, release, key_context))]
    if not matches:
        return []
    similarities = [_compute_similarity(name, str(match.route[-1])) for match in matches]
    is_similar = similarities[0] >= _MIN_NAME_SIMILARITY and all(
        similarities[0] - other >= _MIN_LEAD for other in similarities[1:]
    )
    is_certain = matches[0].reason in ("spelling", "dotted", "words") or (matches[0].reason == "similar" and is_similar)
    is_certain = is_sure(name, str(matches[0].route[-1]), is_certain)
    have_same_words = [
        match.reason != "similar" or _is_same_setting(is_sure, name, str(match.route[-1])) for match in matches
    ]
    return [
        Proposal(match.route, is_certain and has_words and match is matches[0], has_words)
        for match, has_words in zip(matches, have_same_words)
    ]


def _is_writable(fact: KeyFact | None) -> bool:
    """Return whether a name may be proposed: the key is not deprecated, and no sign is needed to add it."""
    return fact is None or not (fact.is_deprecated or fact.get_schema().get("x-absent"))


def _is_same_setting(is_sure: IsSure, name: str, other: str) -> bool:
    """Return whether two names have the same words, and a typo is considered certain for this pair."""
    return has_same_words(_strip_group(name), _strip_group(other)) is True and is_sure(name, other, True)


def _strip_group(name: str) -> str:
    """Return a flag without its group prefix (up to the last dot)."""
    return name.rpartition(".")[2]


def has_same_words(name: str, other: str) -> bool | None:
    """Return whether two names have the same words in order, apart from typos; None if one merely has more words.

    >>> has_same_words("lr_warmup_steps", "lr_warmup_ratio"), has_same_words("batch_size", "eval_batch_size")
    (False, None)
    """
    words, others = _split_words(name), _split_words(other)
    if len(words) == len(others):
        return all(map(_is_typo, words, others))
    longer, shorter = sorted((words, others), key=len, reverse=True)
    if _is_letter_apart("".join(longer), "".join(shorter)):
        return True  # one word written as two words
    remaining = iter(longer)
    return None if all(any(_is_typo(word, other) for other in remaining) for word in shorter) else False


def _split_words(name: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]


def _is_typo(word: str, other: str) -> bool:
    """Return whether a word is a typo of another: similar, truncated or with a doubled letter, and with equal digits.

    Short words and words with digits must begin with the same letter (`bf16` is not `fp16`). A word with an additional
    prefix is a different word (`undesirable`).
    """
    short, long = sorted((word, other), key=len)
    digits, others = (re.sub(r"\D", "", text) for text in (word, other))
    if digits != others or ((len(short) <= _MAX_SHORT_LENGTH or digits) and word[0] != other[0]):
        return False
    if len(long) - len(short) > 1 and long.endswith(short):
        return False
    is_cut = len(short) > 2 and long.startswith(short)
    is_letter_doubled = any(
        long[index] == long[index - 1] and long[:index] + long[index + 1 :] == short for index in range(1, len(long))
    )
    return is_cut or is_letter_doubled or _compute_similarity(word, other) >= _MIN_WORD_SIMILARITY


def _is_letter_apart(long: str, short: str) -> bool:
    """Return whether removing one letter makes the longer text equal to the shorter one."""
    return any(long[:index] + long[index + 1 :] == short for index in range(len(long)))


def correct_word(word: str, words: list[str]) -> str | None:
    """Return the word that `word` is most likely a typo of, or None if no word is similar or two are about equal."""
    ranked = sorted(((_compute_similarity(word, other), other) for other in words), reverse=True)[:2]
    if (
        not ranked
        or ranked[0][0] < _MIN_NAME_SIMILARITY
        or (len(ranked) > 1 and ranked[0][0] - ranked[1][0] < _MIN_LEAD)
    ):
        return None
    return ranked[0][1]


def find_advice(occurrence: KeyOccurrence) -> str | None:
    """Return the advice for an unknown key that has no replacement, or None."""
    keys = get_checked_keys(occurrence.config)
    return None if keys is None else keys.words.advice.get(_format_route(occurrence.route))


def _format_route(route: Route) -> str:
    return ".".join("*" if isinstance(part, int) else part for part in route)


def _compute_similarity(name: str, other: str) -> float:
    from difflib import SequenceMatcher

    return SequenceMatcher(None, name.lstrip("-"), other.lstrip("-")).ratio()
