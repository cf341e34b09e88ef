"""Deadlines: limits on the CPU time of a piece of work.

The limit needs a system timer, whose signals Python delivers only to the main thread. On Windows, in another thread, or
in a program that handles the signal itself, the work is not limited.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # skips the enumerations of `signal`, which take 1 ms
from _contextvars import ContextVar
from collections.abc import Callable
from time import process_time

from cfglint_train.foundation import filesystem
from cfglint_train.foundation.typed import Any, Final, TypeVar

Part = TypeVar("Part")
Made = TypeVar("Made")

_KIND: Final = getattr(signal, "SIGVTALRM", None)
_REPEAT_SECONDS: Final = 0.1
"""Seconds between signals after the first.

The signal repeats, because an exception that is raised in a destructor or a C callback is lost.
"""

_MAX_SECONDS: Final = 86_400.0
"""Maximum duration of a timer in seconds."""

_left: Callable[[], float] = float
"""Function that returns the seconds left for the timed work."""
_untimed_seconds: Final[ContextVar[float]] = ContextVar("aside", default=0.0)
"""CPU seconds of all finished untimed work in this thread."""
_untimed_since: Final[ContextVar[float | None]] = ContextVar("since", default=None)
"""CPU time at the start of the current untimed work in this thread, or None."""


class OutOfTime(BaseException):
    """Signal that the time is up. A `BaseException`, so that handlers for the errors of a rule do not catch it."""


def read_clock() -> float:
    """Return the CPU seconds of this process, without the work in `run_untimed`."""
    since = _untimed_since.get()
    return (process_time() if since is None else since) - _untimed_seconds.get()


def run_within(seconds_left: Callable[[], float], work: Callable[[Part], Made], part: Part) -> Made:
    """Return `work(part)`, or raise `OutOfTime` once `seconds_left` returns 0 or less.

    An import that is in progress is finished first.
    """
    global _left  # noqa: PLW0603
    if seconds_left() <= 0:
        filesystem.discard_record()
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
    """Run work that many tasks share and that has its own limit; `read_clock` stops while it runs."""
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
    """Start the timer, for at least 1 ms and at most `_MAX_SECONDS`."""
    signal.setitimer(signal.ITIMER_VIRTUAL, min(max(seconds, 0.001), _MAX_SECONDS), _REPEAT_SECONDS)


def _stop_timer() -> None:
    while True:
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(_KIND, signal.SIG_DFL)
            return
        except OutOfTime:  # the signal arrived in between
            continue


def _handle_signal(number: int, frame: Any) -> None:
    seconds = _left()
    if seconds <= 0 and not _is_importing(frame):
        filesystem.discard_record()
        raise OutOfTime
    _start_timer(seconds)


def _is_importing(frame: Any) -> bool:
    """Return whether a module is being imported: an interrupted import would leave it half loaded for the process."""
    while frame is not None and frame.f_code is not run_within.__code__:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
