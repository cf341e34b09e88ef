"""Pragmas: comments that state facts about the cluster and the releases, or suppress findings.

# cfglint: nodes=64 gpus-per-node=8 gpu=A100-80GB host-memory=480GiB torch=2.2
# cfglint: ignore[MEM001] the cluster has patched drivers     (this line; alone on its line, also the next one)
# cfglint: file-ignore[PRF001, SEC]
"""

from __future__ import annotations

import re
from collections.abc import Set

from cfglint_train.documents.document import BOM, Comment, Document, Position, Span
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.settings.settings import measure_precision

MARK: Final = b"cfglint:"
_PRAGMA: Final = r"(?:^|\s)(?:#|//|/\*|<!--)\s*cfglint:[ \t]*(?P<body>.*?)\s*(?:\*/|-->)?$"
_SUPPRESSION: Final = r"(?P<kind>ignore|file-ignore)\s*\[(?P<codes>[^\]]*)\]"
_FACT: Final = r"([a-z][a-z0-9_-]*)=(?:\"([^\"]*)\"|([^\s,]+)),?"


class PragmaFact(Frozen):
    """A `name=value` in a pragma."""

    name: str
    value: str
    span: Span


class Suppression(Frozen):
    """An `ignore[...]` or `file-ignore[...]` comment with the codes that it silences, each with its span."""

    first: int
    """Line of the comment."""
    last: int
    """Last line that it covers.

    A comment alone on its line also covers the construct that starts after it, on the next line that is not a
    comment: a whole shell command, a multi-line string, or a fenced block of a README.
    """
    whole_file: bool
    codes: tuple[tuple[str, Span], ...]
    comment: Comment


class Pragmas(Frozen):
    """The pragmas of a document; `malformed` are cfglint comments that are neither facts nor suppressions."""

    facts: tuple[PragmaFact, ...] = ()
    suppressions: tuple[Suppression, ...] = ()
    malformed: tuple[Comment, ...] = ()


NO_PRAGMAS: Final = Pragmas()


def read_pragmas(document: Document) -> Pragmas:
    """Read the pragmas of a document; a document without pragmas costs only a substring search."""
    if MARK not in document.source:
        return NO_PRAGMAS
    facts: list[PragmaFact] = []
    suppressions: list[Suppression] = []
    malformed: list[Comment] = []
    comments = document.list_comments()
    comment_lines = {document.locate(comment.span.start).line for comment in comments if _is_alone(document, comment)}
    for comment in comments:
        match = re.search(_PRAGMA, comment.text, re.S)
        if match is None:
            continue
        body = match["body"]
        base = comment.span.start + len(comment.text[: match.start("body")].encode())
        suppression = re.match(_SUPPRESSION, body)
        if suppression is not None:
            codes = _parse_codes(suppression["codes"], base + len(body[: suppression.start("codes")].encode()))
            if codes:
                suppressions.append(
                    _build_suppression(document, comment, suppression["kind"] == "file-ignore", codes, comment_lines)
                )
            else:
                malformed.append(comment)
            continue
        fact_matches = list(re.finditer(_FACT, body))
        rest = re.sub(_FACT, "", body).strip()
        if not fact_matches or rest:
            malformed.append(comment)
            continue
        for fact in fact_matches:
            start = base + len(body[: fact.start()].encode())
            text = fact[0].removesuffix(",")
            facts.append(PragmaFact(fact[1], fact[2] or fact[3] or "", Span(start, start + len(text.encode()))))
    return Pragmas(tuple(facts), tuple(suppressions), tuple(malformed))


def find_pragma_start(comment: Comment) -> int:
    """Return the offset of the pragma in a comment, which may start with other remarks."""
    match = re.search(_PRAGMA, comment.text, re.S)
    return comment.span.start + (0 if match is None else len(comment.text[: match.start()].encode()))


def _parse_codes(text: str, base: int) -> tuple[tuple[str, Span], ...]:
    result = []
    for match in re.finditer(r"[^\s,]+", text):
        start = base + len(text[: match.start()].encode())
        result.append((match[0], Span(start, start + len(match[0].encode()))))
    return tuple(result)


def _build_suppression(
    document: Document, comment: Comment, whole_file: bool, codes: tuple[tuple[str, Span], ...], comment_lines: Set[int]
) -> Suppression:
    line = last = document.locate(comment.span.start).line
    if line in comment_lines:
        last += 1
        while last in comment_lines:
            last += 1
        last = document.find_extent(last)[1]
    return Suppression(line, last, whole_file, codes, comment)


def _is_alone(document: Document, comment: Comment) -> bool:
    """Return whether a comment is alone on its line."""
    start = document.line_starts[document.locate(comment.span.start).line - 1]
    return not document.source[start : comment.span.start].removeprefix(BOM).strip()


def find_silencing_codes(suppression: Suppression, code: str, name: str, start: Position, end: Position) -> list[Span]:
    """Return the spans of those codes in a suppression that silence a finding, given by code, name and range."""
    is_in_range = start.line <= suppression.last and suppression.first <= end.line
    if not (is_in_range or suppression.whole_file):
        return []
    return [span for selector, span in suppression.codes if measure_precision((selector,), code, name) >= 0]
