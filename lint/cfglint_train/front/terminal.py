"""Terminal capabilities: colors, links and width of a stream."""

from __future__ import annotations

import os
import sys

from cfglint_train.foundation.typed import TextIO
from cfglint_train.reports.style import Style


def detect_style(stream: TextIO, color: str = "auto") -> Style:
    """Return the style for a stream; `color` is the value of the flag: auto, always or never.

    Without the flag, NO_COLOR and FORCE_COLOR decide, or else whether the stream is a terminal. Links are only for
    terminals that support them, unless FORCE_HYPERLINK forces them. Lines are wrapped only on a terminal.
    """
    terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
    if color != "auto":
        colors = color == "always"
    elif os.environ.get("NO_COLOR"):
        colors = False
    else:
        colors = bool(os.environ.get("FORCE_COLOR")) or terminal
    forced = os.environ.get("FORCE_HYPERLINK")
    links = terminal and colors and os.environ.get("TERM") != "linux" if forced is None else forced not in ("", "0")
    return Style(
        colors,
        links,
        detect_columns() if terminal else None,
        blocks=colors and _can_encode_blocks(stream),
    )


def _can_encode_blocks(stream: TextIO) -> bool:
    """Return whether the encoding of the stream has block elements."""
    try:
        "\u2588\u2591".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def detect_columns() -> int:
    """Return the width of the terminal, like `shutil.get_terminal_size`, which takes longer to import."""
    columns_variable = os.environ.get("COLUMNS", "")
    if columns_variable.isdecimal() and 0 < int(columns_variable) < 1000:
        return int(columns_variable)
    for stream in (sys.__stdout__, sys.__stderr__):
        try:
            width = os.get_terminal_size(stream.fileno()).columns if stream is not None else 0
        except (ValueError, OSError):
            continue
        if width:
            return width
    return 80
