"""Pattern matching in linear time, even for hostile patterns: an automaton instead of backtracking.

A pattern is a tree of the parts below. It is compiled to a program for a machine that follows all alternatives at once
(Thompson 1968). Transitions are cached, so similar texts cost one look-up per character.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from cfglint_train.foundation.typed import Final

MAX_SIZE: Final = 2_000
"""Maximum number of instructions of a pattern; repetitions are unrolled."""
_MAX_CACHED: Final = 10_000
"""Maximum number of transitions that a pattern caches."""

Program = list[tuple[str, "int | Callable[[str], bool]", int]]
PatternPart = Callable[[Program], object]
"""Function that appends a part's instructions to a program."""

States = frozenset[int]


class TooLarge(ValueError):
    """Error for a pattern that needs more than `MAX_SIZE` instructions."""


def build_char(matcher: Callable[[str], bool]) -> PatternPart:
    """Build a part that matches one character accepted by `matcher`."""
    return lambda program: _emit(program, "one", matcher)


def build_start() -> PatternPart:
    """Build a part that matches at the start of the text."""
    return lambda program: _emit(program, "start")


def build_end() -> PatternPart:
    """Build a part that matches at the end of the text, and in `match` also before a final line break."""
    return lambda program: _emit(program, "end")


def build_sequence(parts: Iterable[PatternPart]) -> PatternPart:
    """Build a part that matches all parts one after the other."""
    listed = list(parts)

    def write(program: Program) -> None:
        for part in listed:
            part(program)

    return write


def build_alternatives(parts: Iterable[PatternPart]) -> PatternPart:
    """Build a part that matches any of the parts. `parts` must not be empty."""
    listed = list(parts)

    def write(program: Program) -> None:
        jumps = []
        for part in listed[:-1]:
            fork = _emit(program, "fork")
            part(program)
            jumps.append(_emit(program, "go"))
            program[fork] = ("fork", fork + 1, len(program))
        listed[-1](program)
        for at in jumps:
            program[at] = ("go", len(program), 0)

    return write


def build_repetition(part: PatternPart, minimum: int, maximum: int | None) -> PatternPart:
    """Build a part that repeats `part` from `minimum` to `maximum` times; None means without limit."""

    def write(program: Program) -> None:
        for _ in range(minimum):
            part(program)
        if maximum is None:
            fork = _emit(program, "fork")
            part(program)
            _emit(program, "go", fork)
            program[fork] = ("fork", fork + 1, len(program))
            return
        forks = []
        for _ in range(maximum - minimum):
            forks.append(_emit(program, "fork"))
            part(program)
        for fork in forks:
            program[fork] = ("fork", fork + 1, len(program))

    return write


def _emit(program: Program, kind: str, operand: int | Callable[[str], bool] = 0) -> int:
    if len(program) >= MAX_SIZE:
        raise TooLarge(f"a pattern with more than {MAX_SIZE:,} parts")
    program.append((kind, operand, 0))
    return len(program) - 1


class Automaton:
    """A compiled pattern."""

    __slots__ = ("_next", "_program", "_start")

    def __init__(self, part: PatternPart) -> None:
        """Compile a pattern. Raise `TooLarge` if it needs too many instructions."""
        self._program: Program = []
        part(self._program)
        self._start = self._close((0,), first=True)
        self._next: dict[tuple[States, str], States] = {}

    def fullmatch(self, text: str) -> bool:
        """Return whether the whole text matches."""
        states = self._start
        for char in text:
            if not states:
                return False
            states = self._move(states, char)
        return self._can_end(states)

    def match(self, text: str) -> bool:
        """Return whether a prefix of the text matches."""
        states = self._start
        for place, char in enumerate(text):
            if len(self._program) in states or (char == "\n" and place + 1 == len(text) and self._can_end(states)):
                return True
            if not states:
                return False
            states = self._move(states, char)
        return self._can_end(states)

    def _move(self, states: States, char: str) -> States:
        next_states = self._next.get((states, char))
        if next_states is None:
            if len(self._next) >= _MAX_CACHED:
                self._next.clear()
            reached = []
            for at in states:
                if at < len(self._program):
                    kind, fits, _ = self._program[at]
                    if kind == "one" and not isinstance(fits, int) and fits(char):
                        reached.append(at + 1)
            next_states = self._next[states, char] = self._close(reached)
        return next_states

    def _can_end(self, states: States) -> bool:
        """Return whether the pattern can end in these states at the end of the text."""
        return len(self._program) in self._close(states, last=True)

    def _close(self, states: Iterable[int], first: bool = False, last: bool = False) -> States:
        """Return `states` and the states that they reach without reading another character."""
        reached: set[int] = set()
        pending = list(states)
        while pending:
            at = pending.pop()
            if at in reached:
                continue
            reached.add(at)
            if at == len(self._program):
                continue
            kind, target, alternative = self._program[at]
            if kind == "go":
                pending.append(target)  # type: ignore[arg-type]
            elif kind == "fork":
                pending += (target, alternative)  # type: ignore[arg-type]
            elif (kind == "start" and first) or (kind == "end" and last):
                pending.append(at + 1)
        return frozenset(reached)


def build_literal(text: str) -> PatternPart:
    """Build a part that matches a text literally."""
    return build_sequence(build_char(partial(str.__eq__, char)) for char in text)


def accept_any(_: str) -> bool:
    """Return True for every character."""
    return True
