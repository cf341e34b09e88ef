"""Usage errors, and descriptions of internal errors."""

from __future__ import annotations


class UsageError(Exception):
    """An option, setting or stated fact that cannot be used; raised before anything is written."""


def describe_crash(error: Exception) -> str:
    """Describe an internal error: its type and message, and the module and line that raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = ""
    if trace is not None:
        module = trace.tb_frame.f_globals.get("__name__", "?")
        where = f" (in {module}, line {trace.tb_lineno})"
    return f"{type(error).__name__}: {error}{where}"
