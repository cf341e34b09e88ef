"""What the console scripts start: the command line in a process that is about to end.

A lint lives for a fraction of a second, so the garbage collector is switched off (its passes over everything that was
imported are 3 % of the time), and the process ends without taking the interpreter apart (another 13 %; mypy ends the
same way). `cli.main` called from Python does neither.
"""

from __future__ import annotations

import gc
import os
import sys

# So many new containers are worth a look after all: without a bound, a very large repository could fill the memory.
_COLLECT_AFTER = 2_000_000

_INTERRUPTED = 130


def _open_streams() -> None:
    """Replace streams that the caller of the process has closed, so that no file gets their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False))  # noqa: SIM115


def _exit_on_interrupt(unraisable: sys.UnraisableHookArgs) -> None:
    """An interruption that comes while Python itself calls something back, where it would be dropped, ends the process.

    Files are replaced as wholes, so nothing is half-written.
    """
    if unraisable.exc_type is KeyboardInterrupt:
        os._exit(_INTERRUPTED)
    sys.__unraisablehook__(unraisable)


def main() -> None:
    """Run the command line and end the process with its exit code."""
    try:
        sys.unraisablehook = _exit_on_interrupt
        gc.set_threshold(_COLLECT_AFTER)
        _open_streams()
        from cfglint_train.front.cli import main as command

        code = command()
    except KeyboardInterrupt:  # before the command line could answer it, or while it did
        code = _INTERRUPTED
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:  # the reader left; the exit code is all that is left to report
        pass
    os._exit(code)
