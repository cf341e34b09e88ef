"""A limit on the processor time that some work may take.

It needs a timer of the system and its signals, which Python hands to the main thread: elsewhere (Windows, a thread of
another program, a program that uses the timer itself) the work takes as long as it takes.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # without the enumerations, which take a millisecond
from _contextvars import ContextVar
from collections.abc import Callable
from time import process_time

from cfglint_train.foundation.typed import Any, Final, TypeVar

Part = TypeVar("Part")
Made = TypeVar("Made")

_KIND: Final = getattr(signal, "SIGVTALRM", None)
_REPEAT_SECONDS: Final = 0.1
"""Seconds until the next signal: an exception is lost where nothing can be raised (a destructor, a callback of C)."""

_MAX_SECONDS: Final = 86_400.0
"""Seconds that a timer runs at most."""

_left: Callable[[], float] = float
"""Gives the work that is timed the seconds that are left."""
_untimed_seconds: Final[ContextVar[float]] = ContextVar("aside", default=0.0)
"""Seconds of all work that was done beside, in this thread."""
_untimed_since: Final[ContextVar[float | None]] = ContextVar("since", default=None)
"""When the work that is done beside began, in this thread."""


class OutOfTime(BaseException):
    """The time is up. Not an Exception: what catches the errors of one rule must not catch the end of all."""


def read_clock() -> float:
    """Return the processor time of this process without that of the work `beside`."""
    since = _untimed_since.get()
    return (process_time() if since is None else since) - _untimed_seconds.get()


def run_within(seconds_left: Callable[[], float], work: Callable[[Part], Made], part: Part) -> Made:
    """Return what some work makes. Raises OutOfTime once `left` says that no seconds are left."""
    global _left  # noqa: PLW0603
    if seconds_left() <= 0:
        raise OutOfTime
    if _KIND is None or signal.getsignal(_KIND) != signal.SIG_DFL:
        return work(part)
    try:
        signal.signal(_KIND, _handle_signal)
    except ValueError:  # not the main thread
        return work(part)
    _left = seconds_left
    try:
        _start_timer(seconds_left())
        return work(part)
    finally:
        _stop_timer()


def run_untimed(work: Callable[[], Made]) -> Made:
    """Return what some work makes that is bounded by itself and done once for many: `clock` stands still meanwhile."""
    if _untimed_since.get() is not None:
        return work()
    since = process_time()
    token = _untimed_since.set(since)
    try:
        return work()
    finally:
        _untimed_seconds.set(_untimed_seconds.get() + process_time() - since)
        _untimed_since.reset(token)


def _start_timer(seconds: float) -> None:
    """Ask again after so many seconds, which must be finite for a timer."""
    signal.setitimer(signal.ITIMER_VIRTUAL, min(max(seconds, 0.001), _MAX_SECONDS), _REPEAT_SECONDS)


def _stop_timer() -> None:
    while True:
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(_KIND, signal.SIG_DFL)
            return
        except OutOfTime:  # it came in between
            continue


def _handle_signal(number: int, frame: Any) -> None:
    seconds = _left()
    if seconds <= 0 and not _is_importing(frame):
        raise OutOfTime
    _start_timer(seconds)


def _is_importing(frame: Any) -> bool:
    """Return whether a module is being imported: half of it would stay for the rest of the process."""
    while frame is not None and frame.f_code is not run_within.__code__:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
