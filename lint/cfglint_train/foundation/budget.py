"""Budget of processor time that all processes of a run share."""

from __future__ import annotations

import os
from collections.abc import Callable
from math import inf
from time import process_time

from cfglint_train.foundation.typed import Final

_TOKENS: Final = 1000
"""Number of parts of the remaining time that processes draw; a pipe holds as many on every system."""
_MIN_SECONDS: Final = 1e-6
"""Seconds that are too short to read anything."""


def read_processor_time() -> float:
    """Return the processor seconds of this process and its finished child processes (on Windows, of itself only)."""
    return sum(os.times()[:4])


class Budget:
    """Seconds of processor time that may still be used."""

    __slots__ = ("_clock", "_end", "_token_seconds", "_tokens", "seconds")

    def __init__(self, seconds: float = inf, clock: Callable[[], float] = process_time) -> None:
        """Start a budget of `seconds`, measured by `clock`."""
        self.seconds = seconds
        """Seconds at the start."""
        self._clock = clock
        self._end = clock() + seconds
        self._token_seconds = 0.0
        self._tokens: int | None = None

    def compute_seconds_left(self) -> float:
        """Return the seconds that this process may use before it asks again; 0 or less if none are left."""
        seconds = self._end - self._clock()
        while seconds <= 0 and self._tokens is not None and os.read(self._tokens, 1):
            self._end += self._token_seconds
            seconds += self._token_seconds
        return seconds

    def compute_limit(self) -> float | None:
        """Return the limit for the remaining work, never 0 because that means none; None without a limit."""
        return None if self.seconds == inf else max(self.compute_seconds_left(), _MIN_SECONDS)

    def divide(self) -> None:
        """Divide the budget, so that copies of this process that start now draw from it as needed."""
        if self.seconds == inf:
            return
        self._token_seconds = max(self.compute_seconds_left(), 0) / _TOKENS
        self._tokens, writing = os.pipe()
        os.write(writing, bytes(_TOKENS))
        os.close(writing)

    def take_part(self) -> None:
        """Forget the time granted so far, because the processor time of a copy begins at 0."""
        if self._tokens is not None:
            self._end = self._clock()

    def unite(self) -> None:
        """Unite the budget again by taking back the time that no copy has used."""
        if self._tokens is not None:
            while tokens := os.read(self._tokens, _TOKENS):
                self._end += len(tokens) * self._token_seconds
            os.close(self._tokens)
            self._tokens = None
