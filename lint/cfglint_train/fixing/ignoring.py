"""Write the comments that silence the findings of today (`--add-ignore`).

Each comment is read back before it counts: it has to be a comment there, and to silence its findings, and what the file
says has to stay the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from cfglint_rules import registry
from cfglint_train.documents.document import BOM, Document, DocumentError, Position
from cfglint_train.findings.finding import Finding
from cfglint_train.fixing.loop import Applied, Fixed, Refused, unchanged
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.judging import dispatch
from cfglint_train.judging.options import LintOptions
from cfglint_train.judging.suppressions import UNUSED_SUPPRESSION
from cfglint_train.repository import files
from cfglint_train.runs.workspace import Workspace
from cfglint_train.settings import pragmas

_UNUSED: Final = UNUSED_SUPPRESSION.code
"""The rule about comments that silence nothing: to silence it would be another of them."""
_INLINE: Final = ("python", "shell", "yaml")
"""Syntaxes in which a comment may follow something on its line."""


class _Candidate(Frozen):
    """A text with one more comment, and by how many lines the findings that it is for have moved."""

    text: bytes
    shift: int


def add_ignores(paths: list[str], options: LintOptions) -> Fixed:
    """Write a comment for every finding that one can silence. Nothing is written to disk."""
    workspace = dispatch.workspace_for(options)
    before = dispatch.lint(workspace, paths, options)
    by_path: dict[str, list[Finding]] = {}
    for finding in before.findings:
        by_path.setdefault(finding.path, []).append(finding)
    originals: dict[str, bytes] = {}
    applied: list[Applied] = []
    refused: list[Refused] = []
    for path, findings in by_path.items():
        document = workspace.documents.commented(path)
        source, silenced = (b"", []) if document is None else _commented(document, findings, workspace)
        if document is not None and silenced:
            originals[path] = document.source
            workspace = workspace.updated({path: source})
        for finding in findings:
            if finding in silenced:
                applied.append(Applied(path, finding.code, f"ignored in line {finding.start.line}", (path,)))
            else:
                refused.append(Refused(path, finding.code, _reason(finding, document)))
    result = dispatch.lint(workspace, paths, options) if originals else before
    known = {(finding.path, finding.code, finding.message) for finding in before.findings}
    spoilt = {one.path for one in result.findings if (one.path, one.code, one.message) not in known} & originals.keys()
    if spoilt:
        workspace = workspace.updated({path: originals.pop(path) for path in spoilt})
        refused.extend(_undone(applied, spoilt))
        applied = [one for one in applied if one.path not in spoilt]
        result = dispatch.lint(workspace, paths, options)
    if result.is_cut_short:
        return unchanged(before, result)
    sources = {path: workspace.sources.texts[path] for path in originals}
    return Fixed(sources, originals, tuple(applied), tuple(refused), result)


def _undone(applied: Iterable[Applied], spoilt: set[str]) -> Iterator[Refused]:
    reason = "the comments would change what is found in this file"
    return (Refused(one.path, one.code, reason) for one in applied if one.path in spoilt)


def _reason(finding: Finding, document: Document | None) -> str:
    """Return why no comment silences a finding."""
    if finding.code == _UNUSED:
        return "remove the comment that it points at (`--fix` does)"
    extension = os.path.splitext(finding.path)[1].lower()
    if files.SYNTAXES.get(extension) == "json" or (document is not None and document.syntax == "json"):
        return "JSON has no comments"
    if extension == ".ipynb":
        return "a notebook has no comments"
    if document is None and finding.place is None:
        return "a comment counts only in a file that can be read"
    return "no comment can be written there"


def _commented(document: Document, findings: list[Finding], workspace: Workspace) -> tuple[bytes, list[Finding]]:
    """Return the text with comments, and the findings that they silence: at their lines where that is possible, else in
    the whole file.
    """
    source = document.source
    silenced: list[Finding] = []
    if document.syntax == "json":
        return source, silenced
    by_line: dict[int, list[Finding]] = {}
    for finding in findings:
        if finding.code != _UNUSED:
            by_line.setdefault(document.extent(finding.start.line)[0], []).append(finding)
    left: list[Finding] = []
    known = len(pragmas.pragmas(document).suppressions)
    for line in sorted(by_line, reverse=True):  # from the end, so that the lines above keep their numbers
        here = by_line[line]
        places = (
            _beside(document, source, line, _codes(here)) if known + len(by_line) < dispatch.MAX_SUPPRESSIONS else ()
        )
        text = next((one.text for one in places if _holds(document, source, one, here, workspace)), None)
        if text is None:
            left += here
        else:
            source = text
            silenced += here
    if left:
        whole = _on_top(source, _codes(left))
        if _holds(document, source, whole, left, workspace):
            return whole.text, silenced + left
    return source, silenced


def _codes(findings: Iterable[Finding]) -> str:
    return ", ".join(sorted({finding.code for finding in findings}))


def _beside(document: Document, source: bytes, line: int, codes: str) -> Iterator[_Candidate]:
    """Yield the text with a comment above a line, or behind it."""
    lines = source.splitlines(keepends=True)
    own = lines[line - 1] if line <= len(lines) else b""
    mark = BOM if line == 1 and own.startswith(BOM) else b""
    bare = own.removeprefix(mark)
    if line == 1 and bare.startswith(b"#!"):
        return  # the first line names the interpreter
    content = bare.rstrip(b"\r\n")
    above, below = b"".join(lines[: line - 1]), b"".join(lines[line:])
    comment = f"# cfglint: ignore[{codes}]"
    if document.syntax == "markdown":
        comment = f"<!-- {comment.removeprefix('# ')} -->"
    # make ends a recipe at no comment in the first column, and shows one behind a tab.
    indent = b"" if files.is_makefile(document.path) else content[: len(content) - len(content.lstrip())]
    yield _Candidate(b"".join((above, mark, indent, comment.encode(), _ending(lines, bare), bare, below)), 1)
    if document.syntax in _INLINE:
        yield _Candidate(b"".join((above, mark, content, b"  ", comment.encode(), bare[len(content) :], below)), 0)


def _on_top(source: bytes, codes: str) -> _Candidate:
    """Return the text with a comment for the whole file, below the comments at its head: they may name an interpreter,
    an encoding, or what a scheduler is asked for.
    """
    mark = BOM if source.startswith(BOM) else b""
    lines = source.removeprefix(mark).splitlines(keepends=True)
    head = next((number for number, line in enumerate(lines) if not line.startswith(b"#")), len(lines))
    above = b"".join(lines[:head])
    ending = _ending(lines, b"")
    start = above if not above or above.endswith(b"\n") else above + ending
    comment = f"# cfglint: file-ignore[{codes}]".encode()
    return _Candidate(b"".join((mark, start, comment, ending, *lines[head:])), 1)


def _ending(lines: list[bytes], line: bytes) -> bytes:
    """Return how a line ends, else how the first one does."""
    own = line[len(line.rstrip(b"\r\n")) :]
    return own or (lines[0][len(lines[0].rstrip(b"\r\n")) :] if lines else b"") or b"\n"


def _holds(
    document: Document, before: bytes, candidate: _Candidate, findings: list[Finding], workspace: Workspace
) -> bool:
    """Return whether the new comment silences the findings, and nothing else changes."""
    load = workspace.sources.beside(document.path)
    try:
        old = files.commented(document.path, before, load)
        new = files.commented(document.path, candidate.text, load)
        if old is None or new is None or repr(old.value()) != repr(new.value()):
            return False
    except DocumentError:
        return False
    suppressions, former = pragmas.pragmas(new).suppressions, pragmas.pragmas(old).suppressions
    if len(new.comments()) != len(old.comments()) + 1 or len(suppressions) != len(former) + 1:
        return False
    return all(
        any(
            pragmas.silencing(one, finding.code, registry.RULES[finding.code].name, *_moved(finding, candidate.shift))
            for one in suppressions
        )
        for finding in findings
    )


def _moved(finding: Finding, lines: int) -> tuple[Position, Position]:
    start, end = finding.start, finding.end
    return start._replace(line=start.line + lines), end._replace(line=end.line + lines)
