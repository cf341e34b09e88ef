"""Cut-off commands: commands that end before their last option, so that bash runs the next lines as commands.

Bash manual, 3.1.2.1: a backslash continues a line only if the line ends directly after it. A comment ends with its
line.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import Span
from cfglint_train.documents.shell.script import Invocation, ShellScript
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final

_SETTING: Final = compile_on_use(rb"\n(?:[ \t]+(?:\+\+?)?[A-Za-z_][\w.-]*|[ \t]*--[\w.-]+)(?==)")
_CONTINUED: Final = compile_on_use(rb"(?<!\\)(?:\\\\)*\\\r?$")
_EMPTY: Final = compile_on_use(rb"(?:\n[ \t]*(?:#[^\n]*)?\r?(?=\n))*")
"""Pattern of empty lines and comments, which end a command that a backslash was meant to continue."""
_SPACE: Final = compile_on_use(rb"(?<!\\)(?:\\\\)*\\([ \t]+)\r?$")
"""Pattern of white space after the backslash at the end of a line.

Two backslashes are a literal backslash, so the line does not continue anyway.
"""
_COMMENTED: Final = compile_on_use(rb"[ \t]\\[ \t]+#")
_CONTINUATION: Final = compile_on_use(rb"[ \t]*(?:-|[|&;<>)]|[0-9]+[<>])")
"""Pattern of a line that cannot start a command: an option, or an operator that joins, ends or redirects one."""
_SWALLOWED: Final = compile_on_use(rb"(?<!\\)([ \t]*\\\r?)\n[ \t]*(fi|done|esac|else)(?=[ \t]*(?:[;&|<>#)\r\n]|\Z))")
_UNKNOWN: Final = compile_on_use(rb"[ \t]*[\"']?[$`]")


def find_detached_options(script: ShellScript, invocation: Invocation) -> Iterator[Invocation]:
    """Yield the options after an invocation that bash runs as commands, in order.

    Other commands on its lines are skipped: `$(date +%F)` in one of its words, `| tee log` after it.
    """
    end = _find_line_end(script, invocation)
    for command in script.invocations[invocation.number + 1 :]:
        if command.command == invocation.command:
            continue
        if (
            command.program.startswith("--") and not command.head[0].is_optional
        ):  # an optional word would replace the command
            end = _find_line_end(script, command)
            yield command
        elif command.span.start >= end:
            return


def _find_line_end(script: ShellScript, invocation: Invocation) -> int:
    """Return the end of the line that holds an invocation's last word."""
    words = (*invocation.head, *invocation.words)
    return script.find_line_end(max((word.span.start for word in words), default=invocation.span.start))


def find_swallowed_word(script: ShellScript, invocation: Invocation) -> tuple[Span, Span] | None:
    """Return the places of `fi`, `done`, `esac` or `else` after a command that a backslash continues, or None.

    The first place is the backslash with the white space before it, the second one the word.
    """
    end = _find_line_end(script, invocation)
    start = script.source.rfind(b"\n", 0, end) + 1
    match = _SWALLOWED.search(script.source, start)
    if match is None or match.start() >= end:
        return None
    return Span(*match.span(1)), Span(*match.span(2))


def find_detached_setting(script: ShellScript, invocation: Invocation) -> tuple[str, Span] | None:
    """Return the name and place of a setting (`lr=1e-5`, `--lr=1e-5`) on the line after an invocation, or None.

    Empty lines and comments before it count if a backslash was meant to continue the command. A setting does not count
    if it may be a variable assignment: if the script uses the variable, or if the line is not indented further than the
    command.
    """
    end = _find_line_end(script, invocation)
    line = script.source[script.source.rfind(b"\n", 0, end) + 1 : end]
    empty = _EMPTY.match(script.source, end) if _CONTINUED.search(line) else None
    match = _SETTING.match(script.source, end if empty is None else empty.end())
    if match is None:
        return None
    name = match[0].strip().decode()
    first = script.source.rfind(b"\n", 0, invocation.span.start) + 1
    if not name.startswith("-") and (
        script.count_uses(name) or _measure_indent(script, match.start() + 1) <= _measure_indent(script, first)
    ):
        return None
    return name, Span(match.end() - len(name), match.end())


def _measure_indent(script: ShellScript, start: int) -> int:
    """Return the number of white-space characters at the start of a line."""
    line = script.source[start : script.find_line_end(start)]
    return len(line) - len(line.lstrip())


def is_continued(script: ShellScript, invocation: Invocation, start: int) -> bool | None:
    """Return whether the line after the line at `start` continues its command, or None if that is unknown.

    It is unknown if the next line starts with an expansion (`$` or a backtick).
    """
    line = script.find_line_end(start)
    next_line = script.source.find(b"\n", line) + 1 or len(script.source)
    end = script.find_line_end(next_line)
    if _CONTINUATION.match(script.source, next_line, end) or start < invocation.span.start:
        return True  # in an array, the end of a line is white space
    cuts = (command.head[0].span.start for command in find_detached_options(script, invocation))
    if any(next_line <= at < end for at in cuts):
        return True
    return None if _UNKNOWN.match(script.source, next_line, end) else False


def find_trailing_backslash(script: ShellScript, line: Span) -> Span | None:
    """Return the span of the final backslash of a line with the white space around it.

    Return None if no white space follows the backslash, or if the line does not end with a single backslash.
    """
    text = script.source[line.start : line.end].removesuffix(b"\r")
    bare = text.rstrip(b" \t")
    if bare == text or not bare.endswith(b"\\") or bare.endswith(b"\\\\"):
        return None
    return Span(line.start + len(bare[:-1].rstrip(b" \t")), line.start + len(text))


def find_line_above(script: ShellScript, start: int) -> Span:
    """Return the span of the line above a place, without its line break."""
    end = max(0, script.source.rfind(b"\n", 0, start))
    return Span(script.source.rfind(b"\n", 0, end) + 1, end)


def find_space_after_backslash(script: ShellScript, line: Span) -> Span | None:
    """Return the span of the white space after a line's final backslash, or None if there is none."""
    match = _SPACE.search(script.source[line.start : line.end])
    return None if match is None else Span(line.start + match.start(1), line.start + match.end(1))


def has_comment_after_backslash(script: ShellScript, line: Span) -> bool:
    """Return whether a comment follows a backslash that was meant to continue the line."""
    return _COMMENTED.search(script.source, line.start, line.end) is not None
