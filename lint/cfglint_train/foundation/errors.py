"""Errors of the caller, and how an error of cfglint itself is described."""

from __future__ import annotations


class UsageError(Exception):
    """An option, a setting or a stated fact cannot be used; nothing was read yet, nothing written."""


def describe_crash(error: Exception) -> str:
    """An error of cfglint itself on one line: what it is, and in which module and line it was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = ""
    if trace is not None:
        module = trace.tb_frame.f_globals.get("__name__", "?")
        where = f" (in {module}, line {trace.tb_lineno})"
    return f"{type(error).__name__}: {error}{where}"
