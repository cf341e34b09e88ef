"""A limit on the processor time that some work may take.

It needs a timer of the system and its signals, which Python hands to the main thread: elsewhere (Windows, a thread of
another program, a program that uses the timer itself) the work takes as long as it takes.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # without the enumerations, which take a millisecond
from collections.abc import Callable

from cfglint_train.foundation.typed import Any, Final, TypeVar

Part = TypeVar("Part")
Made = TypeVar("Made")

_KIND: Final = getattr(signal, "SIGVTALRM", None)
_AGAIN: Final = 0.1
"""Seconds until the next signal: an exception is lost where nothing can be raised (a destructor, a callback of C)."""


class OutOfTime(BaseException):
    """The time is up. Not an Exception: what catches the errors of one rule must not catch the end of all."""


def within(seconds: float, work: Callable[[Part], Made], part: Part) -> Made:
    """What some work makes. Raises OutOfTime once it has taken so many seconds of this process's own time."""
    if _KIND is None or signal.getsignal(_KIND) != signal.SIG_DFL:
        return work(part)
    try:
        signal.signal(_KIND, _stop)
    except ValueError:  # not the main thread
        return work(part)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, max(seconds, 0.001), _AGAIN)
        return work(part)
    finally:
        _disarm()


def beside(work: Callable[[], Made]) -> Made:
    """What some work makes that is bounded by itself and done once for many: its time does not count."""
    if _KIND is None or signal.getsignal(_KIND) is not _stop:
        return work()
    left, again = signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    try:
        return work()
    finally:
        if left:
            signal.setitimer(signal.ITIMER_VIRTUAL, left, again)


def _disarm() -> None:
    while True:
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(_KIND, signal.SIG_DFL)
            return
        except OutOfTime:  # it came in between
            continue


def _stop(number: int, frame: Any) -> None:
    raise OutOfTime
