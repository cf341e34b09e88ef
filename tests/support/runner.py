"""Handling of a step's output by GitHub's runner: a small port of its command parser and limits.

Facts from actions/runner `src/Runner.Common/ActionCommand.cs`, `src/Runner.Worker/ActionCommandManager.cs`,
`ExecutionContext.cs` and `FileCommandManager.cs`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

COMMANDS = frozenset(
    (
        "add-mask", "add-matcher", "add-path", "debug", "echo", "endgroup", "error", "group",
        "internal-set-repo-path", "notice", "remove-matcher", "save-state", "set-env", "set-output", "stop-commands",
        "warning",
    )
)  # fmt: skip

MAX_ANNOTATIONS = 10
"""Annotations of each level that a step keeps."""
MAX_MESSAGE = 4096
"""Characters of an annotation's message; the rest is cut."""
MAX_SUMMARY = 2**20
"""Bytes of a step's summary; a longer summary is an error and is not shown at all."""

# Characters that .NET's TrimStart and Trim remove.
_WHITE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))


class Command(NamedTuple):
    name: str
    properties: dict[str, str]
    data: str


def split_lines(output: str) -> list[str]:
    """Return the lines that the runner sees: .NET ends a line at every CR, LF or CRLF."""
    return re.split("\r\n|\r|\n", output)


def parse_command(line: str) -> Command | None:
    """Return the workflow command on a line, in the newer or the older form, or None if there is none."""
    return _parse_newer_form(line) or _parse_older_form(line)


def _parse_newer_form(line: str) -> Command | None:
    line = line.lstrip(_WHITE)
    if not line.startswith("::"):
        return None
    end = line.find("::", 2)
    if end < 0:
        return None
    name, _, rest = line[2:end].partition(" ")
    if name.lower() not in COMMANDS:
        return None
    pairs = (part.split("=", 1) for part in rest.strip(_WHITE).split(",") if part)
    properties = {pair[0]: _unescape(pair[1], "%0D", "%0A", "%3A", "%2C", "%25") for pair in pairs if len(pair) == 2}
    return Command(name, properties, _unescape(line[end + 2 :], "%0D", "%0A", "%25"))


def _parse_older_form(line: str) -> Command | None:
    start = line.find("##[")
    end = line.find("]", start)
    if start < 0 or end < 0:
        return None
    name, _, _ = line[start + 3 : end].partition(" ")
    return Command(name, {}, line[end + 1 :]) if name.lower() in COMMANDS else None


def _unescape(text: str, *tokens: str) -> str:
    for token in tokens:
        text = text.replace(token, chr(int(token[1:], 16)))
    return text


class Annotation(NamedTuple):
    level: str
    message: str
    file: str | None
    title: str | None
    lines: tuple[int, int] | None
    columns: tuple[int, int] | None


def list_annotations(output: str) -> list[Annotation]:
    """Return the annotations that a step leaves: the first ten of each level."""
    annotations: list[Annotation] = []
    for line in split_lines(output):
        command = parse_command(line)
        if command is None or command.name not in ("error", "warning", "notice"):
            continue
        if sum(annotation.level == command.name for annotation in annotations) < MAX_ANNOTATIONS:
            annotations.append(_build_annotation(command))
    return annotations


def _build_annotation(command: Command) -> Annotation:
    first, last = command.properties.get("line"), command.properties.get("endLine")
    rows = columns = None
    if first is not None:
        rows = (int(first), int(last or first))
        if "col" in command.properties and rows[0] == rows[1]:
            begin = int(command.properties["col"])
            columns = (begin, int(command.properties.get("endColumn", begin)))
    name = command.properties.get("file")
    return Annotation(command.name, command.data[:MAX_MESSAGE], name, command.properties.get("title"), rows, columns)
