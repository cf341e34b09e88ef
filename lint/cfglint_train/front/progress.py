"""Progress display on a terminal; shows nothing elsewhere or for short work."""

from __future__ import annotations

import time

from cfglint_train.foundation.typed import Any, Final, TextIO

PATIENCE: Final = 1.0
"""Seconds before anything is shown."""
_EVERY: Final = 0.2
_WHEEL: Final = "|/-\\"


class show_progress:  # noqa: N801 (used like a function; `contextlib` would cost 2 % of a one-file lint)
    """Context manager that shows the current work and the elapsed time on the last line of a terminal."""

    def __init__(self, stream: TextIO, work: str) -> None:
        """Store the stream and the description of the work."""
        self.stream = stream
        self.work = work
        self.start: float | None = None
        self.previous_handler: Any = None

    def __enter__(self) -> None:
        """Start a timer if the stream is a terminal and this is the main thread."""
        if not self.stream.isatty():
            return
        import signal
        from threading import current_thread, main_thread

        if hasattr(signal, "setitimer") and current_thread() is main_thread():
            self.start = time.monotonic()
            self.previous_handler = signal.signal(signal.SIGALRM, self._draw)
            signal.setitimer(signal.ITIMER_REAL, PATIENCE, _EVERY)

    def _draw(self, _: int, __: object) -> None:
        seconds = time.monotonic() - (self.start or 0.0)
        self.stream.write(f"\r{_WHEEL[int(seconds / _EVERY) % len(_WHEEL)]} {self.work}, {seconds:.0f} s\x1b[K")
        self.stream.flush()

    def __exit__(self, *_: object) -> None:
        """Stop the timer and clear the line."""
        if self.start is None:
            return
        import signal

        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self.previous_handler)
        if time.monotonic() - self.start >= PATIENCE:
            self.stream.write("\r\x1b[K")
            self.stream.flush()
