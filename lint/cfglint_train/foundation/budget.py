"""Budget of CPU time that all processes of a run share."""

from __future__ import annotations

import os
from collections.abc import Callable
from math import inf
from time import process_time

from cfglint_train.foundation import filesystem
from cfglint_train.foundation.typed import Final

_TOKENS: Final = 1000
"""Number of shares into which the remaining time is divided; small enough for a pipe on every system."""
_MIN_SECONDS: Final = 1e-6
"""Limit in seconds once the budget is used up: too short to read anything."""


def read_processor_time() -> float:
    """Return the CPU seconds of this process and its finished children (on Windows, of this process only)."""
    return sum(os.times()[:4])


class Budget:
    """A budget of CPU seconds; forked processes draw shares of it from a pipe."""

    __slots__ = ("_clock", "_end", "_token_seconds", "_tokens", "seconds")

    def __init__(self, seconds: float = inf, clock: Callable[[], float] = process_time) -> None:
        """Start a budget of `seconds`, measured by `clock`."""
        self.seconds = seconds
        """Size of the budget at its start, in seconds; infinity means no limit."""
        self._clock = clock
        self._end = clock() + seconds
        self._token_seconds = 0.0
        self._tokens: int | None = None

    def compute_seconds_left(self) -> float:
        """Return the seconds that this process may use until the next call; 0 or less if the budget is used up."""
        seconds = self._end - self._clock()
        while seconds <= 0 and self._tokens is not None and os.read(self._tokens, 1):
            self._end += self._token_seconds
            seconds += self._token_seconds
        if seconds <= 0:
            filesystem.discard_record()
        return seconds

    def compute_limit(self) -> float | None:
        """Return the remaining seconds, or None without a limit; never 0, because callees read 0 as no limit."""
        return None if self.seconds == inf else max(self.compute_seconds_left(), _MIN_SECONDS)

    def divide(self) -> None:
        """Divide the budget into shares that processes forked from now on draw as needed."""
        if self.seconds == inf:
            return
        self._token_seconds = max(self.compute_seconds_left(), 0) / _TOKENS
        self._tokens, writing = os.pipe()
        os.write(writing, bytes(_TOKENS))
        os.close(writing)

    def take_part(self) -> None:
        """Give a forked process no time of its own: its CPU clock begins at 0, so it draws shares instead."""
        if self._tokens is not None:
            self._end = self._clock()

    def unite(self) -> None:
        """Take back the shares that no forked process has drawn, and end the division."""
        if self._tokens is not None:
            while tokens := os.read(self._tokens, _TOKENS):
                self._end += len(tokens) * self._token_seconds
            os.close(self._tokens)
            self._tokens = None
