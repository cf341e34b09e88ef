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
_VISIBLE: Final = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _HIDDEN}
_SOURCE: Final = {**_VISIBLE, 0x09: " "}
_DIFF: Final = {code: shown for code, shown in _VISIBLE.items() if code not in (0x09, 0xFEFF)}
_COMMAND: Final = {code: shown for code, shown in _VISIBLE.items() if code not in (0x0A, 0x0D)}


def printable(text: str) -> str:
    """One line without control characters and without the runner's `##[`."""
    if text.isascii() and text.isprintable():  # nearly every text; nothing in it is hidden
        return _disarmed(text)
    return _disarmed(_encodable(text.translate(_VISIBLE)))


def source_line(text: str) -> str:
    """A line of a file for a source frame; tabs become one space, so that carets stay below their text."""
    return _disarmed(_encodable(text.translate(_SOURCE)))


def diff_line(text: str) -> str:
    """A line of a diff that can be no workflow command and steers no terminal; every harmless line is as it was."""
    ending = "\r" if text.endswith("\r") else ""
    shown = _disarmed(_encodable(text.removesuffix("\r").translate(_DIFF)))
    if shown[1:].lstrip().startswith("::"):
        shown = shown[:1] + "\\" + shown[1:]
    return shown + ending


def leading(text: str) -> str:
    """Printable text that starts a line: it can be no workflow command."""
    shown = printable(text)
    return "./" + shown if shown.lstrip().startswith("::") else shown


def command_message(text: str) -> str:
    """The message of a workflow command (toolkit `command.ts` escapeData); line breaks survive."""
    shown = _disarmed(_encodable(text.translate(_COMMAND)))
    return shown.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def command_property(text: str) -> str:
    """A property of a workflow command (toolkit `command.ts` escapeProperty)."""
    return command_message(text).replace(":", "%3A").replace(",", "%2C")


def plain(text: str) -> str:
    """Text for an object that programs read: as it is, but that UTF-8 can write it."""
    return _encodable(text)


def _encodable(text: str) -> str:
    """Bytes of a file name that are no UTF-8 (lone surrogates) as escapes of bytes: `\\xff`."""
    if text.isascii():
        return text
    shown = re.sub("[\udc80-\udcff]", lambda byte: f"\\x{ord(byte[0]) - 0xDC00:02x}", text)
    return shown.encode("utf-8", "backslashreplace").decode("utf-8")


def _disarmed(text: str) -> str:
    return text if "##" not in text else re.sub(r"##(?=[A-Za-z]*\[)", "# #", text)
