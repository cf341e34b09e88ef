"""Syntax of path patterns: parse a pattern to an automaton. `globs.py` says what patterns mean."""

from __future__ import annotations

from collections.abc import Callable

from cfglint_train.foundation import automaton
from cfglint_train.foundation.automaton import Automaton, PatternPart
from cfglint_train.foundation.typed import Final

_MAX_BRACES: Final = 50


def check_size(pattern: str) -> None:
    """Raise `TooLarge` if a pattern is too long or has too many braces."""
    if len(pattern) > automaton.MAX_SIZE or pattern.count("{") > _MAX_BRACES:
        raise automaton.TooLarge(f"has more than {automaton.MAX_SIZE:,} characters or {_MAX_BRACES} braces")


def compile_glob(pattern: str) -> Automaton:
    """Compile a pattern. Raise `TooLarge` if it needs too many instructions."""
    return Automaton(_parse(pattern))


def _parse(pattern: str) -> PatternPart:
    """Parse a pattern. Brackets and braces that are not closed match themselves."""
    parts = []
    at = 0
    while at < len(pattern):
        mark = pattern[at]
        if mark == "*":
            end = at
            while pattern[end : end + 1] == "*":
                end += 1
            folders = end - at > 1 and pattern[end : end + 1] == "/" and (at == 0 or pattern[at - 1] == "/")
            anything = automaton.build_repetition(automaton.build_char(automaton.accept_any), 0, None)
            below = automaton.build_repetition(automaton.build_sequence((anything, automaton.build_literal("/"))), 0, 1)
            parts.append(below if folders else anything)
            at = end + folders
            continue
        if mark == "[" and (close := pattern.find("]", at + 2)) > 0:
            parts.append(automaton.build_char(_parse_class(pattern[at + 1 : close])))
            at = close
        elif mark == "{" and (close := _find_closing(pattern, at)) > 0:
            parts.append(
                automaton.build_alternatives(_parse(choice) for choice in _split_choices(pattern[at + 1 : close]))
            )
            at = close
        elif mark == "?":
            parts.append(automaton.build_char(automaton.accept_any))
        else:
            parts.append(automaton.build_literal(mark))
        at += 1
    return automaton.build_sequence(parts)


def _parse_class(inside: str) -> Callable[[str], bool]:
    """Return a predicate for the character class between brackets.

    A leading `!` negates the class. A reversed range is empty.
    """
    negated = inside.startswith("!") and len(inside) > 1
    ranges = []
    at = int(negated)
    while at < len(inside):
        if inside[at + 1 : at + 2] == "-" and at + 2 < len(inside):
            ranges.append((inside[at], inside[at + 2]))
            at += 3
        else:
            ranges.append((inside[at], inside[at]))
            at += 1
    return lambda char: any(low <= char <= high for low, high in ranges) is not negated


def _find_closing(pattern: str, opening: int) -> int:
    """Return the index of the brace that closes the brace at `opening`, or 0 if it is not closed."""
    depth = 0
    for at in range(opening, len(pattern)):
        depth += {"{": 1, "}": -1}.get(pattern[at], 0)
        if depth == 0:
            return at
    return 0


def _split_choices(inside: str) -> list[str]:
    """Split the text between braces at its top-level commas."""
    choices = [""]
    depth = 0
    for mark in inside:
        depth += {"{": 1, "}": -1}.get(mark, 0)
        if mark == "," and depth == 0:
            choices.append("")
        else:
            choices[-1] += mark
    return choices
