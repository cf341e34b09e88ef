"""Entry point of the console scripts, which runs the command line in a process that ends afterwards.

A lint takes a fraction of a second, so the garbage collector is practically off (scanning all imported objects takes 3
% of the time), and the process ends without interpreter shutdown (another 13 %; mypy does the same). `cli.main` called
from Python does neither.
"""

from __future__ import annotations

import gc
import os
import sys

# Collect after this many new containers; without a limit, a very large repository could exhaust the memory.
_COLLECT_AFTER = 2_000_000

_INTERRUPTED = 130


def _open_streams() -> None:
    """Open standard streams that are closed, so that no other file gets their descriptors."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False))  # noqa: SIM115


def _exit_on_interrupt(unraisable: sys.UnraisableHookArgs) -> None:
    """End the process on a KeyboardInterrupt inside a callback, such as a finalizer, because Python would drop it.

    Files are replaced atomically, so nothing is left half-written.
    """
    if unraisable.exc_type is KeyboardInterrupt:
        os._exit(_INTERRUPTED)
    sys.__unraisablehook__(unraisable)


def run(arguments: list[str]) -> int:
    """Print the report of an earlier run that still holds, or run the command line; return the exit code."""
    from cfglint_train.front import replay

    code = replay.replay(arguments)
    if code is None:
        from cfglint_train.front.cli import main as command

        code = command(arguments)
    return code


def main() -> None:
    """Run the command line and end the process with its exit code."""
    try:
        sys.unraisablehook = _exit_on_interrupt
        gc.set_threshold(_COLLECT_AFTER)
        _open_streams()
        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # before the command line could handle it, or while it did
        code = _INTERRUPTED
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:  # the reader has exited; only the exit code remains
        pass
    os._exit(code)
