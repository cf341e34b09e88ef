"""Processor time in seconds of one reference machine, so that a limit means the same on a busy or slow one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

REFERENCE = 0.048
"""Processor seconds of `_peer` on an idle core of the machine that the limits were set on (Python 3.11)."""


def _time_reference_loop() -> float:
    """The processor time of a fixed piece of Python: strings, a dictionary, small integers."""
    start = time.process_time()
    counts: dict[str, int] = {}
    for number in range(200_000):
        word = str(number % 997)
        counts[word] = counts.get(word, 0) + len(word)
    return time.process_time() - start


def measure_slowness() -> float:
    """How many times slower than the reference this machine is at the moment; at least 1."""
    return max(1.0, _time_reference_loop() / REFERENCE)


class Stopwatch:
    """What a block of code took; `seconds` is set when it ends."""

    seconds = 0.0


@contextmanager
def measure_block() -> Iterator[Stopwatch]:
    """Measure a block in reference seconds. The machine's pace is the slower one of before and after it."""
    watch, before = Stopwatch(), measure_slowness()
    start = time.process_time()
    try:
        yield watch
    finally:
        spent = time.process_time() - start
        watch.seconds = spent / max(before, measure_slowness())
