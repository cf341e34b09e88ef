"""Processor time in seconds of a reference machine, so that limits mean the same on a busy or slow machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

REFERENCE = 0.048
"""Processor seconds of `_time_reference_loop` on an idle core of the machine that set the limits (Python 3.11)."""


def _time_reference_loop() -> float:
    """Return the processor time of a fixed piece of Python: strings, a dictionary, small integers."""
    start = time.process_time()
    counts: dict[str, int] = {}
    for number in range(200_000):
        word = str(number % 997)
        counts[word] = counts.get(word, 0) + len(word)
    return time.process_time() - start


def measure_slowness() -> float:
    """Return the factor by which this machine is slower than the reference at the moment; at least 1."""
    return max(1.0, _time_reference_loop() / REFERENCE)


class Stopwatch:
    """Processor time of a block of code; `seconds` is set when the block ends."""

    seconds = 0.0


@contextmanager
def measure_block() -> Iterator[Stopwatch]:
    """Measure a block in reference seconds, at the slower of the paces before and after it."""
    watch, before = Stopwatch(), measure_slowness()
    start = time.process_time()
    try:
        yield watch
    finally:
        spent = time.process_time() - start
        watch.seconds = spent / max(before, measure_slowness())
