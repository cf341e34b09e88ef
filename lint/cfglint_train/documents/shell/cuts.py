"""Commands that end before all of their options: the lines behind them are commands of their own to bash.

Bash manual, 3.1.2.1: a backslash continues a line only directly before the line's end; a comment ends with its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cfglint_train.documents.document import Span
from cfglint_train.documents.shell.script import Invocation, ShellScript
from cfglint_train.documents.shell.words import Word
from cfglint_train.foundation.typed import Final

_SPACE: Final = re.compile(rb"\\([ \t]+)\r?$")


def cut_off(script: ShellScript, invocation: Invocation) -> Iterator[Invocation]:
    """The commands that bash makes of the flags behind an invocation, in order.

    Commands of its own lines are skipped: `$(date +%F)` in a word of it, `| tee log` behind it.
    """
    end = _line_end(script, invocation)
    for one in script.invocations[invocation.number + 1 :]:
        if one.command == invocation.command:
            continue
        if one.program.startswith("--"):
            end = _line_end(script, one)
            yield one
        elif one.span.start >= end:
            return


def _line_end(script: ShellScript, invocation: Invocation) -> int:
    """Where the line of an invocation's last word ends."""
    words = (*invocation.head, *invocation.words)
    return script.line_end(max((word.span.start for word in words), default=invocation.span.start))


def is_escaped_space(script: ShellScript, word: Word) -> bool:
    """Whether a word is the white space behind a backslash that was meant to continue the line."""
    return word.text.isspace() and script.source[word.span.start : word.span.start + 1] == b"\\"


def line_above(script: ShellScript, start: int) -> Span:
    """The line above a place, without its end."""
    end = max(0, script.source.rfind(b"\n", 0, start))
    return Span(script.source.rfind(b"\n", 0, end) + 1, end)


def space_behind_backslash(script: ShellScript, line: Span) -> Span | None:
    """The white space behind the backslash that ends a line; None where there is none."""
    found = _SPACE.search(script.source[line.start : line.end])
    return None if found is None else Span(line.start + found.start(1), line.start + found.end(1))
