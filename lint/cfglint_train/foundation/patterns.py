r"""Regular expressions from a repository, matched in linear time.

The supported subset: literals, `.`, classes with ranges and `\d \w \s`, groups, `|`, `* + ? {m,n}` (greedy or lazy),
and `^ $ \A`. Constructs that need backtracking (back-references, look-around), flags, `\b` and `\Z` are not supported.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from cfglint_train.foundation import automaton
from cfglint_train.foundation.automaton import Automaton, PatternPart
from cfglint_train.foundation.typed import Final

_MAX_LENGTH: Final = 1_000
_MAX_DEPTH: Final = 30

CharMatcher = Callable[[str], bool]

_DIGIT: Final = str.isdecimal
_CLASSES: Final[dict[str, CharMatcher]] = {
    "d": _DIGIT,
    "D": lambda char: not char.isdecimal(),
    "w": lambda char: char.isalnum() or char == "_",
    "W": lambda char: not (char.isalnum() or char == "_"),
    "s": str.isspace,
    "S": lambda char: not char.isspace(),
}
_CONTROLS: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}


class UnsupportedPattern(ValueError):
    """Error for a regular expression that is invalid or outside the supported subset."""


def compile_pattern(text: str) -> Automaton:
    """Compile a regular expression. Raise `UnsupportedPattern` if it is invalid or not supported."""
    if len(text) > _MAX_LENGTH:
        raise UnsupportedPattern("too long")
    reader = _Reader(text)
    part = reader.parse_alternatives(0)
    if reader.at < len(text):
        raise UnsupportedPattern("unbalanced parenthesis")
    try:
        return Automaton(part)
    except automaton.TooLarge as error:
        raise UnsupportedPattern(str(error)) from None


class _Reader:
    def __init__(self, text: str) -> None:
        """Prepare to read `text` from its start."""
        self.text = text
        self.at = 0

    def is_next(self, mark: str) -> bool:
        return self.text.startswith(mark, self.at)

    def take(self) -> str:
        if self.at >= len(self.text):
            raise UnsupportedPattern("ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def parse_alternatives(self, depth: int) -> PatternPart:
        if depth > _MAX_DEPTH:
            raise UnsupportedPattern("nested too deeply")
        parts = [self.parse_concatenation(depth)]
        while self.is_next("|"):
            self.at += 1
            parts.append(self.parse_concatenation(depth))
        return automaton.build_alternatives(parts)

    def parse_concatenation(self, depth: int) -> PatternPart:
        parts = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            parts.append(self.parse_quantified(depth))
        return automaton.build_sequence(parts)

    def parse_quantified(self, depth: int) -> PatternPart:
        assertion = self.text[self.at] in "^$" or self.text[self.at : self.at + 2] in ("\\A", "\\Z")
        part = self.parse_atom(depth)
        bounds = self.parse_bounds()
        if bounds is None:
            return part
        if assertion or self.parse_bounds() is not None:
            raise UnsupportedPattern("nothing to repeat")
        return automaton.build_repetition(part, *bounds)

    def parse_bounds(self) -> tuple[int, int | None] | None:
        """Parse the quantifier at the current position, and return its bounds or None.

        A lazy quantifier counts as greedy, because that does not change whether there is a match.
        """
        mark = self.text[self.at : self.at + 1]
        bounds: tuple[int, int | None]
        if mark and mark in "*+?":
            bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}[mark]
            self.at += 1
        else:
            match = re.compile(r"\{([0-9]{0,4})(?:(,)([0-9]{0,4}))?\}").match(self.text, self.at)
            if match is None or match[0] in ("{}", "{,}"):
                if mark == "{" and re.compile(r"\{[0-9]*,?[0-9]*\}").match(self.text, self.at):
                    raise UnsupportedPattern("an invalid number of repetitions")
                return None
            minimum = int(match[1] or 0)
            maximum = minimum if match[2] is None else int(match[3]) if match[3] else None
            if maximum is not None and maximum < minimum:
                raise UnsupportedPattern("an invalid number of repetitions")
            bounds = minimum, maximum
            self.at = match.end()
        if self.is_next("?"):
            self.at += 1
        elif self.is_next("+"):
            raise UnsupportedPattern("a possessive quantifier")
        return bounds

    def parse_atom(self, depth: int) -> PatternPart:
        mark = self.take()
        if mark == "(":
            return self.parse_group(depth)
        if mark == "[":
            return automaton.build_char(self.parse_class())
        if mark == ".":
            return automaton.build_char(lambda char: char != "\n")
        if mark == "^":
            return automaton.build_start()
        if mark == "$":
            return automaton.build_end()
        if mark in "*+?":
            raise UnsupportedPattern("nothing to repeat")
        if mark == "\\":
            return self.parse_escape()
        return automaton.build_literal(mark)

    def parse_group(self, depth: int) -> PatternPart:
        if self.is_next("?"):
            match = re.compile(r"\?(?::|P<[A-Za-z_][A-Za-z0-9_]*>)").match(self.text, self.at)
            if match is None:
                raise UnsupportedPattern("an unsupported kind of group")
            self.at = match.end()
        part = self.parse_alternatives(depth + 1)
        if self.take() != ")":
            raise UnsupportedPattern("unbalanced parenthesis")
        return part

    def parse_escape(self) -> PatternPart:
        mark = self.take()
        if mark == "A":
            return automaton.build_start()
        if mark in _CLASSES:
            return automaton.build_char(_CLASSES[mark])
        return automaton.build_literal(self.resolve_escape(mark))

    def resolve_escape(self, mark: str) -> str:
        """Return the character that an escape stands for. Raise `UnsupportedPattern` for other letters and digits."""
        if mark in _CONTROLS:
            return _CONTROLS[mark]
        if mark.isalnum():
            raise UnsupportedPattern(f"\\{mark}")
        return mark

    def parse_class(self) -> CharMatcher:
        negated = self.is_next("^")
        self.at += negated
        matchers: list[CharMatcher] = []
        first = True
        while first or not self.is_next("]"):
            first = False
            low = self.parse_member()
            if isinstance(low, str) and self.is_next("-") and not self.is_next("-]"):
                self.at += 1
                high = self.parse_member()
                if not isinstance(high, str) or high < low:
                    raise UnsupportedPattern("an invalid range")
                matchers.append(_build_range(low, high))
            else:
                matchers.append(_build_range(low, low) if isinstance(low, str) else low)
        self.at += 1
        return lambda char: any(matcher(char) for matcher in matchers) is not negated

    def parse_member(self) -> str | CharMatcher:
        mark = self.take()
        if mark != "\\":
            return mark
        mark = self.take()
        return _CLASSES[mark] if mark in _CLASSES else self.resolve_escape(mark)


def _build_range(low: str, high: str) -> CharMatcher:
    return lambda char: low <= char <= high
