"""Commands that end before all of their options: the lines behind them are commands of their own to bash.

Bash manual, 3.1.2.1: a backslash continues a line only directly before the line's end; a comment ends with its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cfglint_train.documents.document import Span
from cfglint_train.documents.shell.script import Invocation, ShellScript
from cfglint_train.foundation.typed import Final

_ASSIGNED: Final = re.compile(rb"\n(?:[ \t]+[A-Za-z_][\w.-]*|[ \t]*--[\w.-]+)(?==)")
_SPACE: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\([ \t]+)\r?$")
"""Behind two backslashes, which are the character, a line would not go on without it either."""
_COMMENTED: Final = re.compile(rb"[ \t]\\[ \t]+#")
_MORE: Final = re.compile(rb"[ \t]*(?:-|[|&;<>)]|[0-9]+[<>])")
"""What no command begins with: options, and what joins, ends or redirects one."""
_UNKNOWN: Final = re.compile(rb"[ \t]*[\"']?[$`]")


def cut_off(script: ShellScript, invocation: Invocation) -> Iterator[Invocation]:
    """The commands that bash makes of the flags behind an invocation, in order.

    Commands of its own lines are skipped: `$(date +%F)` in a word of it, `| tee log` behind it.
    """
    end = _line_end(script, invocation)
    for one in script.invocations[invocation.number + 1 :]:
        if one.command == invocation.command:
            continue
        if one.program.startswith("--") and not one.head[0].optional:  # else it is there instead of what ends before it
            end = _line_end(script, one)
            yield one
        elif one.span.start >= end:
            return


def _line_end(script: ShellScript, invocation: Invocation) -> int:
    """Where the line of an invocation's last word ends."""
    words = (*invocation.head, *invocation.words)
    return script.line_end(max((word.span.start for word in words), default=invocation.span.start))


def cut_setting(script: ShellScript, invocation: Invocation) -> tuple[str, Span] | None:
    """The setting (`lr=1e-5`, `--lr=1e-5`) on the line behind an invocation, by its name, and its place; None where
    there is none, or it may be meant as a variable: the script uses it, or it is not indented like an argument.
    """
    found = _ASSIGNED.match(script.source, _line_end(script, invocation))
    if found is None:
        return None
    name = found[0].strip().decode()
    first = script.source.rfind(b"\n", 0, invocation.span.start) + 1
    if not name.startswith("-") and (script.uses(name) or _indent(script, found.start() + 1) <= _indent(script, first)):
        return None
    return name, Span(found.end() - len(name), found.end())


def _indent(script: ShellScript, start: int) -> int:
    """How many blanks a line begins with."""
    line = script.source[start : script.line_end(start)]
    return len(line) - len(line.lstrip())


def follows(script: ShellScript, invocation: Invocation, start: int) -> bool | None:
    """Return whether the line behind the one at `start` goes on with the command there, or None if that is not known:
    it begins with a variable.
    """
    line = script.line_end(start)
    behind = script.source.find(b"\n", line) + 1 or len(script.source)
    end = script.line_end(behind)
    if _MORE.match(script.source, behind, end) or start < invocation.span.start:
        return True  # in an array, a line that ends is white space
    cuts = (one.head[0].span.start for one in cut_off(script, invocation))
    if any(behind <= at < end for at in cuts):
        return True
    return None if _UNKNOWN.match(script.source, behind, end) else False


def backslash_at_the_end(script: ShellScript, line: Span) -> Span | None:
    """Return the backslash at the end of a line with the white space around it, or None if a comment follows."""
    text = script.source[line.start : line.end].removesuffix(b"\r")
    bare = text.rstrip(b" \t")
    if bare == text or not bare.endswith(b"\\") or bare.endswith(b"\\\\"):
        return None
    return Span(line.start + len(bare[:-1].rstrip(b" \t")), line.start + len(text))


def line_above(script: ShellScript, start: int) -> Span:
    """The line above a place, without its end."""
    end = max(0, script.source.rfind(b"\n", 0, start))
    return Span(script.source.rfind(b"\n", 0, end) + 1, end)


def space_behind_backslash(script: ShellScript, line: Span) -> Span | None:
    """The white space behind the backslash that ends a line; None where there is none."""
    found = _SPACE.search(script.source[line.start : line.end])
    return None if found is None else Span(line.start + found.start(1), line.start + found.end(1))


def comment_behind_backslash(script: ShellScript, line: Span) -> bool:
    """Whether a comment follows the backslash that was meant to continue a line."""
    return _COMMENTED.search(script.source, line.start, line.end) is not None
