"""Text that users wrote, made safe for a terminal, for a log that a CI system reads, and for workflow commands.

GitHub's runner executes a line whose first non-blank characters are `::command`, and one that contains `##[command]`
anywhere (actions/runner `ActionCommand.cs`); Azure's agent one with `##vso[command]` anywhere or `##[command]` (agent
`Command.cs`), TeamCity one with `##teamcity[`. GitLab's sections need an escape character. So nothing that comes from a
file reaches a line unescaped.
"""

from __future__ import annotations

import re

from cfglint_train.foundation.typed import Final

# C0 and C1 controls; line and paragraph separators; what is invisible or turns the direction of the text around it.
_HIDDEN: Final = (
    *range(0x20), *range(0x7F, 0xA0), 0xAD, 0x61C, 0x180E, *range(0x200B, 0x2010), *range(0x2028, 0x202F),
    *range(0x2060, 0x2070), 0xFEFF, *range(0xFFF9, 0xFFFC),
)  # fmt: skip
_ESCAPES: Final = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _HIDDEN}
_SOURCE: Final = {**_ESCAPES, 0x09: " "}
_DIFF: Final = {code: shown for code, shown in _ESCAPES.items() if code not in (0x09, 0xFEFF)}
_COMMAND: Final = {code: shown for code, shown in _ESCAPES.items() if code not in (0x0A, 0x0D)}


def escape_text(text: str) -> str:
    """One line without control characters and without the runner's `##[`."""
    if text.isascii() and text.isprintable():  # nearly every text; nothing in it is hidden
        return _escape_commands(text)
    return _escape_commands(_escape_undecodable(text.translate(_ESCAPES)))


def escape_source_line(text: str) -> str:
    """A line of a file for a source frame; tabs become one space, so that carets stay below their text."""
    return _escape_commands(_escape_undecodable(text.translate(_SOURCE)))


def escape_diff_line(text: str) -> str:
    """A line of a diff that can be no workflow command and steers no terminal; every harmless line is as it was."""
    ending = "\r" if text.endswith("\r") else ""
    escaped = _escape_commands(_escape_undecodable(text.removesuffix("\r").translate(_DIFF)))
    if escaped[1:].lstrip().startswith("::"):
        escaped = escaped[:1] + "\\" + escaped[1:]
    return escaped + ending


def escape_line_start(text: str) -> str:
    """Printable text that starts a line: it can be no workflow command."""
    escaped = escape_text(text)
    return "./" + escaped if escaped.lstrip().startswith("::") else escaped


def escape_command_message(text: str) -> str:
    """The message of a workflow command (toolkit `command.ts` escapeData); line breaks survive."""
    escaped = _escape_commands(_escape_undecodable(text.translate(_COMMAND)))
    return escaped.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_command_property(text: str) -> str:
    """A property of a workflow command (toolkit `command.ts` escapeProperty)."""
    return escape_command_message(text).replace(":", "%3A").replace(",", "%2C")


def escape_data(text: str) -> str:
    """Text for an object that programs read: as it is, but that UTF-8 can write it."""
    return _escape_undecodable(text)


def _escape_undecodable(text: str) -> str:
    """Bytes of a file name that are no UTF-8 (lone surrogates) as escapes of bytes: `\\xff`."""
    if text.isascii():
        return text
    escaped = re.sub("[\udc80-\udcff]", lambda byte: f"\\x{ord(byte[0]) - 0xDC00:02x}", text)
    return escaped.encode("utf-8", "backslashreplace").decode("utf-8")


def _escape_commands(text: str) -> str:
    return text if "##" not in text else re.sub(r"##(?=[A-Za-z]*\[)", "# #", text)
