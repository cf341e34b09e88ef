"""Write the comments that silence the findings of today (`--add-ignore`).

Each comment is read back before it counts: it has to be a comment there, and to silence its finding, and what the file
says has to stay the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cfglint_rules import registry
from cfglint_train.documents.document import BOM, Document, DocumentError, Position
from cfglint_train.findings.finding import Finding
from cfglint_train.fixing.loop import Applied, Fixed, Refused, unchanged
from cfglint_train.foundation.typed import Final
from cfglint_train.judging import dispatch
from cfglint_train.judging.options import LintOptions
from cfglint_train.judging.suppressions import UNUSED_SUPPRESSION
from cfglint_train.project import files, pragmas
from cfglint_train.project.workspace import Workspace

NO_COMMENT: Final = "no comment can be written there"
_UNUSED: Final = UNUSED_SUPPRESSION.code
"""The rule about comments that silence nothing: to silence it would be another of them."""


def add_ignores(paths: list[str], options: LintOptions) -> Fixed:
    """Write a comment for every finding that one can silence. Nothing is written to disk."""
    workspace = dispatch.workspace_for(options)
    before = dispatch.lint(workspace, paths, options)
    troubles = {(trouble.path, trouble.message) for trouble in before.troubles}
    by_path: dict[str, list[Finding]] = {}
    for finding in before.findings:
        if finding.place is not None and (finding.path, finding.message) not in troubles:
            by_path.setdefault(finding.path, []).append(finding)
    originals: dict[str, bytes] = {}
    applied: list[Applied] = []
    refused: list[Refused] = []
    for path, findings in by_path.items():
        assert findings[0].place is not None
        document = findings[0].place.document
        source, silenced = _commented(document, findings, workspace)
        if silenced:
            originals[path] = document.source
            workspace = workspace.updated({path: source})
        for finding in findings:
            if finding in silenced:
                applied.append(Applied(path, finding.code, f"ignored in line {finding.start.line}", frozenset((path,))))
            else:
                refused.append(Refused(path, finding.code, _reason(finding)))
    result = dispatch.lint(workspace, paths, options)
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


def _reason(finding: Finding) -> str:
    if finding.code == _UNUSED:
        return "remove the comment that it points at"
    return NO_COMMENT


def _commented(document: Document, findings: list[Finding], workspace: Workspace) -> tuple[bytes, list[Finding]]:
    """The text with comments, and the findings that they silence."""
    source = document.source
    silenced: list[Finding] = []
    if document.syntax == "json":
        return source, silenced
    by_line: dict[int, list[Finding]] = {}
    for finding in findings:
        if finding.code != _UNUSED:
            by_line.setdefault(_anchor(document, finding.start.line), []).append(finding)
    for line in sorted(by_line, reverse=True):  # from the end, so that the lines above keep their numbers
        codes = ", ".join(sorted({finding.code for finding in by_line[line]}))
        for text, shift in _written(source, line, codes):
            if _holds(document, source, text, by_line[line], shift, workspace):
                source = text
                silenced += by_line[line]
                break
    return source, silenced


def _anchor(document: Document, line: int) -> int:
    """The line that a comment can be above: in a shell script the first one of the command."""
    if document.syntax == "shell":
        lines = document.source.splitlines()
        while line > 1 and lines[line - 2].endswith(b"\\"):
            line -= 1
    return line


def _written(source: bytes, line: int, codes: str) -> Iterator[tuple[bytes, int]]:
    """The text with a comment above a line, or behind it; below the first one where that names the interpreter.

    With each, by how many lines the finding has moved.
    """
    lines = source.splitlines(keepends=True)
    own = lines[line - 1]
    mark = BOM if line == 1 and own.startswith(BOM) else b""
    bare = own.removeprefix(mark)
    content = bare.rstrip(b"\r\n")
    ending = bare[len(content) :] or (lines[0][len(lines[0].rstrip(b"\r\n")) :] if len(lines) > 1 else b"\n")
    above, below = b"".join(lines[: line - 1]), b"".join(lines[line:])
    if line == 1 and bare.startswith(b"#!"):
        comment = f"# cfglint: file-ignore[{codes}]".encode()
        yield b"".join((mark, content, ending, comment, ending, below)), 0
        return
    comment = f"# cfglint: ignore[{codes}]".encode()
    indent = content[: len(content) - len(content.lstrip())]
    yield b"".join((above, mark, indent, comment, ending, bare, below)), 1
    yield b"".join((above, mark, content, b"  ", comment, bare[len(content) :], below)), 0


def _holds(
    document: Document, before: bytes, text: bytes, findings: list[Finding], shift: int, workspace: Workspace
) -> bool:
    """Whether the new comment silences the findings, and nothing else changes."""
    load = workspace.sources.beside(document.path)
    try:
        old = files.parse(document.path, before, document.syntax, load)
        new = files.parse(document.path, text, document.syntax, load)
        same = repr(old.value()) == repr(new.value())
        if not same or len(new.comments()) != len(old.comments()) + 1:
            return False
    except DocumentError:
        return False
    suppressions = pragmas.pragmas(new).suppressions
    if len(suppressions) != len(pragmas.pragmas(old).suppressions) + 1:
        return False
    return all(
        any(
            pragmas.silencing(one, finding.code, registry.RULES[finding.code].name, *_moved(finding, shift))
            for one in suppressions
        )
        for finding in findings
    )


def _moved(finding: Finding, lines: int) -> tuple[Position, Position]:
    start, end = finding.start, finding.end
    return start._replace(line=start.line + lines), end._replace(line=end.line + lines)
