"""Options of Hydra's own parser, as argparse reads them among the overrides.

Source: hydra-core 1.3.2 `_internal/utils.py` (get_args_parser); CPython `argparse.py` (_parse_optional,
_get_option_tuples, _parse_known_args).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from cfglint_schemas.matches import find_similar
from cfglint_train.documents.shell.composed import END, OPTIONS, SWITCHES, resolve_option
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.documents.shell.words import Word
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final

_LONG: Final = tuple(option for option in OPTIONS if option.startswith("--"))
_NUMBER: Final = r"-\d+|-\d*\.\d+"
"""Words with a dash that argparse does not take for options."""


class UnknownOption(Frozen):
    """A word that Hydra's parser takes for an option, but does not have, or that abbreviates several."""

    word: Word
    name: str
    suggestion: str
    """The most similar option, or an empty string if none is similar."""


def skip_options(words: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the words that are neither options of Hydra nor their values, each with its index."""
    is_value = is_over = False
    for index, word in enumerate(words):
        if is_value and not word.startswith("-"):
            is_value = False
        elif is_over or not word.startswith("-"):
            yield index, word
        elif word == END:
            is_over = True
        else:
            is_value = _needs_value(word)


def find_unknown_options(invocation: Invocation) -> Iterator[UnknownOption]:
    """Yield the words of a command that argparse refuses because they name no option, or more than one."""
    at_overrides = {index for index, _ in skip_options(word.text for word in invocation.words)}
    is_value = False
    for index, word in enumerate(invocation.words):
        if index in at_overrides or (is_value and not word.text.startswith("-")):
            is_value = False
            continue
        name = word.text.partition("=")[0]
        options = resolve_option(word.text)
        is_value = _needs_value(word.text)
        is_option = name != END and word.is_known and " " not in word.text and not re.fullmatch(_NUMBER, word.text)
        if is_option and len(options) != 1:
            similar = find_similar(name, _LONG)
            yield UnknownOption(word, name, similar[0][0] if similar else "")


def find_late_override(invocation: Invocation) -> tuple[Word, Word] | None:
    """Return the first override that argparse refuses, and the option before it, or None.

    The overrides are one positional argument (`nargs="*"`), which takes only the first words that follow each other.
    """
    words, last = invocation.words, -1
    for index, _ in skip_options(word.text for word in words):
        between = words[last + 1 : index]
        if last >= 0 and between and between[0].text != END:
            is_certain = words[last].is_known and words[index].is_known and len(resolve_option(between[0].text)) == 1
            is_certain = is_certain and not any(word.loose or word.spreads or word.is_optional for word in between)
            return (words[index], between[0]) if is_certain else None
        last = index
    return None


def _needs_value(text: str) -> bool:
    """Return whether the next word is the value of an option: `-cjob` has its value, and `-` is no option."""
    options = resolve_option(text)
    is_switch = len(options) == 1 and options[0] in SWITCHES
    return "=" not in text and not is_switch and (text in OPTIONS or text.startswith("--"))
