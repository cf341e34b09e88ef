"""Escaping of user-written text for terminals, CI logs and workflow commands.

GitHub's runner executes a line whose first non-blank characters are `::command`, and one that contains `##[command]`
anywhere (actions/runner `ActionCommand.cs`). Azure's agent executes `##vso[command]` or `##[command]` anywhere (agent
`Command.cs`), TeamCity executes `##teamcity[`. GitLab's section markers contain an escape character. Text from a file
is therefore never printed unescaped.
"""

from __future__ import annotations

import re

from cfglint_train.foundation.typed import Final

# C0 and C1 controls, line and paragraph separators, invisible characters, and characters that set text direction.
_HIDDEN: Final = (
    *range(0x20), *range(0x7F, 0xA0), 0xAD, 0x61C, 0x180E, *range(0x200B, 0x2010), *range(0x2028, 0x202F),
    *range(0x2060, 0x2070), 0xFEFF, *range(0xFFF9, 0xFFFC),
)  # fmt: skip
_ESCAPES: Final = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _HIDDEN}
_SOURCE: Final = {**_ESCAPES, 0x09: " "}
_DIFF: Final = {code: shown for code, shown in _ESCAPES.items() if code not in (0x09, 0xFEFF)}
_COMMAND: Final = {code: shown for code, shown in _ESCAPES.items() if code not in (0x0A, 0x0D)}


def escape_text(text: str) -> str:
    """Return `text` as one line, with control characters and CI commands (`##[`) escaped."""
    if text.isascii() and text.isprintable():  # fast path for nearly every string
        return _escape_commands(text)
    return _escape_commands(_escape_undecodable(text.translate(_ESCAPES)))


def escape_source_line(text: str) -> str:
    """Escape a line of a file for a source frame; each tab becomes one space, so that carets stay aligned."""
    return _escape_commands(_escape_undecodable(text.translate(_SOURCE)))


def escape_diff_line(text: str) -> str:
    """Escape workflow commands and terminal controls in a line of a diff; harmless lines do not change."""
    ending = "\r" if text.endswith("\r") else ""
    escaped = _escape_commands(_escape_undecodable(text.removesuffix("\r").translate(_DIFF)))
    if escaped[1:].lstrip().startswith("::"):
        escaped = escaped[:1] + "\\" + escaped[1:]
    return escaped + ending


def escape_line_start(text: str) -> str:
    """Escape text at the start of a line, so that it cannot act as a workflow command."""
    escaped = escape_text(text)
    return "./" + escaped if escaped.lstrip().startswith("::") else escaped


def escape_command_message(text: str) -> str:
    """Escape the message of a workflow command (toolkit `command.ts` escapeData); line breaks are preserved."""
    escaped = _escape_commands(_escape_undecodable(text.translate(_COMMAND)))
    return escaped.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_command_property(text: str) -> str:
    """Escape a property of a workflow command (toolkit `command.ts` escapeProperty)."""
    return escape_command_message(text).replace(":", "%3A").replace(",", "%2C")


def escape_data(text: str) -> str:
    """Return `text` for machine-readable output: unchanged, except that bytes that are not UTF-8 are escaped."""
    return _escape_undecodable(text)


def _escape_undecodable(text: str) -> str:
    r"""Escape lone surrogates, which stand for bytes of file names that are not UTF-8, as `\xff`."""
    if text.isascii():
        return text
    escaped = re.sub("[\udc80-\udcff]", lambda byte: f"\\x{ord(byte[0]) - 0xDC00:02x}", text)
    return escaped.encode("utf-8", "backslashreplace").decode("utf-8")


def _escape_commands(text: str) -> str:
    return text if "##" not in text else re.sub(r"##(?=[A-Za-z]*\[)", "# #", text)
