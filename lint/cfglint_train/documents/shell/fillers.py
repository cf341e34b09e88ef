"""Edits of a configuration by yq, jq, sed or perl in a shell script, before the framework reads it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from cfglint_train.documents.document import DocumentError, Route
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final

ConfigMatcher = Callable[[list[str]], bool]

_STEP: Final = r"[A-Za-z_][\w.-]*"
_YQ: Final = compile_on_use(rf"\.({_STEP})\s*(?:[|+*]?=)(?!=)")
_DELETED: Final = compile_on_use(r"\bdel\(([^()]*)\)")
_QUOTED: Final = compile_on_use(r"\.?\[\s*[\"']([^\"']+)[\"']\s*\]|\.[\"']([^\"']+)[\"']")
_START: Final = r"\^?(?:\\s\*|\[\[:space:\]\]\*|\s*)[\"']?"
_SED: Final = compile_on_use(rf"\bs([/|#,@]){_START}([A-Za-z_]\w*)(?:[\"']?\s*:|\.\*)")
_SED_LINE: Final = compile_on_use(rf"(?:/{_START}([A-Za-z_]\w*)[^/]*/d|^/{_START}([A-Za-z_]\w*)[^/]*/\s*[cs])\b")
_SED_MARK: Final = compile_on_use(r"\bs([/|#,@])((?:(?!\1).)+)\1")
_MARK: Final = compile_on_use(r"[\w@%{}<>()./\[\]-]*[A-Za-z][\w@%{}<>()./\[\]-]*")
_CLASS: Final = compile_on_use(r"(?<!\\)\[")
"""Start of a character class, which is not literal text."""


class EditedKey(str):
    """A key whose lines a script replaces or removes wherever it occurs in the file."""


def find_edits(path: str, source: bytes, names_config: ConfigMatcher) -> Iterator[Route | EditedKey | str]:
    """Yield the settings and keys that a script changes, and the strings that it replaces anywhere in the file.

    `names_config` returns whether one of the words is the path of the configuration.
    """
    if not any(tool.encode() in source for tool in _TOOLS):
        return  # fast path: this runs for every configuration that a script names
    try:
        document = ShellDocument(path, source)
    except DocumentError:
        return
    commands: dict[tuple[int, int], list[Invocation]] = {}
    for invocation in document.invocations:
        if invocation.program in _TOOLS:
            commands.setdefault(_find_lines(invocation, source), []).append(invocation)
    for (first, last), piped in commands.items():
        words = [[word.text for word in invocation.words] for invocation in piped]
        if names_config(
            [*(word for program_words in words for word in program_words), *_split_words(source[first:last])]
        ):
            for invocation, program_words in zip(piped, words):
                for word in program_words:
                    yield from _TOOLS[invocation.program](word)


def _find_lines(invocation: Invocation, source: bytes) -> tuple[int, int]:
    """Return the start and end of the lines around a program, including lines joined by backslashes."""
    words = (*invocation.head, *invocation.words)
    start, end = words[0].span.start, max(word.span.end for word in words)
    first = source.rfind(b"\n", 0, start) + 1
    while first and source[: first - 1].endswith(b"\\"):
        first = source.rfind(b"\n", 0, first - 1) + 1
    last = source.find(b"\n", max(start, end))
    while last > 0 and source[:last].endswith(b"\\"):
        last = source.find(b"\n", last + 1)
    return first, len(source) if last < 0 else last


def _split_words(lines: bytes) -> list[str]:
    """Return the words of lines, including files that a program reads through a redirection or pipe."""
    text = re.sub(r"(?:^|\s)#.*", "", lines.decode("utf-8", "replace"))
    return re.findall(r"[^\s\"'=<>|;&()]+", text)


def _parse_yq(program: str) -> Iterator[Route | EditedKey | str]:
    program = re.sub(r"\.{2,}", ".", _QUOTED.sub(lambda match: f".{match[1] or match[2]}", program))
    for match in _YQ.finditer(program):
        yield tuple(match[1].split("."))
    for match in _DELETED.finditer(program):
        for name in re.findall(rf"\.({_STEP})", match[1]):
            yield tuple(name.split("."))


def _parse_sed(program: str) -> Iterator[Route | EditedKey | str]:
    for pattern in (_SED, _SED_LINE):
        for match in pattern.finditer(program):
            yield EditedKey(match[match.lastindex or 1])
    for match in _SED_MARK.finditer(program):
        mark = match[2].replace("\\", "").removeprefix("^")
        if _MARK.fullmatch(mark) and not _CLASS.search(match[2]):
            yield mark


_TOOLS: Final[dict[str, Callable[[str], Iterator[Route | EditedKey | str]]]] = {
    "yq": _parse_yq,
    "jq": _parse_yq,
    "sed": _parse_sed,
    "perl": _parse_sed,
}
